"""The checker names each class of anomaly, alone, on outputs that are broken on purpose."""

import pytest

from falkirk.checker import (
    AggregateModel,
    Count,
    DistinctModel,
    Guarantee,
    InputRow,
    Kind,
    Latest,
    LookupModel,
    Max,
    Min,
    OutputRow,
    RowPlace,
    StatelessModel,
    Sum,
    Verdict,
    check_keyed,
    check_stateless,
)
from falkirk.errors import DefinitionError

INDEX = AggregateModel(["word"], {"version": Count(), "page": Latest("page")})
COUNTS = AggregateModel(["word"], {"count": Count()})


def pages(*names: str, word: str = "spark", partition: int = 0, first: int = 0) -> list[InputRow]:
    return [
        InputRow(key=word, place=RowPlace("pages", partition, first + index), row={"word": word, "page": name})
        for index, name in enumerate(names)
    ]


def changes(*versions: tuple[int, str], word: str = "spark", partition: int = 0, first: int = 0) -> list[OutputRow]:
    return [
        OutputRow(
            key=word,
            place=RowPlace("index", partition, first + index),
            values={"word": word, "version": version, "page": page},
        )
        for index, (version, page) in enumerate(versions)
    ]


def counts(*values: int, word: str = "spark", first: int = 0) -> list[OutputRow]:
    return [
        OutputRow(key=word, place=RowPlace("counts", 0, first + index), values={"word": word, "count": value})
        for index, value in enumerate(values)
    ]


def kinds(verdict: Verdict) -> list[Kind]:
    return [anomaly.kind for anomaly in verdict.anomalies]


def test_exact_outputs_pass() -> None:
    verdict = check_keyed(pages("a", "b", "c"), changes((1, "a"), (2, "b"), (3, "c")), INDEX)
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE
    assert all(verdict.satisfies(each) for each in verdict.holds)
    assert verdict.counts.expected_outputs == verdict.counts.observed_outputs == 3
    assert not verdict.anomalies
    assert not verdict.undecided


def test_any_interleaving_of_source_partitions_passes() -> None:
    rows = pages("a", "b") + pages("x", "y", partition=1)
    assert check_keyed(rows, changes((1, "x"), (2, "a"), (3, "b"), (4, "y")), INDEX).guarantee == "exactly-once"


def test_an_order_that_no_interleaving_gives_is_a_broken_sequence() -> None:
    rows = pages("a", "b") + pages("x", "y", partition=1)
    verdict = check_keyed(rows, changes((1, "x"), (2, "b"), (3, "a"), (4, "y")), INDEX)
    assert verdict.guarantee is Guarantee.BROKEN
    assert not verdict.satisfies(Guarantee.EXACTLY_ONCE)


def test_a_duplicate_is_named_with_both_offsets() -> None:
    verdict = check_keyed(pages("a", "b"), changes((1, "a"), (2, "b"), (2, "b")), INDEX)
    assert verdict.guarantee is Guarantee.REPEATED_DELIVERY
    [anomaly] = verdict.anomalies
    assert anomaly.kind is Kind.DUPLICATE
    assert anomaly.outputs == (RowPlace("index", 0, 1), RowPlace("index", 0, 2))


def test_counts_that_step_back_are_exact_state_with_repeated_delivery() -> None:
    verdict = check_keyed(pages("a", "b", "c"), counts(1, 2, 3, 2, 3), COUNTS)
    assert verdict.guarantee is Guarantee.REPEATED_DELIVERY
    assert verdict.counts.duplicates == 2
    assert verdict.counts.broken_sequences == 0
    assert not verdict.satisfies(Guarantee.AT_LEAST_ONCE)
    assert not verdict.satisfies(Guarantee.AT_MOST_ONCE)


def test_an_input_applied_twice_is_at_least_once() -> None:
    verdict = check_keyed(pages("a", "b"), changes((1, "a"), (2, "b"), (3, "b")), INDEX)
    assert verdict.guarantee is Guarantee.AT_LEAST_ONCE
    assert kinds(verdict) == [Kind.REPEATED_INPUT]
    assert verdict.anomalies[0].inputs == (RowPlace("pages", 0, 1),)


def test_an_input_that_never_was_is_at_most_once() -> None:
    verdict = check_keyed(pages("a", "b", "c"), changes((1, "a"), (2, "c")), INDEX)
    assert verdict.guarantee is Guarantee.AT_MOST_ONCE
    assert kinds(verdict) == [Kind.LOST]
    assert verdict.anomalies[0].inputs == (RowPlace("pages", 0, 1),)


