"""Collections: after each epoch, a collection equals the result of a plain program on all its input."""

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from falkirk.steps.differential import Collection, connected_components, pagerank, shortest_paths
from tests.integration.changing import (
    EDGES,
    Changing,
    Row,
    Rows,
    added,
    components,
    shuffled,
    sources,
    taken,
    there,
)


def text(collection: Collection, operation: str) -> Collection:
    """Return rows of any columns as rows of one form, which names their operation."""
    columns = [F.col(c).cast("string") for c in collection.columns]
    padding = [F.lit(None).cast("string")] * (4 - len(columns))
    named = [c.alias(f"c{i}") for i, c in enumerate([*columns, *padding])]
    return collection.select(F.lit(operation).alias("operation"), *named)


def every_operation(left: Collection, right: Collection) -> Collection:
    """Return the results of all operations on two collections."""
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
    """Return the expected results of `every_operation`."""
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
    changing.by_spark = True
    rows: list[Row] = [(k, v) for k in ("a", "b", None) for v in (0, 1, 2, 3)]
    for left, right in zip(shuffled(1, 2, rows, most=9), shuffled(2, 2, rows, most=5), strict=True):
        changing.epoch(left=left, right=right)
        plainly = every_operation_plainly(there(changing.put["left"]), there(changing.put["right"]))
        assert changing.result == plainly
    changing.epoch(**{name: [(*r, -n) for r, n in put.items()] for name, put in changing.put.items()})
    assert not changing.result, "all rows are gone"


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
        bound = tolerance / (1 - damping)  # of itself, each
        assert all(abs(rank / len(graph) - wanted[node]) <= bound * wanted[node] for node, rank in ranks.items())
        assert all(
            abs(rank / sum(ranks.values()) - wanted[node]) <= 2.1 * bound * wanted[node] for node, rank in ranks.items()
        )


@pytest.mark.parametrize("order", ["source first", "operator first"])
def test_what_comes_from_outside_is_read_beside_what_operators_make(
    session: SparkSession, tmp_path: Path, order: str
) -> None:
    def program(edges: Collection) -> Collection:
        parts = [edges.select("src", F.col("dst").alias("n")), edges.groupBy("src").count("n")]
        first, second = parts if order == "source first" else parts[::-1]
        return first.concat(second).groupBy("src").max("n")

    changing = Changing(session, tmp_path, program, partitions=3, edges=EDGES)
    changing.parts = None
    for number in (1, 2, 3):  # the input has as many partitions as rows
        changing.epoch(edges=added((n, -number) for n in range(number)))
        counts = Counter(a for a, _ in there(changing.put["edges"]))
        assert changing.result == Counter(counts.items())


def test_what_a_loop_has_come_to_meets_an_input_of_which_nothing_is_left(session: SparkSession, tmp_path: Path) -> None:
    def program(edges: Collection) -> Collection:
        far = edges.select(F.col("src").alias("node"), "dst").where("dst > 9")
        return connected_components(edges).join(far, "node")

    changing = Changing(session, tmp_path, program, edges=EDGES)
    changing.epoch(edges=added([(1, 2)]))
    changing.epoch(edges=added([(1, 10)]))
    assert changing.result == {(1, 1, 10): 1}


def test_a_file_that_is_gone_is_told(session: SparkSession, tmp_path: Path) -> None:
    changing = Changing(session, tmp_path, sources, edges=EDGES)
    changing.epoch(edges=added([(1, 2)]))
    (tmp_path / next(iter(changing.state.files()))).unlink()
    with pytest.raises(PySparkException, match="falkirk rollback"):
        changing.flow.whole(changing.state).collect()
