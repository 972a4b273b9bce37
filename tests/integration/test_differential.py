"""Collections that change: after every epoch they are what a plain program makes of all that was put in."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from falkirk.differential import Collection, connected_components, fixpoint, jobs, pagerank, shortest_paths
from falkirk.differential.flow import Rounds
from falkirk.differential.jobs import Jobs
from tests.integration.changing import EDGES, Changing, Row, Rows, there

Edge = tuple[int, int]


def added(rows: Iterable[Row]) -> list[Row]:
    return [(*row, 1) for row in rows]


def taken(rows: Iterable[Row]) -> list[Row]:
    return [(*row, -1) for row in rows]


def shuffled(seed: int, epochs: int, rows: list[Row], most: int = 6) -> Iterable[list[Row]]:
    """Draw what is put in and taken away in each epoch."""
    draw, held = random.Random(seed), Counter[Row]()
    for _ in range(epochs):
        away = draw.sample(list(held.elements()), min(held.total(), draw.randint(0, most // 2)))
        more = draw.choices(rows, k=draw.randint(1, most))
        held.subtract(away)
        held.update(more)
        yield taken(away) + added(more)


def text(collection: Collection, operation: str) -> Collection:
    """Return rows of any columns as rows of one kind, that say where they are from."""
    columns = [F.col(c).cast("string") for c in collection.columns]
    padding = [F.lit(None).cast("string")] * (4 - len(columns))
    named = [c.alias(f"c{i}") for i, c in enumerate([*columns, *padding])]
    return collection.select(F.lit(operation).alias("operation"), *named)


def every_operation(left: Collection, right: Collection) -> Collection:
    """Return what each operation makes of two collections."""
    by = left.groupBy("k")
    made = {
        "select": left.select("v", (F.col("v") * 2).alias("w")),
        "where": left.where("v > 1"),
        "withColumns": left.withColumns({"w": F.col("v") + 1, "v": F.col("k")}),
        "renamed": left.withColumnRenamed("v", "z"),
        "concat": left.concat(left, right.withColumnRenamed("w", "v")),
        "negate": left.concat(right.withColumnRenamed("w", "v")).concat(right.withColumnRenamed("w", "v").negate()),
        "join": left.join(right, "k"),
        "semijoin": left.semijoin(right, "k"),
        "antijoin": left.antijoin(right, ["k"]),
        "distinct": left.distinct(),
        "count": by.count(),
        "sum": by.sum("v"),
        "min": by.min("v", "least"),
        "max": by.max("v"),
        "agg": by.agg({"n": ("count", ""), "least": ("min", "v"), "all": ("sum", "v")}),
        "all": left.groupBy().count(),
        "top": by.top(2, "v"),
        "least": left.groupBy().top(3, "+v", "k"),
    }
    first, *others = (text(collection, operation) for operation, collection in made.items())
    return first.concat(*others)


def every_operation_plainly(left: list[Row], right: list[Row]) -> Rows:
    """Return what it should be."""
    groups: dict[Any, list[int]] = {}
    for k, v in left:
        groups.setdefault(k, []).append(v)
    keys = {k for k, _ in right if k is not None}
    made: dict[str, Iterable[Row]] = {
        "select": [(v, 2 * v) for _, v in left],
        "where": [(k, v) for k, v in left if v > 1],
        "withColumns": [(k, k, v + 1) for k, v in left],
        "renamed": left,
        "concat": left * 2 + right,
        "negate": left,
        "join": [(k, v, w) for k, v in left for l, w in right if k == l and k is not None],  # noqa: E741
        "semijoin": [(k, v) for k, v in left if k in keys],
        "antijoin": [(k, v) for k, v in left if k not in keys],
        "distinct": set(left),
        "count": [(k, len(vs)) for k, vs in groups.items()],
        "sum": [(k, sum(vs)) for k, vs in groups.items()],
        "min": [(k, min(vs)) for k, vs in groups.items()],
        "max": [(k, max(vs)) for k, vs in groups.items()],
        "agg": [(k, len(vs), min(vs), sum(vs)) for k, vs in groups.items()],
        "all": [(len(left),)] if left else [],
        "top": [(k, v) for k, vs in groups.items() for v in sorted(vs, reverse=True)[:2]],
        "least": sorted(left, key=lambda r: (r[1], r[0] is None, [-ord(c) for c in r[0] or ""]))[:3],
    }
    found: Rows = Counter()
    for operation, rows in made.items():
        for row in rows:
            said = [None if value is None else str(value) for value in row]
            found[(operation, *said, *[None] * (4 - len(said)))] += 1
    return found


def test_each_operation_is_what_a_plain_program_makes_of_all_rows(session: SparkSession, tmp_path: Path) -> None:
    changing = Changing(session, tmp_path, every_operation, left="k STRING, v INT", right="k STRING, w INT")
    rows: list[Row] = [(k, v) for k in ("a", "b", None) for v in (0, 1, 2, 3)]
    for left, right in zip(shuffled(1, 2, rows, most=9), shuffled(2, 2, rows, most=5), strict=True):
        changing.epoch(left=left, right=right)
        plainly = every_operation_plainly(there(changing.put["left"]), there(changing.put["right"]))
        assert changing.result == plainly
    changing.epoch(**{name: [(*r, -n) for r, n in put.items()] for name, put in changing.put.items()})
    assert not changing.result, "all rows are gone"


def components(edges: Iterable[Edge]) -> Rows:
    return Counter((n, min(some)) for some in nx.connected_components(nx.Graph(list(edges))) for n in some)


def test_connected_components_over_random_edges(session: SparkSession, tmp_path: Path) -> None:
    changing = Changing(session, tmp_path, connected_components, edges=EDGES)
    edges: list[Row] = [(a, b) for a in range(7) for b in range(7) if a < b]
    for changes in shuffled(3, 4, edges, most=5):
        changing.epoch(edges=changes)
        assert changing.result == components(there(changing.put["edges"]))


def test_a_component_is_split_and_an_epoch_without_changes_costs_next_to_nothing(
    session: SparkSession, tmp_path: Path
) -> None:
    changing = Changing(session, tmp_path, connected_components, edges=EDGES)
    changing.epoch(edges=added([(1, 2), (2, 3), (3, 4)]))
    before = changing.state
    done = changing.epoch(edges=taken([(2, 3)]))
    assert changing.result == {(1, 1): 1, (2, 1): 1, (3, 3): 1, (4, 3): 1}
    assert done.rounds[0].converged
    split = changing.result.copy()
    assert changing.epoch().jobs == 0
    assert changing.epoch(edges=[]).jobs == 1
    assert changing.epoch(edges=[(3, 4, 1), (3, 4, -1)]).jobs == 1
    assert changing.result == split
    assert before != changing.state


def test_shortest_paths_over_random_edges(session: SparkSession, tmp_path: Path) -> None:
    changing = Changing(session, tmp_path, shortest_paths, edges=f"{EDGES}, length INT", sources="node LONG")
    draw = random.Random(4)
    edges: list[Row] = [(a, b, draw.randint(1, 9)) for a in range(6) for b in range(6) if a != b]
    sources = [added([(0,)]), [], added([(5,)]), taken([(0,)])]
    for changes, some in zip(shuffled(5, 4, edges, most=8), sources, strict=True):
        changing.epoch(edges=changes, sources=some)
        graph = nx.DiGraph()
        graph.add_nodes_from(n for (n,) in there(changing.put["sources"]))
        graph.add_weighted_edges_from(there(changing.put["edges"]))
        far = nx.multi_source_dijkstra_path_length(graph, {n for (n,) in there(changing.put["sources"])})
        assert changing.result == dict.fromkeys(far.items(), 1)


def test_pagerank_is_within_its_tolerance(session: SparkSession, tmp_path: Path) -> None:
    tolerance, damping = 1e-3, 0.7
    changing = Changing(
        session, tmp_path, lambda edges: pagerank(edges, damping=damping, tolerance=tolerance), edges=EDGES
    )
    for changes in (added([(0, 1), (1, 0), (1, 2), (2, 0)]), [(3, 2, 1), (1, 2, -1), (2, 1, 1)]):
        done = changing.epoch(edges=changes)
        assert done.rounds[0].converged
        graph = nx.DiGraph(there(changing.put["edges"]))
        wanted = nx.algorithms.link_analysis.pagerank_alg._pagerank_python(graph, alpha=damping, tol=1e-12)
        ranks = dict(changing.result.keys())
        assert ranks.keys() == wanted.keys()
        bound = tolerance / (1 - damping)
        assert all(abs(rank - wanted[node] * len(graph)) <= bound for node, rank in ranks.items())
        assert all(abs(rank / sum(ranks.values()) - wanted[node]) <= bound for node, rank in ranks.items())


def succeed(edges: Collection) -> Callable[[Collection], Collection]:
    """Return the body of a loop that goes from nodes `n` over edges, each way there counted."""
    ways = edges.select(F.col("src").alias("n"), "dst")
    return lambda nodes: nodes.join(ways, "n").select(F.col("dst").alias("n"))


def sources(edges: Collection) -> Collection:
    return edges.select(F.col("src").alias("n"))


def walked(edges: list[Edge], steps: int) -> Rows:
    nodes = Counter((a,) for a, _ in edges)
    for _ in range(steps):
        after: Rows = Counter()
        for (n,), often in nodes.items():
            for a, b in edges:
                after[(b,)] += often * (a == n)
        nodes = Counter({row: often for row, often in after.items() if often})
    return nodes


def test_a_loop_at_its_limit_has_been_applied_as_often(session: SparkSession, tmp_path: Path) -> None:
    """The body ends in a join, of which a later epoch brings rows of rounds that are still to come."""
    changing = Changing(session, tmp_path, lambda e: sources(e).iterate(succeed(e), rounds=3), edges=EDGES)
    for changes in (added([(1, 2), (2, 3), (3, 4), (4, 5)]), added([(3, 1), (4, 1)]), [(2, 3, -1), (1, 2, 1)]):
        done = changing.epoch(edges=changes)
        assert changing.result == walked(there(changing.put["edges"]), 3)
        assert done.rounds == (Rounds(count=3, converged=False),)


@pytest.mark.parametrize("order", ["source first", "operator first"])
def test_what_comes_from_outside_is_read_beside_what_operators_make(
    session: SparkSession, tmp_path: Path, order: str
) -> None:
    def program(edges: Collection) -> Collection:
        parts = [edges.select("src", F.col("dst").alias("n")), edges.groupBy("src").count("n")]
        first, second = parts if order == "source first" else parts[::-1]
        return first.concat(second).groupBy("src").max("n")

    changing = Changing(session, tmp_path, program, partitions=3, edges=EDGES)
    for number in (1, 2, 3):  # each in as many partitions as it has rows
        changing.epoch(edges=added((n, -number) for n in range(number)))
        counts = Counter(a for a, _ in there(changing.put["edges"]))
        assert changing.result == Counter(counts.items())


def test_a_loop_in_a_loop_and_an_operator_read_before_and_after_it(session: SparkSession, tmp_path: Path) -> None:
    """Each outer round walks on from where it is, and the inner loop removes, of what is reached, all below a peak."""

    def program(edges: Collection) -> Collection:
        ways = edges.select(F.col("src").alias("n"), "dst")

        def outer(nodes: Collection) -> Collection:
            over = nodes.join(ways, "n")
            reached = over.select(F.col("dst").alias("n")).concat(nodes).distinct()
            near = reached.where("n % 2 = 0").iterate(lambda w: succeed(edges)(w).concat(w).where("n < 8").distinct())
            kept = over.groupBy("n").count("often").join(near, "n").select("n")
            ends = over.select(F.col("dst").alias("n")).semijoin(near, "n")
            return kept.concat(ends, nodes).distinct()

        return edges.where("src = 0").select(F.col("src").alias("n")).distinct().iterate(outer, rounds=4)

    def plainly(edges: list[Edge]) -> Rows:
        nodes = {a for a, _ in edges if a == 0}
        for _ in range(4):
            over = {(a, b) for a, b in edges if a in nodes}
            near = {n for n in {b for _, b in over} | nodes if n % 2 == 0}
            while (more := {n for n in near | {b for a, b in edges if a in near} if n < 8}) != near:
                near = more
            nodes = {n for n in {a for a, _ in over} | {b for _, b in over} if n in near} | nodes
        return Counter((n,) for n in nodes)

    changing = Changing(session, tmp_path, program, edges=EDGES)
    for changes in (added([(0, 2), (2, 3), (4, 5), (5, 6)]), added([(3, 4), (0, 1), (6, 7)]), [(2, 3, -1), (1, 2, 1)]):
        changing.epoch(edges=changes)
        assert changing.result == plainly(there(changing.put["edges"]))


def read_late(edges: Collection) -> Collection:
    """Two loops one after the other, around what is read in the first, in the second, and after both."""
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


def test_two_loops_and_what_is_read_inside_and_after_them(session: SparkSession, tmp_path: Path) -> None:
    changing = Changing(session, tmp_path, read_late, edges=EDGES)
    for changes in LATE[:3]:
        changing.epoch(edges=changes)
        assert changing.result == read_late_plainly(there(changing.put["edges"]))


def test_an_older_state_goes_on_as_if_nothing_had_come_after_it(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are merged all the time, and each epoch is worked off by a flow that has only the state's files."""
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