def test_a_gap_in_the_versions_is_a_broken_sequence() -> None:
    verdict = check_keyed(pages("a", "b", "c", "d"), changes((1, "a"), (2, "b"), (4, "d")), INDEX)
    assert verdict.guarantee is Guarantee.BROKEN
    assert sorted(kinds(verdict)) == [Kind.BROKEN_SEQUENCE, Kind.LOST]
    lost = next(each for each in verdict.anomalies if each.kind is Kind.LOST)
    assert lost.inputs == (RowPlace("pages", 0, 2),)
    assert lost.expected == {"word": "spark", "version": 3, "page": "c"}


def test_versions_out_of_order_are_a_broken_sequence_and_nothing_else() -> None:
    verdict = check_keyed(pages("a", "b", "c"), changes((2, "b"), (1, "a"), (3, "c")), INDEX)
    assert verdict.guarantee is Guarantee.BROKEN
    assert kinds(verdict) == [Kind.BROKEN_SEQUENCE]
    assert verdict.counts.lost == verdict.counts.unexplained == 0


def test_an_early_copy_is_a_duplicate_in_a_broken_sequence() -> None:
    verdict = check_keyed(pages("a", "b"), changes((2, "b"), (1, "a"), (2, "b")), INDEX)
    assert verdict.guarantee is Guarantee.BROKEN
    assert sorted(kinds(verdict)) == [Kind.BROKEN_SEQUENCE, Kind.DUPLICATE]


def test_an_output_of_no_input_is_unexplained() -> None:
    verdict = check_keyed(pages("a"), changes((1, "a")) + changes((1, "z"), word="zebra", first=1), INDEX)
    assert verdict.guarantee is Guarantee.BROKEN
    [anomaly] = verdict.anomalies
    assert anomaly.kind is Kind.UNEXPLAINED
    assert anomaly.key == "zebra"


def test_a_changed_content_is_shown_beside_what_was_due() -> None:
    verdict = check_keyed(pages("a", "b", "c"), changes((1, "a"), (2, "B"), (3, "c")), INDEX)
    unexplained = next(each for each in verdict.anomalies if each.kind is Kind.UNEXPLAINED)
    assert unexplained.found == {"word": "spark", "version": 2, "page": "B"}
    assert unexplained.expected == {"word": "spark", "version": 2, "page": "b"}


def test_outputs_of_a_key_in_two_partitions_are_a_broken_sequence() -> None:
    found = changes((1, "a")) + changes((2, "b"), partition=1)
    verdict = check_keyed(pages("a", "b"), found, INDEX)
    assert verdict.guarantee is Guarantee.BROKEN
    assert kinds(verdict) == [Kind.BROKEN_SEQUENCE]


def test_true_is_not_one_and_an_absent_field_is_null() -> None:
    row = InputRow(key="k", place=RowPlace("in", 0, 0), row={"flag": True, "note": None})
    place = RowPlace("out", 0, 0)
    same = OutputRow(key="k", place=place, values={"flag": True})
    other = OutputRow(key="k", place=place, values={"flag": 1})
    assert check_stateless([row], [same]).guarantee is Guarantee.EXACTLY_ONCE
    assert check_stateless([row], [other]).guarantee is Guarantee.BROKEN


def derivatives(*keys: str, offset: int) -> list[InputRow]:
    return [
        InputRow(key=key, place=RowPlace("pages", 0, offset, index), row={"word": key, "page": f"p{offset}"})
        for index, key in enumerate(keys)
    ]


def test_an_input_lost_with_all_its_derivatives_keeps_at_most_once() -> None:
    rows = derivatives("a", "b", offset=0) + derivatives("a", "b", offset=1)
    found = changes((1, "p1"), word="a") + changes((1, "p1"), word="b", first=1)
    verdict = check_keyed(rows, found, INDEX)
    assert verdict.guarantee is Guarantee.AT_MOST_ONCE
    assert verdict.counts.lost == 2
    assert verdict.counts.partial == 0


def test_an_input_lost_with_some_of_its_derivatives_is_partial() -> None:
    rows = derivatives("a", "b", offset=0) + derivatives("a", "b", offset=1)
    found = changes((1, "p1"), word="a") + changes((1, "p0"), (2, "p1"), word="b", first=1)
    verdict = check_keyed(rows, found, INDEX)
    assert verdict.guarantee is Guarantee.BROKEN
    assert sorted(kinds(verdict)) == [Kind.LOST, Kind.PARTIAL]
    partial = next(each for each in verdict.anomalies if each.kind is Kind.PARTIAL)
    assert partial.inputs == (RowPlace("pages", 0, 0, 0),)


