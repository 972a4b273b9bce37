"""Consistency (Definition 5): names the first output that is not possible at its position without a failure."""

import pytest

from falkirk.checker import (
    AggregateModel,
    Consistency,
    Count,
    InputRow,
    Latest,
    OutputRow,
    RowPlace,
    Values,
    check_keyed,
)
from falkirk.checker.consistency import check_consistency
from falkirk.checker.run import group_by_key


class Concatenation:
    """The model of the paper's example: the last two inputs."""

    every_row_answers = True
    ordered = True

    def initial(self) -> str:
        return ""

    def step(self, state: str, row: Values) -> tuple[str, Values | None]:
        after = (state + str(row["letter"]))[-2:]
        return after, {"text": after}

    def effect(self, row: Values) -> object:
        return row["letter"]

    def echo(self, row: Values) -> object:
        return row["letter"]

    def echo_of(self, output: Values) -> object:
        return str(output["text"])[-1:]


def letters(*each: str) -> list[InputRow]:
    """Return one letter from each channel. Channels have no order."""
    return [InputRow(key=None, place=RowPlace("in", n, 0), row={"letter": letter}) for n, letter in enumerate(each)]


def texts(*each: str) -> list[OutputRow]:
    return [OutputRow(key=None, place=RowPlace("out", 0, n), values={"text": text}) for n, text in enumerate(each)]


def consistency(inputs: list[InputRow], outputs: list[OutputRow]) -> Consistency:
    return check_keyed(inputs, outputs, Concatenation()).consistency


def test_the_papers_example_is_consistent_with_the_reference_recovery_and_not_after_a_naive_replay() -> None:
    # Table II: cd and db were released. Then the state is restored, as db or, with b and d in another order, as bd.
    inputs = letters("a", "c", "d", "b", "e")
    assert consistency(inputs, texts("a", "ac", "cd", "db", "be")) == Consistency()
    found = consistency(inputs, texts("a", "ac", "cd", "db", "de"))
    assert found.holds is False
    assert found.first is not None
    assert found.first.outputs == (RowPlace("out", 0, 3), RowPlace("out", 0, 4))
    assert found.first.expected == {"text": "be"}


COUNTS = AggregateModel(["k"], {"n": Count(), "page": Latest("page")})


def run(*outputs: tuple[int, str], pages: str = "abcd", partitions: int = 1) -> Consistency:
    rows = [
        InputRow(key="k", place=RowPlace("in", n % partitions, n), row={"k": "k", "page": p})
        for n, p in enumerate(pages)
    ]
    found = [
        OutputRow(key="k", place=RowPlace("out", 0, offset), values={"k": "k", "n": n, "page": page})
        for offset, (n, page) in enumerate(outputs)
    ]
    return check_keyed(rows, found, COUNTS).consistency


@pytest.mark.parametrize(
    ("outputs", "first"),
    [
        ([(1, "a"), (2, "b"), (3, "c"), (4, "d")], None),
        ([(1, "a"), (2, "b")], None),  # its tail is lost: not exactly-once, but consistent
        ([], None),
        ([(1, "a"), (2, "b"), (2, "b")], 2),  # a duplicate
        ([(1, "a"), (2, "a"), (3, "b")], 1),  # an input counts twice
        ([(1, "a"), (2, "c")], 1),  # an input was omitted
        ([(1, "a"), (3, "c")], 1),  # an output was omitted
        ([(1, "z")], 0),
    ],
)
def test_the_first_output_that_could_not_come_there_is_named(outputs: list[tuple[int, str]], first: int | None) -> None:
    found = run(*outputs)
    assert found.holds is (first is None)
    assert (found.first and found.first.outputs[-1].offset) == first


def test_another_order_of_two_partitions_is_consistent_until_it_is_contradicted() -> None:
    assert run((1, "b"), (2, "a"), (3, "c"), partitions=2).holds
    found = run((1, "b"), (2, "a"), (3, "d"), (4, "d"), partitions=2)
    assert found.first is not None
    assert found.first.outputs[-1].offset == 3


def test_the_first_of_all_keys_is_the_first_by_place() -> None:
    rows = [InputRow(key=k, place=RowPlace("in", 0, n), row={"k": k, "page": "p"}) for n, k in enumerate("ab")]
    found = [
        OutputRow(key=k, place=RowPlace("out", 0, n), values={"k": k, "n": 7, "page": "p"}) for n, k in enumerate("ba")
    ]
    consistency = check_keyed(rows, found, COUNTS).consistency
    assert consistency.keys == 2
    assert consistency.first is not None
    assert consistency.first.key == "b"


def test_outputs_that_nothing_orders_are_named() -> None:
    rows = [InputRow(key="k", place=RowPlace("in", 0, n), row={"k": "k", "page": "p"}) for n in range(2)]
    found = [
        OutputRow(key="k", place=RowPlace("out", n, 0), values={"k": "k", "n": n + 1, "page": "p"}) for n in range(2)
    ]
    first = check_keyed(rows, found, COUNTS).consistency.first
    assert first is not None
    assert first.outputs == (RowPlace("out", 0, 0), RowPlace("out", 1, 0))


def test_a_search_that_is_given_up_says_neither() -> None:
    # Every output except the last is "p", from any partition. Too many orders lead to the last output.
    rows = [InputRow(key="k", place=RowPlace("in", n % 8, n), row={"k": "k", "page": "p", "n": n}) for n in range(64)]
    model = AggregateModel([], {"page": Latest("page"), "n": Latest("n")})
    silent = AggregateModel([], {"page": Latest("page")})
    found = [OutputRow(key="k", place=RowPlace("out", 0, n), values={"page": "p"}) for n in range(63)]
    wrong = [*found, OutputRow(key="k", place=RowPlace("out", 0, 63), values={"page": "q"})]
    [keyed] = group_by_key(rows, wrong)
    assert check_consistency(keyed, silent, 1000).holds is None
    [keyed] = group_by_key(rows[:8], wrong[:1])
    assert check_consistency(keyed, model, 1000).holds is False