def test_a_fixpoint_at_its_limit_goes_on_in_later_epochs(session: SparkSession, tmp_path: Path) -> None:
    """Also in a loop that has another round to do meanwhile, and where the epoch brings no rows."""

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


@pytest.mark.parametrize("body", [lambda n: n.where("n > 1"), lambda n: n])
def test_a_loop_without_operators_comes_to_rest(
    session: SparkSession, tmp_path: Path, body: Callable[[Collection], Collection]
) -> None:
    changing = Changing(session, tmp_path, lambda e: sources(e).iterate(body, rounds=9), edges=EDGES)
    done = changing.epoch(edges=added([(1, 1), (2, 2), (3, 3)]))
    assert changing.result == Counter((n,) for n in (1, 2, 3) if n > 1 or len(changing.result) == 3)
    assert done.rounds[0].converged


def test_what_a_loop_has_come_to_meets_an_input_of_which_nothing_is_left(session: SparkSession, tmp_path: Path) -> None:
    def program(edges: Collection) -> Collection:
        far = edges.select(F.col("src").alias("node"), "dst").where("dst > 9")
        return connected_components(edges).join(far, "node")

    changing = Changing(session, tmp_path, program, edges=EDGES)
    changing.epoch(edges=added([(1, 2)]))
    changing.epoch(edges=added([(1, 10)]))
    assert changing.result == {(1, 1, 10): 1}


