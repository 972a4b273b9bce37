"""Loops over collections that change: nested loops, successive loops, loops at their limits, and many epochs."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from falkirk.steps.differential import Collection, connected_components, fixpoint, jobs
from falkirk.steps.differential.jobs import Jobs
from falkirk.steps.differential.program import program_digest, program_of
from falkirk.steps.differential.schedule import Rounds
from falkirk.steps.differential.single_task import ALONE_MAX, OUTCOME
from falkirk.steps.differential.task import NUMBER
from tests.integration.changing import (
    EDGES,
    Changing,
    Edge,
    Rows,
    added,
    components,
    sources,
    taken,
    there,
    three_rounds,
    three_rounds_plainly,
)

#: The greatest number of rows with which one task computes all rounds but the first. With the small limit, it stops
#: early and Spark computes some. The soak has the large limit, too; most other files of this folder have it always.
LIMITS = [3, *([ALONE_MAX] if "FALKIRK_STRIKES" in os.environ else [])]


@pytest.fixture(params=LIMITS)
def alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the limit; tests without this fixture set their own, or start no round."""
    monkeypatch.setattr(Changing, "alone", request.param)


limited = pytest.mark.usefixtures("alone")


def succeed(edges: Collection) -> Callable[[Collection], Collection]:
    """Return the body of a loop that moves from nodes `n` over edges. Each path counts."""
    ways = edges.select(F.col("src").alias("n"), "dst")
    return lambda nodes: nodes.join(ways, "n").select(F.col("dst").alias("n"))


def walked(edges: list[Edge], steps: int) -> Rows:
    nodes = Counter((a,) for a, _ in edges)
    for _ in range(steps):
        after: Rows = Counter()
        for (n,), often in nodes.items():
            for a, b in edges:
                after[(b,)] += often * (a == n)
        nodes = Counter({row: often for row, often in after.items() if often})
    return nodes


@limited
def test_a_loop_at_its_limit_has_been_applied_as_often(session: SparkSession, tmp_path: Path) -> None:
    """The body ends in a join, into which a later epoch brings rows of later rounds."""
    changing = Changing(session, tmp_path, lambda e: sources(e).iterate(succeed(e), rounds=3), edges=EDGES)
    for changes in (added([(1, 2), (2, 3), (3, 4), (4, 5)]), added([(3, 1), (4, 1)]), [(2, 3, -1), (1, 2, 1)]):
        done = changing.epoch(edges=changes)
        assert changing.result == walked(there(changing.put["edges"]), 3)
        assert done.rounds == (Rounds(count=3, converged=False),)


@pytest.mark.parametrize("alone", [ALONE_MAX, 3], indirect=True)
@limited
def test_a_loop_that_was_cut_short_says_so_until_it_has_come_to_its_end(session: SparkSession, tmp_path: Path) -> None:
    """Changes that one epoch left out are cancelled by later epochs, in a task or in jobs. One round without changes is
    enough to converge."""

    def program(edges: Collection) -> Collection:
        begun = edges.where("src = 0").select(F.col("src").alias("n")).distinct()
        return begun.iterate(lambda n: succeed(edges)(n).concat(begun).distinct(), rounds=4)

    changing = Changing(session, tmp_path, program, edges=EDGES)
    chain = [(n, n + 1) for n in range(6)]
    for changes, reached, is_at_rest in (
        (added(chain), 5, False),
        (added([(0, 1)]), 5, False),
        (taken([(2, 3)]), 3, True),
        (added([(2, 3)]) + taken([(5, 6)]), 5, False),
        (taken([(4, 5), (1, 2)]), 2, True),
        (added([(1, 2)]), 5, False),
        (taken([(3, 4)]), 4, True),
    ):
        done = changing.epoch(edges=changes)
        assert changing.result == {(n,): 1 for n in range(reached)}
        assert [r.converged for r in done.rounds] == [is_at_rest]
    changing = Changing(
        session, tmp_path, lambda e: sources(e).distinct().iterate(lambda n: n.distinct(), rounds=1), edges=EDGES
    )
    assert changing.epoch(edges=added([(1, 2)])).rounds == (Rounds(count=1, converged=True),)


