"""A compacted topic is compared with its epochs: compaction makes no fault, and hides no lost last row of a key."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falkirk.checker import Comparison, Due, EpochFault, Forgotten, FoundRow, compare_compacted, compare_rows

Row = tuple[str, int]
#: Two keys. The last row of each is a3 and b2.
EPOCHS: Sequence[Sequence[Row]] = ([("a", 1), ("b", 1)], [("a", 2), ("b", 2)], [("a", 3)])


def due(epochs: Sequence[Sequence[Row]], **settings: Any) -> list[Due]:
    return [
        Due(epoch=n, count=len(rows), rows=[{"k": k, "n": value} for k, value in rows], **settings)
        for n, rows in enumerate(epochs)
    ]


def judged(found: Sequence[Row], epochs: Sequence[Due] | None = None, **options: Any) -> Comparison:
    rows = [FoundRow(place=f"0@{n}", values={"k": k, "n": value}, partition=0) for n, (k, value) in enumerate(found)]
    return compare_compacted(due(EPOCHS) if epochs is None else epochs, rows, ["k"], **options)


def kinds(compared: Comparison) -> dict[str, int]:
    return {str(kind): rows for kind, rows in compared.counts.items() if rows}


def test_a_row_that_a_later_one_of_its_key_replaced_is_not_missing_and_is_told() -> None:
    whole = [row for rows in EPOCHS for row in rows]
    assert (kinds(judged(whole)), judged(whole).notes) == ({}, [])
    compared = judged([("b", 2), ("a", 3)])
    assert kinds(compared) == {}
    assert (compared.due, compared.found) == (5, 2)
    assert compared.notes == [
        "3 due rows are not there. Compaction deletes a row if a later one of its key is there, so these are not judged"
    ]


def test_the_last_row_of_a_key_is_missing_whatever_earlier_ones_are_there() -> None:
    for found in ([("b", 2)], [("a", 1), ("b", 2)], [("a", 1), ("b", 1), ("a", 2), ("b", 2)]):
        compared = judged(found)
        assert kinds(compared) == {"missing": 1}
        assert (compared.faults[0].epoch, compared.faults[0].expected) == (2, {"k": "a", "n": 3})


def test_the_last_row_counts_and_not_an_older_one_with_the_same_values() -> None:
    """Before its last row, the key had the same values once."""
    epochs = due([[("a", 1)], [("a", 2)], [("a", 1)]])
    assert kinds(judged([("a", 1), ("a", 2)], epochs)) == {"missing": 1}
    assert kinds(judged([("a", 1)], epochs)) == {}, "compaction may leave it alone"


def test_rows_beyond_those_that_are_due_are_faults() -> None:
    assert kinds(judged([("b", 2), ("a", 3), ("a", 3)])) == {"duplicate": 1}
    assert kinds(judged([("b", 2), ("a", 3), ("c", 3)])) == {"foreign": 1}
    changed = judged([("b", 2), ("a", 9)])
    assert kinds(changed) == {"changed": 1}
    assert changed.faults[0].kind is EpochFault.CHANGED


def test_rows_that_are_dead_letters_or_not_released_may_be_there_or_not() -> None:
    first, second, _ = due(EPOCHS)
    for may in ({"waits": True}, {"refused": 1}):
        (last,) = due([EPOCHS[2]], **may)
        epochs = [first, second, Due(epoch=2, count=1, rows=last.rows, **may)]
        assert kinds(judged([("b", 2), ("a", 3)], epochs)) == {}
        assert kinds(judged([("b", 2), ("a", 2)], epochs)) == {}
        assert kinds(judged([("a", 1), ("b", 2)], epochs)) == {"missing": 1}


def test_epochs_that_are_unknown_may_have_replaced_any_row() -> None:
    known, unknown = due(EPOCHS), Due(epoch=3, count=2)
    assert kinds(judged([("b", 7), ("a", 7)], [*known, unknown])) == {}
    assert kinds(judged([("b", 7), ("a", 7), ("a", 8)], [*known, unknown])) == {"foreign": 1}, "by record it had two"
    assert kinds(judged([("a", 7)], [*known, unknown])) == {"missing": 1}, "a key does not vanish"
    later = [Due(epoch=n + 5, count=d.count, rows=d.rows) for n, d in enumerate(known)]
    forgotten = Forgotten(below=5, rows=40)
    assert kinds(judged([("z", 1), ("b", 2), ("a", 3)], later, forgotten=forgotten)) == {}
    assert kinds(judged([("z", 1), ("b", 2)], later, forgotten=forgotten)) == {"missing": 1}


def test_a_row_of_an_invalid_epoch_may_be_the_last_of_its_key() -> None:
    assert kinds(judged([("b", 2), ("a", 3), ("a", 9)], invalid={7: 1})) == {}
    assert kinds(judged([("b", 2), ("a", 9)], invalid={7: 1})) == {}
    assert kinds(judged([("b", 2)], invalid={7: 1})) == {"missing": 1}
    before = [Due(epoch=n * 2, count=d.count, rows=d.rows) for n, d in enumerate(due(EPOCHS))]
    lost = judged([("a", 2), ("b", 2)], before, invalid={3: 1})
    assert kinds(lost) == {"missing": 1}, "epoch 4 came after the invalid one, which can't have replaced its row"


def test_a_key_whose_rows_are_in_two_partitions_has_a_last_row_in_each() -> None:
    """An update has changed the type of the key from INT to LONG, whose hashes differ. Compaction keeps both rows."""
    found = [("b", 2, 0), ("a", 3, 0), ("a", 2, 1)]
    rows = [FoundRow(place="", values={"k": k, "n": n}, partition=partition) for k, n, partition in found]
    assert kinds(compare_compacted(due(EPOCHS), rows, ["k"])) == {}
    assert kinds(compare_compacted(due(EPOCHS), [rows[0], rows[2]], ["k"])) == {"missing": 1}


_ROWS = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=4), min_size=1, max_size=4)


@given(_ROWS, st.data())
def test_compaction_never_makes_a_fault_and_never_hides_a_lost_last_row(
    epochs: list[list[Row]], data: st.DataObject
) -> None:
    written = [row for rows in epochs for row in rows]
    last = {key: place for place, (key, _) in enumerate(written)}
    kept = [p for p, (key, _) in enumerate(written) if p == last[key] or data.draw(st.booleans())]
    assert kinds(judged([written[p] for p in kept], due(epochs))) == {}
    if last:
        key = data.draw(st.sampled_from(sorted(last)))
        without = [written[p] for p in kept if written[p][0] != key]
        assert kinds(judged(without, due(epochs))) == {"missing": 1}
        twice = [*(written[p] for p in kept), *[written[last[key]]] * (written.count(written[last[key]]) + 1)]
        assert judged(twice, due(epochs)).counts[EpochFault.DUPLICATE]


@given(_ROWS)
def test_without_compaction_it_finds_no_fault_that_others_do_not_find(epochs: list[list[Row]]) -> None:
    rows = [FoundRow(place="", values={"k": k, "n": n}) for each in epochs[1:] for k, n in each]
    if kinds(compare_compacted(due(epochs), rows, ["k"])):
        assert kinds(compare_rows(due(epochs), rows))