def test_null_goes_round_a_loop_that_began_with_none(session: SparkSession, tmp_path: Path) -> None:
    def program(edges: Collection) -> Collection:
        less = F.when(F.col("d") < 2, F.col("d") + 1).alias("d")
        started = sources(edges).select("n", F.lit(1).alias("d"))
        return started.iterate(lambda v: v.select("n", less).where("d is null or n > 0").distinct())

    changing = Changing(session, tmp_path, program, edges=EDGES)
    changing.epoch(edges=added([(1, 0)]))
    assert changing.result == {(1, None): 1}


def test_the_driver_sees_no_rows(session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changing = Changing(session, tmp_path, read_late, edges=EDGES)
    inputs = {"edges": changing.changes("edges", LATE[0])}
    seen: list[Any] = []
    with monkeypatch.context() as patch:
        frame = type(inputs["edges"])
        collect = frame.collect
        patch.setattr(frame, "collect", lambda self: seen.append(collect(self)) or [])  # type: ignore[func-returns-value]
        for other in ("toPandas", "toArrow", "toLocalIterator", "count", "head", "take", "first", "isEmpty", "foreach"):
            patch.setattr(frame, other, None)
        done = changing.flow.advance(changing.state, inputs, "watched")
    assert len(seen) == done.jobs > 0
    assert not any(seen)
    assert isinstance(done.changes, DataFrame)
    assert done.changes.collect()


def test_without_wakes_a_way_that_is_shorter_would_spoil_the_components(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is heard early meets what later rounds have heard in the epoch before, and hear again."""
    take = Jobs._take
    monkeypatch.setattr(Jobs, "_take", lambda *arguments: {**take(*arguments), "woken": ()})
    changing = Changing(session, tmp_path, connected_components, edges=EDGES)
    changing.epoch(edges=added([(1, 2), (2, 3), (3, 4)]))
    changing.epoch(edges=added([(1, 4)]))
    assert changing.result != components(there(changing.put["edges"]))


def test_a_file_that_is_gone_is_told(session: SparkSession, tmp_path: Path) -> None:
    changing = Changing(session, tmp_path, sources, edges=EDGES)
    changing.epoch(edges=added([(1, 2)]))
    (tmp_path / next(iter(changing.state.files()))).unlink()
    with pytest.raises(PySparkException, match="falkirk rollback"):
        changing.flow.whole(changing.state).collect()