@limited
def test_what_goes_round_is_read_once_by_each_that_reads_it(session: SparkSession, tmp_path: Path) -> None:
    """A join reads the loop's variable, which needs no shuffle for it, and so does a reader that needs one."""
    changing = Changing(session, tmp_path, three_rounds, edges=EDGES)
    for changes in (added([(1, 2), (2, 3), (3, 1)]), [(1, 3, 1), (2, 3, -1)]):
        changing.epoch(edges=changes)
        assert changing.result == three_rounds_plainly(there(changing.put["edges"]))


@limited
def test_a_loop_in_a_loop_and_an_operator_read_before_and_after_it(session: SparkSession, tmp_path: Path) -> None:
    """Each outer round goes one step further, and the inner loop determines which of the reached nodes stay."""

    def program(edges: Collection) -> Collection:
        ways = edges.select(F.col("src").alias("n"), "dst")

        def outer(nodes: Collection) -> Collection:
            over = nodes.join(ways, "n")
            reached = over.select(F.col("dst").alias("n")).concat(nodes).distinct()
            near = reached.where("n % 2 = 0").iterate(lambda w: succeed(edges)(w).concat(w).where("n < 8").distinct())
            kept = over.groupBy("n").count("often").join(near, "n").select("n")
            ends = over.select(F.col("dst").alias("n")).semijoin(near, "n")
            return kept.concat(ends, nodes).distinct()

        return edges.where("src = 0").select(F.col("src").alias("n")).distinct().iterate(outer, rounds=3)

    def plainly(edges: list[Edge]) -> Rows:
        nodes = {a for a, _ in edges if a == 0}
        for _ in range(3):
            over = {(a, b) for a, b in edges if a in nodes}
            near = {n for n in {b for _, b in over} | nodes if n % 2 == 0}
            while (more := {n for n in near | {b for a, b in edges if a in near} if n < 8}) != near:
                near = more
            nodes = {n for n in {a for a, _ in over} | {b for _, b in over} if n in near} | nodes
        return Counter((n,) for n in nodes)

    changing = Changing(session, tmp_path, program, edges=EDGES)
    more = added([(3, 4), (0, 1), (6, 7), (1, 2)]) + taken([(2, 3)])
    for changes in (added([(0, 2), (2, 3), (4, 5), (5, 6)]), more):
        changing.epoch(edges=changes)
        assert changing.result == plainly(there(changing.put["edges"]))


@limited
def test_what_is_made_for_a_later_round_is_read_once_before_and_once_after_a_loop(
    session: SparkSession, tmp_path: Path
) -> None:
    def program(edges: Collection) -> Collection:
        def outer(nodes: Collection) -> Collection:
            over = nodes.select("n").join(edges.select(F.col("src").alias("n"), "dst"), "n")
            made = over.groupBy("n").count("made")
            loop = made.select("n").iterate(lambda n: n.distinct())
            return over.join(loop, "n").join(made, "n").select(F.col("dst").alias("n"), "made")

        return (
            edges.where("src = 1").groupBy("src").count("made").withColumnRenamed("src", "n").iterate(outer, rounds=3)
        )

    changing = Changing(session, tmp_path, program, edges=EDGES)
    changing.epoch(edges=added([(1, 2), (2, 3), (3, 4)]))
    assert changing.result == {(4, 1): 1}
    changing.epoch(edges=added([(3, 9)]))  # a row of the first round is joined with rows of the third
    assert changing.result == {(4, 2): 1, (9, 2): 1}


def read_late(edges: Collection) -> Collection:
    """Return two successive loops, and a collection that is read in the first, in the second, and after both."""
    plain = edges.distinct()
    first = connected_components(plain.concat(plain.where(F.lit(False))))
    heads = first.select(F.col("component").alias("n")).distinct()
    second = heads.iterate(lambda nodes: succeed(plain)(nodes).concat(nodes).distinct())
    return second.join(plain.select(F.col("src").alias("n"), "dst"), "n").join(
        first.withColumnRenamed("node", "n"), "n"
    )


def read_late_plainly(edges: list[Edge]) -> Rows:
    first = dict(components(edges).keys())
    graph = nx.DiGraph(edges)
    second = {m for n in set(first.values()) for m in {n} | nx.descendants(graph, n)}
    return Counter((a, b, first[a]) for a, b in set(edges) if a in second)


LATE = [
    added([(1, 2), (2, 3), (4, 5), (4, 5)]), [(5, 1, 1), (2, 3, -1)], added([(6, 6), (2, 6)]), taken([(4, 5), (1, 2)]),
]  # fmt: skip


