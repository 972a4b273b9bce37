"""Epochs are compared with a place: each fault is named, and an epoch that can't be judged does not count as right."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.checker import (
    Comparison,
    Due,
    EpochFault,
    EpochsVerdict,
    Forgotten,
    FoundRow,
    Guarantee,
    Judged,
    compare_latest,
    compare_rows,
    epochs_to_json,
)
from falkirk.checker.epochs import FAULTS_MAX


def due(epoch: int, *ns: int, **settings: Any) -> Due:
    return Due(epoch=epoch, count=len(ns), rows=[{"n": n, "of": "a"} for n in ns], **settings)


def counted(epoch: int, count: int, **settings: Any) -> Due:
    return Due(epoch=epoch, count=count, **settings)


def found(*ns: int, epoch: int | None = None, partition: int | None = None) -> list[FoundRow]:
    return [
        FoundRow(place=f"{epoch}@{i}", values={"n": n, "of": "a"}, epoch=epoch, partition=partition)
        for i, n in enumerate(ns)
    ]


def kinds(compared: Comparison) -> dict[str, int]:
    return {str(kind): rows for kind, rows in compared.counts.items() if rows}


EPOCHS = (due(0, 1, 2), due(1, 3, 4, 4))


def test_rows_that_a_rollback_made_invalid_are_counted_and_no_faults() -> None:
    """Before, they were duplicates, or foreign. The home keeps their number, and not their contents."""
    again, other = found(1, 2, 3, 4, 4, 3, 4, partition=0), found(1, 2, 8, 9, 3, 4, 4, partition=0)
    folders = [*found(1, 2, epoch=0), *found(8, 9, epoch=5), *found(3, 4, 4, epoch=1)]
    for rows in (again, other, folders):
        compared = compare_rows(EPOCHS, rows, invalid={5: 2})
        assert (kinds(compared), compared.invalid, compared.guarantee) == ({}, 2, Guarantee.EXACTLY_ONCE)
        assert "2 rows of epochs that a rollback made invalid" in compared.notes[0]
        assert compare_rows(EPOCHS, rows).guarantee is not Guarantee.EXACTLY_ONCE
        told = epochs_to_json(EpochsVerdict(place="a place", judged=(), compared=compared))
        assert told["rows"] == {"due": 5, "found": 7, "invalid": 2}


def test_invalid_rows_hide_no_other_fault() -> None:
    """No more rows than the invalid epochs had are left out, and none of those that are due."""
    assert kinds(compare_rows(EPOCHS, found(1, 2, 8, 3, 4, 4, 3, 4), invalid={5: 2})) == {"foreign": 1}
    assert kinds(compare_rows(EPOCHS, found(1, 2, 3, 4, 4, 3, 4, 4), invalid={5: 2})) == {"duplicate": 1}
    assert kinds(compare_rows(EPOCHS, found(1, 2, 3, 4, 8, 9), invalid={5: 2})) == {"missing": 1}
    lost = compare_rows((*EPOCHS, counted(2, 2)), found(1, 2, 3, 4, 4, 8), invalid={5: 2})
    assert (kinds(lost), lost.invalid) == ({"missing": 1}, 0)
    more = compare_rows(
        EPOCHS, [*found(1, 2, epoch=0), *found(3, 4, 4, epoch=1), *found(8, 9, 9, epoch=5)], invalid={5: 2}
    )
    assert kinds(more) == {"foreign": 1}


def test_rows_that_are_only_counted_come_before_invalid_ones() -> None:
    """They are due. Those of forgotten epochs count, and those of epochs that wait need not be there."""
    of_forgotten = compare_rows(EPOCHS, found(1, 2, 3, 4, 4, 8), Forgotten(below=0, rows=1), invalid={5: 2})
    assert (kinds(of_forgotten), of_forgotten.invalid) == ({}, 0)
    waits = compare_rows((*EPOCHS, counted(2, 2, waits=True)), found(1, 2, 3, 4, 4, 8), invalid={5: 2})
    assert (kinds(waits), waits.invalid) == ({}, 1)


def test_the_order_is_not_judged_where_rows_may_be_invalid() -> None:
    """An invalid row that equals a due one may be the first of the two."""
    rows = found(3, 1, 2, 3, 4, 4, partition=0)
    compared = compare_rows(EPOCHS, rows, invalid={5: 1})
    assert (kinds(compared), compared.invalid) == ({}, 1)
    assert "The order of the rows is not judged" in compared.notes[0]


def test_an_invalid_row_with_a_key_that_no_epoch_gives_again() -> None:
    compared = compare_latest(EPOCHS, found(1, 2, 3, 4, 8), ("n",), invalid={5: 1})
    assert (kinds(compared), compared.invalid) == ({}, 1)
    assert "1 rows of epochs that a rollback made invalid" in compared.notes[0]
    assert kinds(compare_latest(EPOCHS, found(1, 2, 3, 4, 8, 9), ("n",), invalid={5: 1})) == {"foreign": 1}


@pytest.mark.parametrize(
    ("rows", "expected", "guarantee"),
    [
        ((1, 2, 3, 4, 4), {}, "exactly-once"),
        ((4, 2, 4, 1, 3), {}, "exactly-once"),
        ((1, 1, 2, 3, 4, 4), {"duplicate": 1}, "repeated delivery with exact state"),
        ((1, 2, 3, 4), {"missing": 1}, "at-most-once"),
        ((1, 2), {"missing": 3}, "at-most-once"),
        ((1, 2, 3, 4, 4, 3, 4, 4), {"duplicate": 3}, "repeated delivery with exact state"),
        ((1, 2, 3, 4, 5), {"changed": 1}, "broken"),
        ((1, 1, 3, 4, 4), {"duplicate": 1, "missing": 1}, "broken"),
    ],
)
def test_rows_of_a_place_without_names_of_epochs(
    rows: Sequence[int], expected: dict[str, int], guarantee: str
) -> None:  # fmt: skip
    compared = compare_rows(EPOCHS, found(*rows))
    assert (kinds(compared), compared.guarantee) == (expected, guarantee)
    assert (compared.due, compared.found) == (5, len(rows))


def test_whole_epochs_are_one_fault() -> None:
    (fault,) = compare_rows(EPOCHS, found(1, 2, 3, 4, 4, 3, 4, 4)).faults
    assert (fault.epoch, fault.rows) == (1, 3)
    assert "epoch 1 is there twice" in fault.explanation
    (fault,) = compare_rows(EPOCHS, found(1, 2)).faults
    assert (fault.epoch, fault.rows) == (1, 3)
    assert "epoch 1 is missing" in fault.explanation


def test_a_foreign_row_resembles_no_missing_one() -> None:
    foreign = FoundRow(place="x", values={"other": 1})
    compared = compare_rows(EPOCHS, [*found(1, 2, 3, 4), foreign])
    assert kinds(compared) == {"foreign": 1, "missing": 1}


def test_a_place_that_names_epochs_holds_each_row_in_its_own() -> None:
    assert not compare_rows(EPOCHS, [*found(1, 2, epoch=0), *found(3, 4, 4, epoch=1)]).faults
    compared = compare_rows(EPOCHS, [*found(1, 3, epoch=0), *found(2, 4, 4, epoch=1)])
    assert kinds(compared) == {"duplicate": 2, "missing": 2}
    compared = compare_rows(EPOCHS, [*found(1, 2, epoch=0), *found(3, 4, 4, epoch=1), *found(1, 2, epoch=7)])
    assert "in the place of epoch 7" in compared.faults[0].explanation
    assert kinds(compared) == {"duplicate": 2}


def test_rows_of_a_partition_are_in_the_order_of_epochs() -> None:
    assert kinds(compare_rows(EPOCHS, found(1, 3, 2, 4, 4, partition=0))) == {"out of order": 1}
    assert not compare_rows(EPOCHS, [*found(3, 4, 4, partition=1), *found(1, 2, partition=0)]).faults
    same = (due(0, 1, 9), due(1, 9, 3))
    assert not compare_rows(same, found(1, 9, 9, 3, partition=0)).faults


def test_epochs_that_wait_may_be_there_or_not() -> None:
    waits = (due(0, 1, 2), due(1, 3, 4, waits=True))
    for rows in ((1, 2), (1, 2, 3), (1, 2, 3, 4)):
        assert not compare_rows(waits, found(*rows)).faults
    assert kinds(compare_rows(waits, found(1, 2, 3, 3))) == {"duplicate": 1}


def test_dead_letters_are_not_missing_and_no_more_than_these() -> None:
    refused = (due(0, 1, 2, 3, refused=1),)
    assert not compare_rows(refused, found(1, 3)).faults
    assert kinds(compare_rows(refused, found(1))) == {"missing": 1}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((1, 2, 7, 8, 9), {}),
        ((1, 2, 1, 2, 9), {}),  # an epoch that is only counted may have the rows of another
        ((1, 2, 7, 8), {"missing": 1}),
        ((1, 2, 7, 8, 9, 1), {"duplicate": 1}),
        ((1, 2, 7, 8, 9, 10), {"foreign": 1}),
        ((1, 7, 8, 9), {"missing": 1}),
    ],
)
def test_epochs_that_are_only_counted_explain_as_many_rows(rows: Sequence[int], expected: dict[str, int]) -> None:
    assert kinds(compare_rows([due(0, 1, 2), counted(1, 3)], found(*rows))) == expected
    assert kinds(compare_rows([due(5, 1, 2)], found(*rows), Forgotten(below=5, rows=3))) == expected


def test_an_unknown_number_of_rows_is_said_and_hides_no_missing_row() -> None:
    compared = compare_rows([due(5, 1, 2)], found(1, 7, 8), Forgotten(below=5, rows=None))
    assert kinds(compared) == {"missing": 1}
    assert compared.notes == ["2 rows may be of epochs without a record. Nobody knows their number"]


def test_epochs_that_a_place_names_are_counted_one_by_one() -> None:
    epochs = [counted(0, 2), counted(1, 2), due(2, 5)]
    assert not compare_rows(epochs, [*found(7, 8, epoch=0), *found(7, 8, epoch=1), *found(5, epoch=2)]).faults
    compared = compare_rows(epochs, [*found(7, epoch=0), *found(7, 8, 7, 8, epoch=1), *found(5, epoch=2)])
    assert [(f.kind, f.epoch, f.rows) for f in compared.faults] == [
        (EpochFault.MISSING, 0, 1),
        (EpochFault.DUPLICATE, 1, 2),
    ]
    old = Forgotten(below=2, rows=3)
    assert not compare_rows([due(2, 5)], [*found(7, 8, 9, epoch=0), *found(5, epoch=2)], old).faults
    assert kinds(compare_rows([due(2, 5)], [*found(7, 8, 9, 9, epoch=1), *found(5, epoch=2)], old)) == {"foreign": 1}


def test_faults_are_counted_and_the_first_ones_described() -> None:
    compared = compare_rows([due(0, *range(100))], found(*range(50)))
    assert (kinds(compared), len(compared.faults)) == ({"missing": 50}, FAULTS_MAX)


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=4), st.data())
def test_one_row_more_or_less_is_never_clean(epochs: list[list[int]], data: st.DataObject) -> None:
    owed, rows = [due(i, *ns) for i, ns in enumerate(epochs)], [n for ns in epochs for n in ns]
    assert not compare_rows(owed, found(*data.draw(st.permutations(rows)))).faults
    extra = data.draw(st.integers(0, 9))
    assert sum(compare_rows(owed, found(*rows, extra)).counts.values()) == 1
    if rows:
        assert sum(compare_rows(owed, found(*rows[1:])).counts.values()) == 1


def keyed(epoch: int, rows: dict[str, int], **settings: Any) -> Due:
    return Due(epoch=epoch, count=len(rows), rows=[{"k": k, "n": n} for k, n in rows.items()], **settings)


def latest(*rows: tuple[str, int]) -> list[FoundRow]:
    return [FoundRow(place=f"row {i}", values={"k": k, "n": n}) for i, (k, n) in enumerate(rows)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((("a", 1), ("b", 3)), {}),
        ((("a", 1), ("b", 2)), {"missing": 1}),  # the row of epoch 0
        ((("a", 1), ("b", 9)), {"changed": 1}),
        ((("b", 3),), {"missing": 1}),
        ((("a", 1), ("b", 3), ("c", 1)), {"foreign": 1}),
        ((("a", 1), ("a", 1), ("b", 3)), {"duplicate": 1}),
    ],
)
def test_a_place_that_keeps_the_last_row_of_each_key(
    rows: Sequence[tuple[str, int]], expected: dict[str, int]
) -> None:  # fmt: skip
    epochs = [keyed(0, {"a": 1, "b": 2}), keyed(1, {"b": 3})]
    assert kinds(compare_latest(epochs, latest(*rows), ["k"])) == expected


def test_the_last_row_of_a_key_may_be_of_an_epoch_that_waits_or_is_unknown() -> None:
    waits = [keyed(0, {"a": 1}), keyed(1, {"a": 2, "b": 2}, waits=True)]
    for rows in ((("a", 1),), (("a", 2),), (("a", 2), ("b", 2))):
        assert not compare_latest(waits, latest(*rows), ["k"]).faults
    assert kinds(compare_latest(waits, latest(("a", 3)), ["k"])) == {"changed": 1}
    known = [keyed(0, {"a": 1}), counted(1, 1), keyed(2, {"b": 2})]
    compared = compare_latest(known, latest(("a", 5), ("b", 2), ("c", 1)), ["k"])
    assert (compared.faults, compared.notes) == (
        [], ["2 rows may be of epochs that can't be computed again. They are not judged"]
    )  # fmt: skip
    assert kinds(compare_latest(known, latest(("a", 5), ("b", 3)), ["k"])) == {"changed": 1}


def test_only_a_whole_verdict_keeps_a_promise_unless_a_part_is_enough() -> None:
    again = Judged(how="computed again", epochs=(1, 2))
    gone = Judged(how="counted", epochs=(0,), reason="its input was deleted")
    waits = Judged(how="not released yet; counted", epochs=(3,), reason="its input was deleted", open=True)
    clean, less = compare_rows(EPOCHS, found(1, 2, 3, 4, 4)), compare_rows(EPOCHS, found(1, 2))

    def verdict(compared: Comparison, *judged: Judged) -> EpochsVerdict:
        return EpochsVerdict(place="topic t", judged=judged, compared=compared)

    asked = Guarantee.EXACTLY_ONCE
    assert verdict(clean, again, waits).satisfies(asked)
    assert verdict(clean, again, waits).guarantee is asked
    assert verdict(clean, again, gone).guarantee is Guarantee.UNDECIDED
    assert not verdict(clean, again, gone).satisfies(asked)
    assert verdict(clean, again, gone).satisfies(asked, partial=True)
    assert not verdict(less, again, gone).satisfies(asked, partial=True)
    assert verdict(less, again).satisfies(Guarantee.AT_MOST_ONCE)
    shown = epochs_to_json(verdict(less, again, gone))
    assert shown["epochs"] == [
        {"how": "computed again", "ranges": [[1, 2]], "reason": ""},
        {"how": "counted", "ranges": [[0, 0]], "reason": "its input was deleted"},
    ]
