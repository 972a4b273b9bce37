"""Final values: a table has one row for each key, which must equal the key's last expected output."""

from typing import Any

import pytest

from falkirk.checker import (
    AggregateModel,
    Count,
    Guarantee,
    InputRow,
    Kind,
    Latest,
    OutputRow,
    RowPlace,
    Sum,
    Verdict,
    check_keyed,
)

TOTALS = AggregateModel(["k"], {"n": Count(), "total": Sum("x"), "page": Latest("x")})


def judged(rows: list[tuple[str, int, int]], table: list[tuple[str, int, int, int]]) -> Verdict:
    """Return the verdict. Rows are (key, partition, x), in order; the table's are (key, count, sum, latest)."""
    inputs = [InputRow(key=k, place=RowPlace("in", p, n), row={"k": k, "x": x}) for n, (k, p, x) in enumerate(rows)]
    outputs = [
        OutputRow(key=k, place=RowPlace("totals", 0, n), values={"k": k, "n": count, "total": total, "page": page})
        for n, (k, count, total, page) in enumerate(table)
    ]
    return check_keyed(inputs, outputs, TOTALS, final=True)


ROWS = [("a", 0, 5), ("b", 0, 1), ("a", 0, 3), ("a", 0, 2)]


def test_a_table_that_is_right_passes() -> None:
    verdict = judged(ROWS, [("b", 1, 1, 1), ("a", 3, 10, 2)])
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE
    assert verdict.counts.expected_outputs == verdict.counts.observed_outputs == 2


@pytest.mark.parametrize("last", [5, 3])
def test_the_last_may_be_that_of_any_partition(last: int) -> None:
    rows = [("a", 0, 1), ("a", 0, 5), ("a", 1, 2), ("a", 1, 3)]
    assert judged(rows, [("a", 4, 11, last)]).guarantee is Guarantee.EXACTLY_ONCE
    assert judged(rows, [("a", 4, 11, 2)]).guarantee is Guarantee.BROKEN


@pytest.mark.parametrize(
    ("table", "guarantee", "kind", "inputs", "consistent"),
    [
        # Behind: the inputs from offset 2, or 3, on are missing.
        ([("b", 1, 1, 1), ("a", 1, 5, 5)], Guarantee.AT_MOST_ONCE, Kind.LOST, [2], True),
        ([("b", 1, 1, 1), ("a", 2, 8, 3)], Guarantee.AT_MOST_ONCE, Kind.LOST, [3], True),
        ([("b", 1, 1, 1)], Guarantee.AT_MOST_ONCE, Kind.LOST, [0], True),
        # An input counted twice; one omitted in the middle; a row of no key; a second row of a key.
        ([("b", 1, 1, 1), ("a", 4, 12, 2)], Guarantee.BROKEN, Kind.UNEXPLAINED, [3], False),
        ([("b", 1, 1, 1), ("a", 2, 7, 2)], Guarantee.BROKEN, Kind.UNEXPLAINED, [3], False),
        ([("b", 1, 1, 1), ("a", 3, 10, 2), ("z", 1, 1, 1)], Guarantee.BROKEN, Kind.UNEXPLAINED, [], False),
        ([("b", 1, 1, 1), ("a", 3, 10, 2), ("b", 1, 1, 1)], Guarantee.REPEATED_DELIVERY, Kind.DUPLICATE, [], False),
    ],
)
def test_what_is_wrong_with_a_table_is_told(
    table: Any, guarantee: Guarantee, kind: Kind, inputs: list[int], consistent: bool
) -> None:
    verdict = judged(ROWS, table)
    assert verdict.guarantee is guarantee
    [anomaly] = verdict.anomalies
    assert anomaly.kind is kind
    assert [place.offset for place in anomaly.inputs] == inputs
    assert verdict.consistency.holds is consistent