@limited
def test_two_loops_and_what_is_read_inside_and_after_them(session: SparkSession, tmp_path: Path) -> None:
    changing = Changing(session, tmp_path, read_late, edges=EDGES)
    for changes in LATE[:3]:
        changing.epoch(edges=changes)
        assert changing.result == read_late_plainly(there(changing.put["edges"]))


@limited
def test_an_older_state_goes_on_as_if_nothing_had_come_after_it(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are merged all the time, and a new flow, which has only the state's files, computes each epoch."""
    monkeypatch.setattr(jobs, "RUNS_MAX", 1)
    changing = Changing(session, tmp_path, connected_components, edges=EDGES)
    changing.epoch(edges=LATE[0])
    state, put, result = changing.state, changing.put["edges"].copy(), changing.result.copy()
    changing.flow = changing.fresh()
    changing.epoch(edges=LATE[1])
    for path in state.files():
        assert (tmp_path / path).is_file()
    changing.state, changing.put["edges"], changing.result = state, put, result
    changing.flow = changing.fresh()
    for changes in LATE[2:]:
        changing.epoch(edges=changes)
        assert changing.result == components(there(changing.put["edges"]))
    assert all(len(files) <= 2 for (_, what), files in changing.state.traces.items() if what != "all")


@limited
def test_a_fixpoint_at_its_limit_goes_on_in_later_epochs(session: SparkSession, tmp_path: Path) -> None:
    """This also holds inside a loop that still has rounds to do, and for epochs without rows."""

    def program(edges: Collection) -> Collection:
        def outer(nodes: Collection) -> Collection:
            more = F.col("n") + 1
            return fixpoint(
                nodes, lambda w: w.select(more.alias("n")).where("n < 5").concat(nodes).distinct(), rounds=2
            )

        return sources(edges).distinct().iterate(outer, rounds=3)

    changing = Changing(session, tmp_path, program, edges=EDGES)
    assert not changing.epoch(edges=added([(1, 1)])).rounds[0].converged
    assert changing.result == {(1,): 1, (2,): 1}
    changing.epoch(edges=[])
    while changing.state.left:
        changing.epoch()
    assert changing.result == {(n,): 1 for n in (1, 2, 3, 4)}


@limited
@pytest.mark.parametrize(("body", "least"), [(lambda n: n.where("n > 1"), 2), (lambda n: n, 1)])
def test_a_loop_without_operators_comes_to_rest(
    session: SparkSession, tmp_path: Path, body: Callable[[Collection], Collection], least: int
) -> None:
    changing = Changing(session, tmp_path, lambda e: sources(e).iterate(body, rounds=9), edges=EDGES)
    done = changing.epoch(edges=added([(1, 1), (2, 2), (3, 3)]))
    assert changing.result == Counter((n,) for n in (1, 2, 3) if n >= least)
    assert done.rounds[0].converged


@limited
def test_null_goes_round_a_loop_that_began_with_none(session: SparkSession, tmp_path: Path) -> None:
    def program(edges: Collection) -> Collection:
        less = F.when(F.col("d") < 2, F.col("d") + 1).alias("d")
        started = sources(edges).select("n", F.lit(1).alias("d"))
        return started.iterate(lambda v: v.select("n", less).where("d is null or n > 0").distinct())

    changing = Changing(session, tmp_path, program, edges=EDGES)
    changing.epoch(edges=added([(1, 0)]))
    assert changing.result == {(1, None): 1}


@limited
def test_the_driver_sees_no_rows(session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changing = Changing(session, tmp_path, read_late, edges=EDGES)
    inputs = {"edges": changing.changes("edges", LATE[0])}
    seen: list[Any] = []
    with monkeypatch.context() as patch:
        frame = type(inputs["edges"])
        collect = frame.collect

        def collected(rows: DataFrame) -> Any:
            seen.append(collect(rows))
            return seen[-1]

        patch.setattr(frame, "collect", collected)
        for other in ("toPandas", "toArrow", "toLocalIterator", "count", "head", "take", "first", "isEmpty", "foreach"):
            patch.setattr(frame, other, None)
        done = changing.flow.advance(changing.state, inputs, "watched")
    assert len(seen) == done.jobs > 0
    assert {tuple(row.__fields__) for rows in seen for row in rows} <= {("end", NUMBER), (OUTCOME,)}, "names of tasks"
    assert isinstance(done.changes, DataFrame)
    assert done.changes.collect()


@pytest.mark.parametrize("apart", [True, False])
def test_an_epoch_that_fails_has_never_been(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    """The failed job's files are in no list. If it shared the former state's lists, its rows would count twice."""
    monkeypatch.setattr(Changing, "alone", 0)
    changing = Changing(session, tmp_path, lambda e: sources(e).iterate(succeed(e), rounds=3), edges=EDGES)
    changing.epoch(edges=added([(1, 2), (2, 3), (3, 4)]))
    with monkeypatch.context() as patch:
        tidy, begin = Jobs.tidy, Jobs.__init__

        def shared(jobs: Jobs, *arguments: Any) -> None:
            begin(jobs, *arguments)
            jobs.traces = arguments[3].traces

        def fail(jobs: Jobs) -> None:
            tidy(jobs)
            if jobs.count == 1:
                raise RuntimeError("here")

        patch.setattr(Jobs, "tidy", fail)
        if not apart:
            patch.setattr(Jobs, "__init__", shared)
        with pytest.raises(RuntimeError, match="here"):
            changing.flow.advance(
                changing.state, {"edges": changing.changes("edges", added([(4, 1), (1, 3)]))}, "failed"
            )
    changing.epoch(edges=added([(4, 1), (1, 3)]))
    assert (changing.result == walked(there(changing.put["edges"]), 3)) is apart


def test_without_wakes_a_way_that_is_shorter_would_spoil_the_components(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An early value meets values that later rounds received in the former epoch and receive again."""
    take = Jobs._take
    monkeypatch.setattr(Jobs, "_take", lambda *arguments: {**take(*arguments), "due": ()})
    monkeypatch.setattr(Changing, "alone", 0)
    changing = Changing(session, tmp_path, connected_components, edges=EDGES)
    changing.epoch(edges=added([(1, 2), (2, 3), (3, 4)]))
    changing.epoch(edges=added([(1, 4)]))
    assert changing.result != components(there(changing.put["edges"]))


@limited
def test_a_fixpoint_in_a_fixpoint_that_is_cut_short_twice_in_an_epoch_loses_nothing(
    session: SparkSession, tmp_path: Path
) -> None:
    """The outer loop continues, so the inner loop runs several times while the outer time does not advance."""

    def program(start: Collection) -> Collection:
        def around(w: Collection) -> Collection:
            first, more = w.where("n = 0"), w.where("n = 1").select((F.col("n") + 10).alias("n"))

            def within(v: Collection) -> Collection:
                after = v.select((F.col("n") + 1).alias("n")).where("n < 5 OR (n > 10 AND n < 15)")
                return after.concat(first, more).distinct()

            return fixpoint(first, within, rounds=2).concat(start).distinct()

        return fixpoint(start, around)

    changing = Changing(session, tmp_path, program, start="n LONG")
    changing.epoch(start=added([(0,)]))
    for _ in range(30):
        if not changing.state.left:
            break
        changing.epoch(start=[])
    assert changing.result == Counter({(n,): 1 for n in (0, 1, 2, 3, 4, 11, 12, 13, 14)})


def test_another_program_is_told_from_this_one(session: SparkSession, tmp_path: Path) -> None:
    """The state of a loop belongs to one program: its steps, their inputs, and the rounds of its loops."""

    def program(most: int = 5, rounds: int = 7, *, swapped: bool = False) -> Callable[..., Collection]:
        def made(edges: Collection) -> Collection:
            short, reached = edges.where(F.col("dst") < most), sources(edges)
            ways = short.select(F.col("src").alias("n"), "dst")
            by = (lambda n: ways.join(n, "n")) if swapped else (lambda n: n.join(ways, "n"))
            return reached.iterate(lambda n: by(n).select(F.col("dst").alias("n")).distinct(), rounds=rounds)

        return made

    def digest_of(program: Callable[..., Collection]) -> str:
        graph = Changing(session, tmp_path, program, edges=EDGES).flow._graph
        return program_digest(program_of(graph, session), session)

    assert digest_of(program()) == digest_of(program())
    others = [digest_of(p) for p in (program(), program(most=6), program(rounds=8), program(swapped=True))]
    assert len(set(others)) == 4
