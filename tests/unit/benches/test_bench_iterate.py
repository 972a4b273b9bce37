"""Iterate bench: it reads common forms of graph files, generates graphs, and reports correct results and figures."""

import gzip
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python
from rich.console import Console

from benchmarks.__main__ import bench
from benchmarks.charts import draw_iterate
from benchmarks.edges import Edges, components, drawn_graph, names_of, ranks, read_graph
from benchmarks.iterate import (
    DAMPING,
    TOLERANCE,
    Case,
    Change,
    IterateRun,
    IterateSettings,
    difference,
    figures,
    iterate_table,
)
from benchmarks.report import Report
from falkirk.errors import MachineError
from falkirk.steps.differential.rows import DIFFERENCE

PAIRS = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), min_size=1, max_size=60)


def pairs(graph: Edges) -> list[tuple[int, int]]:
    """Return the edges, the oldest first."""
    return list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


def written(folder: Path, text: str) -> Path:
    """Return a file with a text."""
    file = folder / "graph.txt"
    file.write_text(text)
    return file


# -- reading ----------------------------------------------------------------------------------------------------------


def test_edges_with_times_come_in_their_order(tmp_path: Path) -> None:
    graph = read_graph(written(tmp_path, "1 2 30\n2\t3\t10.5\n3,4,20\n2 3 40\n"))
    assert pairs(graph) == [(2, 3), (3, 4), (1, 2)]
    assert graph.skipped == "repeated edges"
    assert graph.name == "graph"


def test_what_is_no_edge_is_skipped_and_told(tmp_path: Path) -> None:
    graph = read_graph(written(tmp_path, "source target\n# friends\n% more\n1 2\n\n3\nx y\n2 1\n"))
    assert sorted(pairs(graph)) == [(1, 2), (2, 1)]
    assert graph.skipped == "2 comments; 3 lines without an edge (the first: 'source target')"


@pytest.mark.parametrize("first", ["4 3", "4 4 3"])
def test_a_first_line_that_counts_the_others_is_no_edge(tmp_path: Path, first: str) -> None:
    graph = read_graph(written(tmp_path, f"{first}\n1 2\n2 3\n3 4\n"))
    assert sorted(pairs(graph)) == [(1, 2), (2, 3), (3, 4)]
    assert graph.skipped == "a line that counts the others"
    assert read_graph(written(tmp_path, "0 1\n1 2\n")).number == 2, "the numbers are those of nodes"


def test_edges_without_times_are_shuffled_the_same_each_time(tmp_path: Path) -> None:
    file = tmp_path / "ring.txt.gz"
    with gzip.open(file, "wt") as out:
        out.writelines(f"{n} {(n + 1) % 100}\n" for n in range(100))
    graph = read_graph(file)
    assert graph.name == "ring"
    assert pairs(graph) == pairs(read_graph(file))
    assert pairs(graph) != sorted(pairs(graph)) == [(n, (n + 1) % 100) for n in range(100)]


def test_a_file_without_edges_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MachineError) as refused:
        read_graph(written(tmp_path, "nothing here\n"))
    assert refused.value.condition == "INPUT_MISSING"


# -- generating -------------------------------------------------------------------------------------------------------


def test_a_drawn_graph_is_the_same_each_time_and_has_what_was_asked_for() -> None:
    graph = drawn_graph(4_000, seed=3)
    assert pairs(graph) == pairs(drawn_graph(4_000, seed=3))
    assert pairs(graph) != pairs(drawn_graph(4_000, seed=4))
    assert graph.number == len(set(pairs(graph))) == 3_999, "and the bridge"
    assert (graph.src != graph.dst).all()
    degrees = np.sort(np.bincount(np.concatenate((graph.src, graph.dst))))
    assert degrees[-1] > 20 * np.median(degrees), "a few nodes have very many"


def test_only_the_bridge_joins_the_halves() -> None:
    graph = drawn_graph(4_000, seed=3)
    assert graph.bridge is not None
    apart = nx.Graph(pairs(graph))
    one, other = sorted(nx.connected_components(apart), key=len)[-2:]
    assert min(len(one), len(other)) > 0.35 * len(apart)
    assert {graph.bridge[0] in one, graph.bridge[1] in one} == {True, False}
    assert {graph.bridge[0] in other, graph.bridge[1] in other} == {True, False}


# -- in memory --------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(PAIRS)
def test_components_are_those_of_networkx(edges: list[tuple[int, int]]) -> None:
    src, dst = np.array(edges, dtype=np.int64).T
    found = components(src, dst)
    least = {node: min(part) for part in nx.connected_components(nx.Graph(edges)) for node in part}
    assert dict(zip(found.nodes.tolist(), found.values.tolist(), strict=True)) == least


def test_ranks_divided_by_their_sum_are_those_of_networkx() -> None:
    """This holds if each node has a successor. Otherwise networkx spreads the rank of such a node over all nodes."""
    rng = np.random.default_rng(5)
    src, dst = np.concatenate((np.arange(40), rng.integers(0, 40, 200))), rng.integers(0, 40, 240)
    src, dst = np.unique(np.stack((src, dst)), axis=1)
    found = ranks(src, dst, 1e-12)
    graph = nx.DiGraph(list(zip(src.tolist(), dst.tolist(), strict=True)))
    theirs = _pagerank_python(graph, alpha=DAMPING, tol=1e-14)  # the one without scipy
    assert found.rounds > 20
    assert found.values / found.values.sum() == pytest.approx([theirs[n] for n in found.nodes.tolist()], abs=1e-9)


