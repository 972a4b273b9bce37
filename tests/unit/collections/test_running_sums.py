"""The sums that one task keeps are those of all summands, to the last bit."""

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from falkirk.steps.differential import exact_sums, rows, running_sums
from falkirk.steps.differential.operators import Aggregate, Group, Reduce, Trace
from falkirk.steps.differential.ordered import FirstRows, Order
from falkirk.steps.differential.rows import DIFFERENCE, HASH, Hashes, LoopTime, consolidate, rounds
from falkirk.steps.differential.running_sums import RunningSums, Unusual, can_run
from falkirk.steps.differential.task import act

NODES, FEWER, NOW, TOLERANCE = 300, 60, (0,), 1e-3
SUM = Group(aggregates=(Aggregate(kind="sum", column="rank", name="rank"),), tolerance=TOLERANCE)
OPERATOR = Reduce(keys=("node",), values=("rank",), results=("rank",), how=SUM)
SCHEMA = pa.schema(
    {HASH: pa.int64(), "node": pa.int64(), "rank": pa.float64(), rounds(1)[0]: pa.int32(), DIFFERENCE: pa.int64()}
)
DUE = pa.schema([SCHEMA.field(HASH), SCHEMA.field("node")])
Summand = tuple[int, float | None, int]
"""A node, a number, and the change of its count."""


class Kept:
    """The traces of one operator in memory."""

    def __init__(self) -> None:
        self.all: dict[str, pa.Table] = {}
        self.waiting = DUE.empty_table()
        self.read = self.deferred = 0

    def trace(self, what: str, schema: pa.Schema) -> Trace:
        return _Kept(self, what)

    def former(self, what: str, schema: pa.Schema) -> Trace:
        return _Kept(self, what)

    def due(self, schema: pa.Schema) -> pa.Table:
        due, self.waiting = self.waiting, schema.empty_table()
        return due

    def write(self, what: str, rows: pa.Table, order: Order | None = None) -> None:
        self.all[what] = pa.concat_tables([self.rows_of(what), rows])

    def rows_of(self, what: str) -> pa.Table:
        return self.all.get(what, SCHEMA.empty_table())

    def defer(self, what: str, time: LoopTime, rows: pa.Table, holder: str = "", *, is_dropped: bool = False) -> None:
        assert (what, time, rows.schema) == ("due", NOW, DUE)
        self.waiting = pa.concat_tables([self.waiting, rows])
        self.deferred += rows.num_rows

    beside: tuple[str, ...] = ()


class _Kept:
    def __init__(self, kept: Kept, what: str) -> None:
        self._kept, self._what = kept, what

    def rows(self, keys: Hashes) -> pa.Table:
        there = self._kept.rows_of(self._what)
        found = there.filter(pa.array(np.isin(there.column(HASH).to_numpy(), keys)))
        self._kept.read += found.num_rows
        return found

    def first(self, keys: Hashes, order: Order, most: int) -> FirstRows:
        raise AssertionError


def table(summands: Sequence[Summand], time: int = 0) -> pa.Table:
    nodes, ranks, counts = (pa.array(c) for c in zip(*summands, strict=True)) if summands else ([], [], [])
    hashes = np.asarray(nodes, dtype=np.int64) * np.int64(0x9E3779B97F4A7C1)
    times = np.full(len(summands), time, dtype=np.int32)
    return pa.table([pa.array(hashes), nodes, ranks, pa.array(times), counts], schema=SCHEMA)


def task(*, is_load: bool = False) -> RunningSums:
    return RunningSums(operator=OPERATOR, now=NOW, results=SCHEMA, is_load=is_load)


def in_order(table: pa.Table) -> pa.Table:
    return consolidate(table).sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


def test_each_round_has_the_results_of_all_summands() -> None:
    """Several tasks, each with several rounds: additions and removals of many numbers, with their bits compared."""
    rng = np.random.default_rng(3)
    plain, ours = Kept(), Kept()
    held: list[Summand] = []
    for _ in range(4):
        sums, before = task(), ours.rows_of("input0").num_rows
        ours.read, kept = 0, sum(rows.num_rows for rows in ours.all.values())
        for _ in range(5):
            nodes = rng.integers(0, NODES, 400).tolist()
            come = [(node, float(rank), 1) for node, rank in zip(nodes, rng.random(400) * 10.0, strict=True)]
            rng.shuffle(held)
            gone, held = held[:300], held[300:] + come
            news = table([*come, *((node, rank, -1) for node, rank, _ in gone)])
            wanted = act(OPERATOR, [news], NOW, SCHEMA, plain)
            assert in_order(sums.run(news, DUE.empty_table(), ours)).equals(in_order(wanted))
            assert wanted.num_rows
        assert ours.read <= kept, "the rows of each key are read once"
        sums.check(consolidate(ours.rows_of("input0").slice(before)))
    for what in ("input0", "output"):
        assert in_order(ours.rows_of(what)).equals(in_order(plain.rows_of(what)))


