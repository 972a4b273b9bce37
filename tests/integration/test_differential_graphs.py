"""Graphs as they are: after each epoch of edges that come and go, each algorithm says what networkx does."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from falkirk.differential import Collection, connected_components, pagerank, shortest_paths
from tests.integration.changing import EDGES, Changing, Row, added, components, taken, there

DATA = Path(__file__).parents[2].parent / "shared" / "data"
#: Of a file, so many edges; from that many on they come and go, the oldest first.
EDGES_MAX, HELD = 1_500, 1_200


@pytest.fixture(params=["facebook-friends.txt", "college-messages.txt", "drawn"])
def graph(request: pytest.FixtureRequest) -> list[Row]:
    """The edges of a graph, each once, in the order in which they came."""
    if request.param == "drawn":
        edges = nx.barabasi_albert_graph(400, 4, seed=6).edges
        return [(int(b), int(a)) for a, b in edges][:EDGES_MAX]
    file = DATA / request.param
    if not file.exists():
        pytest.skip(f"it needs {file.name}, which is not here")
    lines = (line.split() for line in file.read_text().splitlines())
    found = dict.fromkeys((int(a), int(b)) for a, b, *_ in lines if a != b)
    return list(found)[:EDGES_MAX]


def epochs(graph: list[Row]) -> Iterator[list[Row]]:
    """Yield what comes and goes in each epoch."""
    yield added(graph[:HELD])
    yield added(graph[HELD : HELD + 150])
    yield taken(graph[:200])
    yield added(graph[HELD + 150 :]) + taken(graph[200:210])


def test_components(session: SparkSession, tmp_path: Path, graph: list[Row]) -> None:
    changing = Changing(session, tmp_path, connected_components, edges=EDGES)
    for changes in epochs(graph):
        assert changing.epoch(edges=changes).rounds[0].converged
        assert changing.result == components(there(changing.put["edges"]))


def test_shortest_paths(session: SparkSession, tmp_path: Path, graph: list[Row]) -> None:
    def hops(edges: Collection, sources: Collection) -> Collection:
        return shortest_paths(edges.select("src", "dst", F.lit(1).alias("length")), sources)

    changing = Changing(session, tmp_path, hops, edges=EDGES, sources="node LONG")
    start = graph[0][0]
    for number, changes in enumerate(epochs(graph)):
        changing.epoch(edges=changes, sources=[] if number else added([(start,)]))
        far = nx.DiGraph([(start, start), *there(changing.put["edges"])])
        assert changing.result == Counter(nx.single_source_shortest_path_length(far, start).items())


def test_ranks(session: SparkSession, tmp_path: Path, graph: list[Row]) -> None:
    tolerance, damping = 1e-3, 0.7
    changing = Changing(session, tmp_path, lambda e: pagerank(e, damping=damping, tolerance=tolerance), edges=EDGES)
    for changes in epochs(graph):
        assert changing.epoch(edges=changes).rounds[0].converged
        wanted = _pagerank_python(nx.DiGraph(there(changing.put["edges"])), alpha=damping, tol=1e-12, max_iter=1_000)
        ranks = dict(changing.result.keys())
        assert ranks.keys() == wanted.keys()
        whole, bound = sum(ranks.values()), 2.1 * tolerance / (1 - damping)
        far = {node: abs(rank / whole - wanted[node]) / wanted[node] for node, rank in ranks.items()}
        assert max(far.values()) <= bound


def test_ranks_of_some_nodes_are_those_of_the_edges_between_them(session: SparkSession, tmp_path: Path) -> None:
    changing = Changing(
        session, tmp_path, lambda edges, some: pagerank(edges, tolerance=1e-6, nodes=some),
        edges=EDGES, some="node LONG",
    )  # fmt: skip
    for some in (added([(1,), (2,)]), added([(3,)]), taken([(2,)])):
        changing.epoch(edges=added([(1, 2), (2, 1), (1, 3), (3, 9)]) if not changing.put["edges"] else [], some=some)
        nodes = {n for (n,) in there(changing.put["some"])}
        inside = nx.DiGraph()
        inside.add_nodes_from(nodes)
        inside.add_edges_from((a, b) for a, b in there(changing.put["edges"]) if {a, b} <= nodes)
        ranks, wanted = dict(changing.result.keys()), _pagerank_python(inside, tol=1e-12, max_iter=1_000)
        assert ranks.keys() == wanted.keys()
        assert all(abs(rank / sum(ranks.values()) - wanted[n]) < 1e-4 for n, rank in ranks.items())
