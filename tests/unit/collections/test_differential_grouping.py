"""The fast ways to group and to sort rows give the same rows and the same bits as Arrow."""

import numpy as np
import pyarrow as pa
import pytest

from falkirk.steps.differential import grouping
from falkirk.steps.differential.operators import Aggregate, Group
from falkirk.steps.differential.rows import DIFFERENCE, HASH, consolidate, hashes

ROWS = 20_000
SUM = Group(aggregates=(Aggregate(kind="sum", column="rank", name="rank"),))


def _rows(seed: int) -> pa.Table:
    """Return rows of which many are equal, cancel each other, or share a key."""
    rng = np.random.default_rng(seed)
    node = rng.integers(-ROWS // 8, ROWS // 8, ROWS)
    rank = rng.choice([0.0, -0.0, 0.1, 1e-300, -2.5, 1e17, *rng.random(40)], ROWS)
    return pa.table(
        {
            HASH: node * np.int64(0x9E3779B97F4A7C1),
            "node": node,
            "rank": rank,
            "round": rng.integers(0, 2, ROWS).astype(np.int32),
            DIFFERENCE: rng.integers(-2, 4, ROWS),
        }
    )


def _in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


def _both_ways(compute: object, table: pa.Table, patch: pytest.MonkeyPatch) -> tuple[pa.Table, pa.Table]:
    assert callable(compute)
    found = []
    for least in (1, ROWS + 1):
        patch.setattr(grouping, "ROWS_MIN", least)
        found.append(_in_order(compute(table)))
    return found[0], found[1]


def _summed(table: pa.Table) -> pa.Table:
    rows = consolidate(table.drop_columns(["round"]))
    return SUM.outcome(rows.filter(pa.array(rows.column(DIFFERENCE).to_numpy() > 0)), ["node"])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("compute", [consolidate, _summed])
def test_results_have_the_bits_of_arrow(compute: object, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, arrow = _both_ways(compute, _rows(seed), monkeypatch)
    assert ours.num_rows > ROWS // 8
    assert ours.equals(arrow)


@pytest.mark.parametrize("compute", [consolidate, _summed])
def test_rows_with_one_mixed_number_or_one_hash_are_told_apart(
    compute: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the comparison of rows, all of them would be one row."""
    monkeypatch.setattr(grouping, "_FACTOR", np.uint64(0))
    table = _rows(7)
    table = table.set_column(0, HASH, pa.array(np.zeros(ROWS, dtype=np.int64)))
    ours, arrow = _both_ways(compute, table, monkeypatch)
    assert ours.num_rows > ROWS // 8
    assert ours.equals(arrow)


def test_the_order_of_groups_depends_only_on_their_rows() -> None:
    table = _rows(11)
    turned = table.take(pa.array(np.arange(ROWS)[::-1]))
    assert consolidate(table).equals(consolidate(turned))


@pytest.mark.parametrize("column", [pa.nulls(ROWS, pa.int64()), pa.array(["a", "b"] * (ROWS // 2))])
def test_other_columns_are_left_to_arrow(column: pa.Array) -> None:
    table = _rows(3).append_column("other", column)
    assert grouping.added(table, [name for name in table.column_names if name != DIFFERENCE], DIFFERENCE, HASH) is None


def test_a_sum_that_may_overflow_is_left_to_arrow() -> None:
    table = pa.table({HASH: np.zeros(ROWS, dtype=np.int64), DIFFERENCE: np.full(ROWS, 1 << 60)})
    with pytest.raises(OverflowError):
        consolidate(table)


@pytest.mark.parametrize("rows", [100, ROWS])
def test_orders_are_stable(rows: int) -> None:
    numbers = np.random.default_rng(5).integers(-50, 50, rows) * (1 << 55)
    assert np.array_equal(grouping.stable_order(numbers), np.argsort(numbers, kind="stable"))
    assert np.array_equal(hashes(pa.table({HASH: numbers})), np.unique(numbers))