def test_what_moves_within_the_tolerance_is_not_sent_again() -> None:
    kept = Kept()
    sums = task()
    assert sums.run(table([(1, 1.0, 1)]), DUE.empty_table(), kept).num_rows == 1
    assert sums.run(table([(1, TOLERANCE / 2, 1)]), DUE.empty_table(), kept).num_rows == 0
    assert sums.run(table([(1, TOLERANCE, 1)]), DUE.empty_table(), kept).num_rows == 2
    assert sums.run(table([]), DUE.empty_table(), kept).num_rows == 0
    gone = sums.run(table([(1, 1.0, -1), (1, TOLERANCE / 2, -1), (1, TOLERANCE, -1)]), DUE.empty_table(), kept)
    assert gone.column(DIFFERENCE).to_pylist() == [-1]


class Ranks:
    """Ranks that nodes give each other along random ways, until no rank moves by more than the tolerance."""

    def __init__(self) -> None:
        rng = np.random.default_rng(9)
        self.ways = [[(int(n), 0.8 / 4) for n in rng.choice(FEWER, 4, replace=False)] for _ in range(FEWER)]
        self.ways[0] = [(n, 0.8 / FEWER) for n in range(FEWER)]
        self.kept = Kept()

    def run(self, given: list[Summand], by: str) -> None:
        """Run rounds. Args: by: one task; one that loads; a new task for each round; jobs and tasks by turns."""
        news, sums, rounds_ = table(given), task(is_load=by == "load"), 0
        while news.num_rows or self.kept.waiting.num_rows:
            rounds_ += 1
            assert rounds_ < 300
            if by == "turns" and rounds_ % 3 == 0:
                out, sums = act(OPERATOR, [news], NOW, SCHEMA, self.kept), task()
            else:
                sums = sums if by in ("load", "one task") else task()
                out = sums.run(news, self.kept.due(DUE), self.kept)
            changes = zip(*(out.column(name).to_pylist() for name in ("node", "rank", DIFFERENCE)), strict=True)
            made = [(to, rank * share, count) for node, rank, count in changes for to, share in self.ways[node]]
            news = table(made)

    def error(self, given: dict[int, float]) -> float:
        """Return the greatest error of a rank."""
        spread = np.zeros((FEWER, FEWER))
        for node, ways in enumerate(self.ways):
            for to, share in ways:
                spread[to, node] += share
        exact = np.linalg.solve(np.eye(FEWER) - spread, [given[node] for node in range(FEWER)])
        found = consolidate(self.kept.rows_of("output"))
        assert found.column(DIFFERENCE).unique().to_pylist() == [1]
        ranks = dict(zip(found.column("node").to_pylist(), found.column("rank").to_pylist(), strict=True))
        return max(abs(ranks[node] - exact[node]) / exact[node] for node in range(FEWER))


@pytest.mark.parametrize("by", ["one task", "tasks", "turns"])
def test_small_changes_that_are_held_back_are_sent_in_the_end(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_sums, "_FEW", 5)
    ranks = Ranks()
    ranks.run([(node, 1.0, 1) for node in range(FEWER)], "load")
    assert ranks.error(dict.fromkeys(range(FEWER), 1.0)) <= TOLERANCE / (1 - 0.8)
    assert not ranks.kept.deferred, "in a load, all changes are sent"
    changed = {node: 1.0 + (40.0 if node % 20 == 7 else 0.0) for node in range(FEWER)}
    ranks.run([row for node in range(7, FEWER, 20) for row in ((node, 1.0, -1), (node, 41.0, 1))], by)
    assert ranks.error(changed) <= TOLERANCE / (1 - 0.8)
    assert ranks.kept.deferred