def test_which_row_a_count_lost_is_chosen_so_that_inputs_are_whole() -> None:
    # The count of "a" shows that one of three rows is missing. The index of "b" shows that it was the first.
    model = AggregateModel(["word"], {"count": Count(), "page": Latest("tag")})
    rows = [
        InputRow(key=key, place=RowPlace("pages", 0, offset, sub), row={"word": key, "tag": tag})
        for offset in range(3)
        for sub, (key, tag) in enumerate([("a", "-"), ("b", str(offset))])
    ]
    found = [
        OutputRow(key=key, place=RowPlace("out", 0, index), values={"word": key, "count": count, "page": page})
        for index, (key, count, page) in enumerate([("a", 1, "-"), ("a", 2, "-"), ("b", 1, "1"), ("b", 2, "2")])
    ]
    verdict = check_keyed(rows, found, model)
    assert verdict.guarantee is Guarantee.AT_MOST_ONCE
    assert {each.inputs[0].offset for each in verdict.anomalies} == {0}


def test_a_choice_that_no_key_can_make_is_partial() -> None:
    # One row of "a" is missing and none of "b", "c". In every case its input is partial.
    rows = [row for offset in range(2) for row in derivatives("a", "b", offset=offset)]
    found = counts(1, word="a") + counts(1, 2, word="b", first=1)
    verdict = check_keyed(rows, found, COUNTS)
    assert verdict.guarantee is Guarantee.BROKEN
    assert verdict.counts.partial == 1


def test_a_row_that_distinct_drops_does_not_make_its_input_partial() -> None:
    rows = derivatives("a", offset=0) + derivatives("a", "b", offset=1)
    found = [OutputRow(key="a", place=RowPlace("out", 0, 0), values={"word": "a", "page": "p0"})]
    verdict = check_keyed(rows, found, DistinctModel())
    assert verdict.guarantee is Guarantee.AT_MOST_ONCE
    assert verdict.counts.partial == 0
    assert verdict.counts.expected_outputs == 2


def test_distinct_lets_one_through() -> None:
    rows = pages("a", "b") + pages("x", partition=1)
    output = [OutputRow(key="spark", place=RowPlace("out", 0, 0), values={"word": "spark", "page": "x"})]
    assert check_keyed(rows, output, DistinctModel()).guarantee is Guarantee.EXACTLY_ONCE
    late = [OutputRow(key="spark", place=RowPlace("out", 0, 0), values={"word": "spark", "page": "b"})]
    assert check_keyed(rows, late, DistinctModel()).guarantee is not Guarantee.EXACTLY_ONCE


def test_stateless_outputs_without_a_key_come_in_any_order() -> None:
    rows = [InputRow(key=None, place=RowPlace("in", 0, offset), row={"n": offset % 2}) for offset in range(6)]
    found = [OutputRow(key=None, place=RowPlace("out", n, n), values={"n": n % 2}) for n in (5, 3, 1, 0, 2, 4)]
    assert check_stateless(rows, found).guarantee is Guarantee.EXACTLY_ONCE
    verdict = check_stateless(rows, found[1:])
    assert verdict.guarantee is Guarantee.AT_MOST_ONCE
    assert kinds(verdict) == [Kind.LOST]


def test_stateless_repeats_satisfy_repeated_delivery_and_at_least_once() -> None:
    rows = pages("a", "b")
    found = [
        OutputRow(key="spark", place=RowPlace("out", 0, index), values=rows[row].row)
        for index, row in enumerate((0, 1, 0, 1))
    ]
    verdict = check_keyed(rows, found, StatelessModel())
    assert verdict.satisfies(Guarantee.REPEATED_DELIVERY)
    assert verdict.satisfies(Guarantee.AT_LEAST_ONCE)


def test_all_aggregates_with_nulls() -> None:
    model = AggregateModel(
        ["k"],
        {
            "n": Count(),
            "some": Count("x"),
            "sum": Sum("x"),
            "low": Min("x"),
            "high": Max("x"),
            "x": Latest("x"),
        },
    )
    rows = [
        InputRow(key="k", place=RowPlace("in", 0, offset), row={"k": "k", "x": x})
        for offset, x in enumerate([None, 3, 1])
    ]
    expected = [
        {"k": "k", "n": 1, "some": 0},
        {"k": "k", "n": 2, "some": 1, "sum": 3, "low": 3, "high": 3, "x": 3},
        {"k": "k", "n": 3, "some": 2, "sum": 4, "low": 1, "high": 3, "x": 1},
    ]
    found = [
        OutputRow(key="k", place=RowPlace("out", 0, offset), values=values) for offset, values in enumerate(expected)
    ]
    assert check_keyed(rows, found, model).guarantee is Guarantee.EXACTLY_ONCE


