"""Numbers that overflow: they cause an error, and never wrap around."""

import pyarrow as pa
import pytest

from falkirk.steps.differential.operators import Aggregate, Group
from falkirk.steps.differential.rows import DIFFERENCE, HASH, TOO_MANY, check_sums, consolidate, join_rows

STRING, LONG = pa.string(), pa.int64()


def counted(*often: int) -> pa.Table:
    """Return rows of one key with these counts."""
    columns = {HASH: [1] * len(often), "k": ["a"] * len(often), DIFFERENCE: often}
    return pa.table(columns, schema=pa.schema({HASH: LONG, "k": STRING, DIFFERENCE: LONG}))


@pytest.mark.parametrize("often", [(1 << 62, 1), (1 << 61, 1 << 61), (-(1 << 62), -(1 << 62), 5)])
def test_what_is_there_too_often_to_be_counted_is_told(often: tuple[int, ...]) -> None:
    """Arrow's sums wrap around: twice 2^63 would be 0, and a loop would seem to have converged."""
    with pytest.raises(OverflowError, match=TOO_MANY.replace("^", r"\^")):
        consolidate(counted(*often))


def test_what_is_there_often_in_all_and_seldom_by_itself_is_added_up() -> None:
    most = [(1 << 61) + i for i in range(3)]
    table = pa.table({"k": most, DIFFERENCE: most}, schema=pa.schema({"k": LONG, DIFFERENCE: LONG}))
    check_sums(table, ["k"], DIFFERENCE)
    assert sorted(consolidate(table)[DIFFERENCE].to_pylist()) == most


def test_pairs_that_are_there_too_often_to_be_counted_are_told() -> None:
    with pytest.raises(OverflowError):
        join_rows(counted(1 << 40), counted(1 << 40), ["k"], 0)


@pytest.mark.parametrize(
    ("values", "often", "total"),
    [
        ([5 * 10**18, -5 * 10**18 + 7], [1, 1], 7),
        ([(1 << 63) - 1, None, -(1 << 63)], [1, 1, 1], -1),
        ([1 << 62, -(1 << 62)], [4, 3], 1 << 62),
    ],
)
def test_a_sum_that_fits_is_exact_whatever_it_is_on_the_way(values: list[int], often: list[int], total: int) -> None:
    columns = {HASH: [1] * len(values), "k": ["a"] * len(values), "v": values, DIFFERENCE: often}
    rows = pa.table(columns, schema=pa.schema({HASH: LONG, "k": STRING, "v": LONG, DIFFERENCE: LONG}))
    found = Group(aggregates=(Aggregate(kind="sum", column="v", name="x"),)).outcome(rows, ["k"])
    assert found["x"].to_pylist() == [total]
    assert found["x"].type == LONG


def test_a_sum_that_is_too_large_is_told() -> None:
    schema = pa.schema({HASH: LONG, "k": STRING, "v": LONG, DIFFERENCE: LONG})
    rows = pa.table({HASH: [1, 1], "k": ["a", "a"], "v": [(1 << 63) - 1, 1], DIFFERENCE: [1, 1]}, schema=schema)
    adding = Group(aggregates=(Aggregate(kind="sum", column="v", name="x"),))
    with pytest.raises(OverflowError):
        adding.outcome(rows, ["k"])