@pytest.mark.parametrize("is_woken", [True, False])
@pytest.mark.parametrize("by", ["one task", "two tasks", "jobs"])
def test_keys_that_are_held_back_are_due(by: str, is_woken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The greatest change reaches a node from which no way leads on, so that no row wakes the others."""
    monkeypatch.setattr(running_sums, "_FEW", 1)
    kept, first = Kept(), task(is_load=True)
    first.run(table([(node, 1.0, 1) for node in range(5)]), DUE.empty_table(), kept)
    sums = task()
    out = sums.run(table([(0, 100.0, 1), *((node, 0.5, 1) for node in range(1, 5))]), DUE.empty_table(), kept)
    assert sorted(out.column("node").to_pylist()) == [0, 0]
    due = kept.due(DUE) if is_woken else DUE.empty_table()
    if by == "jobs":
        kept.waiting = due
        out = act(OPERATOR, [table([])], NOW, SCHEMA, kept)
    else:
        sums = sums if by == "one task" else task()
        out = sums.run(table([]), due, kept)
    wanted = [node for node in range(1, 5) for _ in range(2)] if is_woken or by == "one task" else []
    assert sorted(out.column("node").to_pylist()) == wanted


@pytest.mark.parametrize(
    "summand",
    [(1, None, 1), (1, math.nan, 1), (1, math.inf, 1), (1, 1e300, 1), (1, 1.0, exact_sums.COUNT_MAX + 1)],
    ids=str,
)
def test_unusual_summands_are_not_kept(summand: Summand) -> None:
    for former in ([], [summand]):
        kept = Kept()
        if former:
            kept.write("input0", table(former))
        news = table([(1, 2.0, 1)] if former else [summand])
        with pytest.raises(Unusual):
            task().run(news, DUE.empty_table(), kept)


def test_rows_with_other_counts_or_times_are_not_kept() -> None:
    for former in (table([(1, 1.0, -1)]), table([(1, 1.0, 1)], time=1)):
        kept = Kept()
        kept.write("input0", former)
        with pytest.raises(Unusual):
            task().run(table([(1, 2.0, 1)]), DUE.empty_table(), kept)


def test_a_row_that_was_removed_before_it_was_added_is_noticed_at_the_end() -> None:
    """Without the check, the sum would contain the negative row, which a reduction ignores."""
    kept = Kept()
    kept.write("input0", table([(1, 1.0, 1), (2, 1.0, 1)]))
    sums = task()
    sums.run(table([(1, 1.0, -1), (1, 5.0, 1), (1, 2.0, -1), (2, 1.0, 1)]), DUE.empty_table(), kept)
    with pytest.raises(Unusual):
        sums.check(table([(1, 1.0, -1), (1, 5.0, 1), (1, 2.0, -1), (2, 1.0, 1)]))
    sums.check(table([(1, 1.0, -1), (1, 5.0, 1)]))


def test_keys_with_one_hash_are_not_kept() -> None:
    one, two = table([(1, 1.0, 1)]), table([(2, 1.0, 1)])
    two = two.set_column(0, HASH, one.column(HASH))
    for news, former in ((pa.concat_tables([one, two]), one.slice(0, 0)), (one, two)):
        kept = Kept()
        kept.write("input0", former)
        with pytest.raises(Unusual):
            task().run(news, DUE.empty_table(), kept)
    kept, sums = Kept(), task()
    sums.run(one, DUE.empty_table(), kept)
    with pytest.raises(Unusual):
        sums.run(two, DUE.empty_table(), kept)


def test_only_sums_with_a_tolerance_are_kept() -> None:
    other = Reduce(keys=("node",), values=("rank",), results=("rank",), how=Group(aggregates=SUM.aggregates))
    assert can_run(OPERATOR, SCHEMA)
    assert not can_run(other, SCHEMA)
    assert not can_run(OPERATOR, SCHEMA.set(2, pa.field("rank", pa.int64())))
    assert not can_run(OPERATOR, SCHEMA.set(1, pa.field("node", pa.float64())))


@pytest.mark.parametrize("seed", range(3))
def test_a_sum_depends_neither_on_the_order_nor_on_other_keys(seed: int) -> None:
    """The rows of some keys are unusual, or share a hash; the others come in another order, and in several tables."""
    rng = np.random.default_rng(seed)
    values = [0.0, 0.1, 1e-300, -2.5, 1e17, 1e-9, *rng.random(40)]
    ranks = rng.choice(values, 4_000).tolist()
    summands = [
        (int(node), None if node == 0 else math.inf if node == 1 else rank, int(count))
        for node, rank, count in zip(rng.integers(0, NODES, 4_000), ranks, rng.integers(1, 4, 4_000), strict=True)
    ]
    one = table(summands)
    if seed == 2:
        one = one.set_column(0, HASH, pa.array(np.asarray(one.column("node")) % 7))
    one = consolidate(one).drop_columns(rounds(1))
    whole = in_order(rows.consolidate(_counted(SUM.outcome(one, ["node"]))))
    turned = one.take(pa.array(rng.permutation(one.num_rows)))
    assert in_order(_counted(SUM.outcome(turned, ["node"]))).equals(whole)
    odd = pa.array(np.asarray(one.column("node")) % 2 == 1)
    even = pa.array(np.asarray(one.column("node")) % 2 == 0)
    parts = pa.concat_tables([SUM.outcome(one.filter(mask), ["node"]) for mask in (odd, even)])
    assert in_order(_counted(parts)).equals(whole)
    nodes, found = (whole.column(name).to_pylist() for name in ("node", "rank"))
    for node, rank in zip(nodes, found, strict=True):
        exact = [v for n, v, count in summands if n == node and v is not None for _ in range(count)]
        wanted = math.fsum(exact) if exact else None
        assert rank == wanted if rank is None or wanted is None or math.isinf(wanted) else math.isclose(
            rank, wanted, rel_tol=1e-13, abs_tol=TOLERANCE / 1e6
        )  # fmt: skip


def _counted(found: pa.Table) -> pa.Table:
    return found.append_column(DIFFERENCE, pa.array(np.ones(found.num_rows, dtype=np.int64)))