@settings(deadline=None)
@given(PAIRS)
def test_ranks_are_as_near_as_the_tolerance_says(edges: list[tuple[int, int]]) -> None:
    src, dst = np.array(sorted(set(edges)), dtype=np.int64).T
    rough, exact = ranks(src, dst, TOLERANCE), ranks(src, dst, TOLERANCE / 1_000)
    assert rough.rounds <= exact.rounds
    assert not difference(pa.table({"node": rough.nodes, "rank": rough.values}), exact)


def test_a_wrong_result_is_noticed() -> None:
    answer = components(np.array([1, 2, 8]), np.array([2, 3, 9]))
    right = {"node": [9, 3, 2, 1, 8], "component": [8, 1, 1, 1, 8], DIFFERENCE: [1] * 5}
    assert not difference(pa.table(right), answer)
    wrong = difference(pa.table({**right, "component": [8, 1, 2, 1, 8]}), answer)
    assert wrong == "1 of 5 nodes are wrong; node 2 has 2 instead of 1"
    assert "count of a node is not 1" in difference(pa.table({**right, DIFFERENCE: [1, 1, 2, 1, 1]}), answer)
    assert "4 nodes instead of 5" in difference(pa.table(right).slice(1), answer)
    rank = ranks(np.array([1, 2]), np.array([2, 3]), 1e-9)
    assert "1 of 3" in difference(pa.table({"node": rank.nodes, "rank": rank.values + np.array([0, 0, 0.01])}), rank)


# -- reporting --------------------------------------------------------------------------------------------------------


def change(kind: str, edges: int, seconds: float, rounds: int = 5) -> Change:
    return Change(kind=kind, edges=edges, seconds=seconds, rounds=rounds, jobs=rounds + 1)


@pytest.fixture
def run() -> IterateRun:
    measured = [change("load", 990, 8.0, 8), change("split", 1, 3.0)]
    measured += [change(kind, 1, seconds) for seconds in (0.5, 0.4, 1.6) for kind in ("insert", "delete")]
    measured.append(change("insert", 100, 0.1, 0))
    cases = [
        Case(
            graph=f"power_law_{edges}", edges=edges, algorithm=algorithm, changes=measured, recompute_s=4.0,
            recompute_rounds=9, single_s=[0.2, 0.1, 0.3],
        )
        for algorithm in ("components", "pagerank")
        for edges in (1_000, 4_000)
    ]  # fmt: skip
    return IterateRun(report=Report(bench="iterate", settings={}), cases=cases)


def test_of_what_was_repeated_the_median_is_told(run: IterateRun) -> None:
    found = figures(run.cases[0])
    prefix = "power_law_1000_components"
    assert found[f"{prefix}_insert_1_s"] == found[f"{prefix}_delete_1_s"] == 0.5
    assert (found[f"{prefix}_insert_1_s_min"], found[f"{prefix}_insert_1_s_max"]) == (0.4, 1.6)
    assert found[f"{prefix}_insert_1_per_round_s"] == 0.1
    assert found[f"{prefix}_load_rounds"] == 8
    assert found[f"{prefix}_split_jobs"] == 6
    assert found[f"{prefix}_recompute_s"] == 4.0
    assert found[f"{prefix}_single_s"] == 0.2


def test_the_table_has_each_change_of_each_graph(run: IterateRun) -> None:
    table = iterate_table(run.cases)
    assert table.row_count == 4 * (1 + 5)
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(table)
    lines = captured.get().splitlines()
    (inserted,) = [line.split() for line in lines if "insert 1 " in line][:1]
    assert "×8.0" in inserted
    assert not any("…" in line for line in lines), "it fits into 80 columns"
    assert "0.10" in inserted, "seconds per round"
    assert "–" in next(line for line in lines if "insert 100" in line), "there was nothing to do in the loop"


def test_the_chart_needs_nothing_that_was_not_measured(run: IterateRun, tmp_path: Path) -> None:
    assert draw_iterate(run, tmp_path).stat().st_size > 10_000
    run.cases = run.cases[:1]
    assert draw_iterate(run, tmp_path).stat().st_size > 5_000


def test_names_in_figures_are_apart() -> None:
    graph = drawn_graph(100, seed=1)
    graphs = [Edges(name=name, src=graph.src, dst=graph.dst) for name in ("soc-Epinions", "soc_epinions", "b")]
    assert names_of(graphs) == ["soc_epinions", "soc_epinions_2", "b"]


def test_quick_is_less_and_inputs_are_measured_besides(tmp_path: Path) -> None:
    quick, full = IterateSettings.quick((tmp_path,)), IterateSettings()
    assert quick.edges == full.edges[:1]
    assert quick.inputs == (tmp_path,)
    assert all(quick.repeated[name] < full.repeated[name] for name in full.repeated)
    assert CliRunner().invoke(bench, ["iterate", "--input", str(tmp_path / "none")]).exit_code == 2