def test_a_search_that_is_given_up_is_undecided_never_passed() -> None:
    # After the least value, every order gives the same outputs. So a wrong last one refutes millions of orders.
    model = AggregateModel(["k"], {"low": Min("x")})
    rows = [
        InputRow(key="k", place=RowPlace("in", partition, offset), row={"k": "k", "x": partition})
        for partition in range(6)
        for offset in range(10)
    ]
    found = [
        OutputRow(key="k", place=RowPlace("out", 0, offset), values={"k": "k", "low": 7 if offset == 59 else 0})
        for offset in range(60)
    ]
    verdict = check_keyed(rows, found, model, nodes_max=1000)
    assert verdict.guarantee is Guarantee.UNDECIDED
    assert [each.key for each in verdict.undecided] == ["k"]
    assert not verdict.satisfies(Guarantee.EXACTLY_ONCE)


def test_one_place_claimed_twice_is_refused() -> None:
    with pytest.raises(DefinitionError) as refusal:
        check_keyed(pages("a") + pages("b"), [], INDEX)
    assert refusal.value.condition == "INPUT_PLACE_TWICE"


def test_a_sum_of_text_is_refused() -> None:
    with pytest.raises(DefinitionError) as refusal:
        check_keyed(pages("a"), counts(1), AggregateModel(["word"], {"count": Sum("page")}))
    assert refusal.value.condition == "SUM_OF_NO_NUMBER"


def test_only_the_first_anomalies_are_carried_but_all_are_counted() -> None:
    verdict = check_keyed(pages("a", "b", "c", "d"), [], INDEX, anomalies_shown=1)
    assert len(verdict.anomalies) == 1
    assert verdict.counts.lost == 4


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_wide_gap_and_a_replay_in_one_key_are_counted_in_full(partitions: int) -> None:
    rows = [
        InputRow(
            key="spark",
            place=RowPlace("pages", number % partitions, number),
            row={"word": "spark", "page": str(number)},
        )
        for number in range(400)
    ]
    versions = [(number + 1, str(number)) for number in range(400)]
    verdict = check_keyed(rows, changes(*versions[:200], *versions[150:200], *versions[300:]), INDEX)
    assert verdict.guarantee is Guarantee.BROKEN
    counts = verdict.counts
    assert (counts.lost, counts.duplicates, counts.unexplained, counts.broken_sequences) == (100, 50, 0, 1)


def looked_up(*outputs: tuple[int, int | None]) -> Verdict:
    """Judge outputs of a lookup. Two rows of the table, and three records, are in other sources."""
    rows = [InputRow(key="a", place=RowPlace("table", 0, n), row={"id": "a", "row": {"price": n}}) for n in (1, 2)]
    rows += [InputRow(key="a", place=RowPlace("in", 0, n), row={"id": "a", "n": n}) for n in (1, 2, 3)]
    found = [
        OutputRow(
            key="a", place=RowPlace("out", 0, place),
            values={"id": "a", "n": n} | ({} if price is None else {"row": {"price": price}}),
        )
        for place, (n, price) in enumerate(outputs)
    ]  # fmt: skip
    return check_keyed(rows, found, LookupModel(["id", "n"], "row"))


@pytest.mark.parametrize("outputs", [((1, None), (2, 1), (3, 2)), ((1, 2), (2, 2), (3, 2)), ((1, 1), (2, 1), (3, 1))])
def test_a_lookup_finds_the_rows_of_one_order(outputs: tuple[tuple[int, int | None], ...]) -> None:
    verdict = looked_up(*outputs)
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE
    assert verdict.counts.expected_outputs == 3


@pytest.mark.parametrize(
    ("outputs", "guarantee"),
    [
        (((1, 2), (2, 1), (3, 2)), Guarantee.BROKEN),  # an older row than before
        (((1, 1), (2, 3), (3, 2)), Guarantee.BROKEN),  # no such row
        (((1, 1), (3, 2)), Guarantee.AT_MOST_ONCE),
        (((1, 1), (2, 1), (2, 1), (3, 2)), Guarantee.REPEATED_DELIVERY),
    ],
)
def test_wrong_lookups_are_found(outputs: tuple[tuple[int, int | None], ...], guarantee: Guarantee) -> None:
    verdict = looked_up(*outputs)
    assert verdict.guarantee is guarantee, verdict.anomalies
