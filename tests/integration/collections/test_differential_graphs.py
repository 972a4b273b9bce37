"""Graphs, in the soak also those of people: after each epoch of added and removed edges, each algorithm gives the same
result as networkx."""

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from falkirk.steps.differential import Collection, connected_components, graphs, pagerank, shortest_paths
from falkirk.steps.differential.jobs import Jobs
from falkirk.steps.differential.task import FileName
from tests.integration.changing import EDGES, Changing, Row, Rows, added, components, taken, there

DATA = Path(__file__).parents[3].parent / "shared" / "data"
#: The number of edges that are read of a file. A larger one, as in FALKIRK_EDGES_MAX=100000 for all, is a soak.
EDGES_MAX = int(os.environ.get("FALKIRK_EDGES_MAX", "1500"))
#: By how much of itself a rank may move without a change; and the bound of a normalised rank's relative error.
TOLERANCE, DAMPING = 1e-3, 0.7
BOUND = 2.1 * TOLERANCE / (1 - DAMPING)


@pytest.fixture(scope="module")
def drawn() -> list[Row]:
    """The edges of a generated graph, which needs no file."""
    edges, draw = nx.barabasi_albert_graph(max(400, EDGES_MAX // 4), 4, seed=6).edges, random.Random(6)
    return [(int(a), int(b)) if draw.random() < 0.5 else (int(b), int(a)) for a, b in edges][:EDGES_MAX]


#: Graphs of people are a soak.
PEOPLE = ["facebook-friends.txt", "college-messages.txt"]
GRAPHS = ["drawn", *(PEOPLE if "FALKIRK_EDGES_MAX" in os.environ else [])]


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest, drawn: list[Row]) -> list[Row]:
    """The distinct edges of a graph, in the order of their arrival."""
    if request.param == "drawn":
        return drawn
    file = DATA / request.param
    if not file.exists():
        pytest.skip(f"it needs {file.name}, which is not here")
    lines = (line.split() for line in file.read_text().splitlines())
    found = dict.fromkeys((int(a), int(b)) for a, b, *_ in lines if a != b)
    return list(found)[:EDGES_MAX]


def epochs(graph: list[Row]) -> Iterator[list[Row]]:
    """Yield the changes of each epoch: four fifths of the edges, then further edges; the oldest are removed."""
    held, more, oldest = len(graph) * 4 // 5, len(graph) // 10, len(graph) * 2 // 15
    yield added(graph[:held])
    yield added(graph[held : held + more])
    yield taken(graph[:oldest])
    yield added(graph[held + more :]) + taken(graph[oldest : oldest + 10])


def test_components(session: SparkSession, tmp_path: Path, graph: list[Row]) -> None:
    changing = Changing(session, tmp_path, connected_components, edges=EDGES)
    for changes in epochs(graph):
        assert changing.epoch(edges=changes).rounds[0].converged
        assert changing.result == components(there(changing.put["edges"]))


def test_nodes_that_begin_later_send_fewer_components(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: list[Row]
) -> None:
    """The state has all components that nodes have received. If all nodes began in the first round, as they do in a
    loop of few rounds, most would send several."""
    received = []
    for rounds in (500, 1_001):
        monkeypatch.setattr(graphs, "_ROUNDS_LATER", rounds)
        changing = Changing(session, tmp_path / str(rounds), connected_components, edges=EDGES)
        changing.epoch(edges=added(drawn))
        assert changing.result == components(drawn)
        names = map(FileName.parse, changing.state.files())
        received.append(sum(name.rows for name in names if name.what == "input0" and name.holder.endswith("-reduced")))
    assert received[0] < 0.75 * received[1]


def hops(edges: Collection, sources: Collection) -> Collection:
    return shortest_paths(edges.select("src", "dst", F.lit(1).alias("length")), sources)


def distances(edges: list[Row], start: int) -> Rows:
    far = nx.DiGraph([(start, start), *edges])
    return Counter(nx.single_source_shortest_path_length(far, start).items())


def test_shortest_paths(session: SparkSession, tmp_path: Path, graph: list[Row]) -> None:
    changing = Changing(session, tmp_path, hops, edges=EDGES, sources="node LONG")
    # The most frequent source of the edges that always stay: it reaches many nodes.
    start = Counter(a for a, _ in graph[len(graph) // 5 : len(graph) * 4 // 5]).most_common(1)[0][0]
    for number, changes in enumerate(epochs(graph)):
        changing.epoch(edges=changes, sources=[] if number else added([(start,)]))
        assert changing.result == distances(there(changing.put["edges"]), start)
        assert len(changing.result) > 30, "there are ways to many"


@pytest.mark.parametrize("sign", [1, -1], ids=["comes", "goes"])
@pytest.mark.parametrize("woken", [True, False])
def test_without_wakes_a_shorter_way_that_comes_or_goes_would_spoil_the_distances(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: int, woken: bool
) -> None:
    """An early change meets the rows that a later round received in the former epoch."""
    take = Jobs._take
    if not woken:
        monkeypatch.setattr(Jobs, "_take", lambda *arguments: {**take(*arguments), "due": ()})
    monkeypatch.setattr(Changing, "alone", 0)
    changing = Changing(session, tmp_path, hops, edges=EDGES, sources="node LONG")
    path, shorter = [(n, n + 1) for n in range(4)], (0, 3)
    changing.epoch(edges=added([*path, shorter] if sign < 0 else path), sources=added([(0,)]))
    assert changing.result == distances(there(changing.put["edges"]), 0)
    changing.epoch(edges=[(*shorter, sign)])
    assert (changing.result == distances(there(changing.put["edges"]), 0)) is woken


def furthest(session: SparkSession, folder: Path, graph: list[Row], tolerance: float) -> Iterator[float]:
    """Yield for each epoch the greatest relative error of a rank."""
    changing = Changing(session, folder, lambda e: pagerank(e, damping=DAMPING, tolerance=tolerance), edges=EDGES)
    for changes in epochs(graph):
        assert changing.epoch(edges=changes).rounds[0].converged
        wanted = _pagerank_python(nx.DiGraph(there(changing.put["edges"])), alpha=DAMPING, tol=1e-12, max_iter=1_000)
        ranks = dict(changing.result.keys())
        assert ranks.keys() == wanted.keys()
        whole = sum(ranks.values())
        yield max(abs(rank / whole - wanted[node]) / wanted[node] for node, rank in ranks.items())


def test_ranks(session: SparkSession, tmp_path: Path, graph: list[Row]) -> None:
    assert max(furthest(session, tmp_path, graph, TOLERANCE)) <= BOUND


def test_ranks_that_are_left_alone_too_soon_would_be_wrong(
    session: SparkSession, tmp_path: Path, drawn: list[Row]
) -> None:
    """A rank's error is limited by the tolerance: ten times the tolerance exceeds the bound."""
    assert max(furthest(session, tmp_path, drawn, 10 * TOLERANCE)) > BOUND


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
