"""Iterate bench: measures the cost of a change to a graph whose components and ranks are incremental.

`python -m benchmarks iterate` compares it with two computations from scratch: DataFrames in the same session, and one
thread in memory, which is the honest lower bound. Edges change in the graph's order: inserted edges were left out of
the load, and deleted ones are the oldest. After each change, the whole result is compared with that of one thread.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks import edges as memory
from benchmarks import recompute
from benchmarks.edges import Answer, Edges, Numbers
from benchmarks.report import Report
from falkirk.errors import SparkError
from falkirk.spark_setup.partitions import batch_partitions
from falkirk.spark_setup.spark import spark_session
from falkirk.steps.differential import Collection, connected_components, pagerank
from falkirk.steps.differential.files import FlowFiles
from falkirk.steps.differential.flow import Advanced, Flow
from falkirk.steps.differential.graph import Scope, Source
from falkirk.steps.differential.rows import DIFFERENCE
from falkirk.steps.differential.state import LoopState, sweep

ALGORITHMS = ("components", "pagerank")
TOLERANCE, DAMPING = 1e-4, 0.85
#: A change of n edges is measured only on graphs with this many times as many edges.
_ROOM = 10
_WARMING = 2_000
#: The exact ranks are computed with a tolerance that is smaller by this factor.
_FINER = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class IterateSettings:
    """The settings.

    Args: edges: sizes of the generated graphs. inputs: files with further graphs. changes: numbers of edges that change
        at once. repeated: how many times each change runs, by algorithm. pagerank_edges_max: the size of the greatest
        graph whose ranks are computed.
    """

    edges: tuple[int, ...] = (100_000, 400_000, 1_600_000)
    inputs: tuple[Path, ...] = ()
    changes: tuple[int, ...] = (1, 100, 1_000)
    repeated: dict[str, int] = field(default_factory=lambda: {"components": 5, "pagerank": 2})
    pagerank_edges_max: int = 400_000
    seed: int = 1

    @classmethod
    def quick(cls, inputs: tuple[Path, ...] = ()) -> "IterateSettings":
        """Return settings that take about four minutes."""
        return cls(edges=(100_000,), inputs=inputs, repeated={"components": 3, "pagerank": 1})


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A measured epoch. Args: kind: load, insert, delete, split or join. edges: the number of changed edges."""

    kind: str
    edges: int
    seconds: float
    rounds: int
    jobs: int


@dataclass(kw_only=True)
class Case:
    """The measurements of one algorithm on one graph.

    Args: recompute_s: DataFrames, on the graph as loaded. single_s: one thread in memory, after each change.
    """

    graph: str
    edges: int
    algorithm: str
    changes: list[Change] = field(default_factory=list)
    recompute_s: float = 0.0
    recompute_rounds: int = 0
    single_s: list[float] = field(default_factory=list)

    def typical(self) -> list[Change]:
        """Return one change of each kind and size, with the medians of its repetitions."""
        groups: dict[tuple[str, int], list[Change]] = {}
        for change in self.changes:
            groups.setdefault((change.kind, change.edges), []).append(change)
        return [
            Change(
                kind=kind,
                edges=edges,
                seconds=median(c.seconds for c in group),
                rounds=round(median(c.rounds for c in group)),
                jobs=round(median(c.jobs for c in group)),
            )
            for (kind, edges), group in groups.items()
        ]


@dataclass(kw_only=True)
class IterateRun:
    """The results of the bench."""

    report: Report
    cases: list[Case] = field(default_factory=list)


def run_iterate(settings: IterateSettings, say: Callable[[str], None]) -> IterateRun:
    """Measure, and return the results. Args: say: receives one line of progress at a time.

    Raises: SparkError: `BENCH_INCOMPLETE`: a result was wrong. MachineError: `INPUT_MISSING`.
    """
    written = {**asdict(settings), "inputs": [file.name for file in settings.inputs], "tolerance": TOLERANCE}
    run = IterateRun(report=Report(bench="iterate", settings=written))
    graphs = [memory.read_graph(file, settings.seed) for file in settings.inputs]
    for graph in graphs:
        say(f"{graph.name}: {graph.number:,} edges" + (f"; skipped: {graph.skipped}" if graph.skipped else ""))
    graphs += [memory.drawn_graph(number, settings.seed) for number in settings.edges]
    graphs = [replace(g, name=n) for g, n in zip(graphs, memory.names_of(graphs), strict=True)]
    spark = _session()
    warming = memory.drawn_graph(_WARMING, settings.seed)
    first = ALGORITHMS[0]
    _measure(spark, warming, first, replace(settings, changes=(1,), repeated={first: 1}), lambda text: None)
    for algorithm in ALGORITHMS:
        for graph in graphs:
            if algorithm == "pagerank" and graph.number > settings.pagerank_edges_max:
                say(f"{graph.name}: skipped ranks, since it has more than {settings.pagerank_edges_max:,} edges")
                continue
            case = _measure(spark, graph, algorithm, settings, say)
            run.cases.append(case)
            run.report.figures |= figures(case)
    return run


def _session() -> SparkSession:
    spark = spark_session("falkirk-bench", master="local[8]").newSession()
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", str(batch_partitions(spark)))
    return spark


def _measure(
    spark: SparkSession, graph: Edges, algorithm: str, settings: IterateSettings, say: Callable[[str], None]
) -> Case:
    folder = Path(tempfile.mkdtemp(prefix="falkirk-bench-"))
    try:
        return _Subject(spark, graph, algorithm, settings, folder).measure(say)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Subject:
    """A graph whose edges change, and its incremental result."""

    def __init__(
        self, spark: SparkSession, graph: Edges, algorithm: str, settings: IterateSettings, folder: Path
    ) -> None:
        self._spark, self._graph, self._folder = spark, graph, folder
        self._partitions = batch_partitions(spark)
        self._case = Case(graph=graph.name, edges=graph.number + (graph.bridge is not None), algorithm=algorithm)
        self._repeated = settings.repeated[algorithm]
        self._sizes = [n for n in settings.changes if n * self._repeated * _ROOM <= graph.number]
        #: The graph contains the edges from the first to before the last, and possibly the bridge.
        self._first, self._last = 0, graph.number - self._repeated * sum(self._sizes)
        self._has_bridge = graph.bridge is not None
        like = spark.createDataFrame([], "src LONG, dst LONG")
        edges = Collection(Source(scope=Scope(), schema=like.schema, name="edges"), like)
        declared = connected_components(edges) if algorithm == "components" else pagerank(edges, DAMPING, TOLERANCE)
        self._flow = Flow(declared.graph(), spark, FlowFiles(folder / "flow"), self._partitions)
        self._state = LoopState()

    def measure(self, say: Callable[[str], None]) -> Case:
        """Load the graph, compute it from scratch, and then measure the changes."""
        case, graph = self._case, self._graph
        file = self._folder / "edges.parquet"
        pq.write_table(_rows(*self._there(), 1), file)
        there = self._spark.read.parquet(str(file))
        self._advance("load", self._last - self._first + self._has_bridge, there)
        self._again(there.drop(DIFFERENCE))
        say(
            f"{case.algorithm} of {graph.name}: loaded in {case.changes[0].seconds:.1f} s, from scratch in "
            f"{case.recompute_s:.1f} s, by one thread in {case.single_s[0]:.2f} s"
        )
        if graph.bridge is not None and case.algorithm == "components":
            self._turn_bridge("split", -1)
            self._turn_bridge("join", 1)
        for _ in range(self._repeated):
            for size in self._sizes:
                self._put(size)
                self._take(size)
        for change in case.typical()[1:]:
            say(f"  {change.kind} {change.edges:,}: {change.seconds:.2f} s, {change.rounds} rounds")
        return case

    def _turn_bridge(self, kind: str, difference: int) -> None:
        assert self._graph.bridge is not None
        self._has_bridge = difference > 0
        src, dst = (np.array([end]) for end in self._graph.bridge)
        self._advance(kind, 1, self._spark.createDataFrame(_rows(src, dst, difference)))

    def _put(self, size: int) -> None:
        some = slice(self._last, self._last + size)
        self._last += size
        rows = _rows(self._graph.src[some], self._graph.dst[some], 1)
        self._advance("insert", size, self._spark.createDataFrame(rows))

    def _take(self, size: int) -> None:
        some = slice(self._first, self._first + size)
        self._first += size
        rows = _rows(self._graph.src[some], self._graph.dst[some], -1)
        self._advance("delete", size, self._spark.createDataFrame(rows))

    def _there(self) -> tuple[Numbers, Numbers]:
        """Return the present edges."""
        src, dst = (ends[self._first : self._last] for ends in (self._graph.src, self._graph.dst))
        if self._has_bridge and self._graph.bridge is not None:
            src, dst = np.append(src, self._graph.bridge[0]), np.append(dst, self._graph.bridge[1])
        return src, dst

    def _advance(self, kind: str, edges: int, rows: DataFrame) -> None:
        """Compute an epoch, and check its whole result."""
        case = self._case
        began = time.perf_counter()
        advanced: Advanced = self._flow.advance(self._state, {"edges": rows}, f"{len(case.changes)}-{kind}")
        seconds = time.perf_counter() - began
        self._state = advanced.state
        rounds = sum(loop.count for loop in advanced.rounds)
        case.changes.append(Change(kind=kind, edges=edges, seconds=seconds, rounds=rounds, jobs=advanced.jobs))
        began = time.perf_counter()
        answer = self._single()
        case.single_s.append(time.perf_counter() - began)
        self._compare(kind, self._flow.whole(self._state), answer)
        sweep(self._folder / "flow", self._state.files())

    def _again(self, edges: DataFrame) -> None:
        """Compute everything from scratch with DataFrames."""
        case, answer = self._case, self._single()
        began = time.perf_counter()
        if case.algorithm == "components":
            found, case.recompute_rounds = recompute.components(edges, self._partitions)
        else:
            found = recompute.ranks(edges, self._partitions, answer.rounds, DAMPING)
            case.recompute_rounds = answer.rounds
        case.recompute_s = time.perf_counter() - began
        self._compare("recomputation", found, answer)

    def _single(self) -> Answer:
        if self._case.algorithm == "components":
            return memory.components(*self._there())
        return memory.ranks(*self._there(), TOLERANCE, DAMPING)

    def _compare(self, what: str, found: DataFrame, answer: Answer) -> None:
        if self._case.algorithm == "pagerank":
            answer = memory.ranks(*self._there(), TOLERANCE * _FINER, DAMPING)
        wrong = difference(found.toArrow(), answer)
        if wrong:
            raise SparkError(
                "BENCH_INCOMPLETE",
                f"{self._case.algorithm} of {self._graph.name}, {what}: {wrong}.",
                hint="Ignore the figures, since the result is wrong. Please report it.",
            )


def _rows(src: Numbers, dst: Numbers, times: int) -> pa.Table:
    return pa.table({"src": src, "dst": dst, DIFFERENCE: np.full(len(src), times)})


def difference(found: pa.Table, answer: Answer) -> str:
    """Return how a result differs from an answer, in words; empty if it does not. Args: found: rows (node, value).

    Ranks may differ within the tolerance. The errors of all nodes spread as ranks do, so the error of a node is bounded
    by its rank: `tolerance * rank / (1 - damping)`.
    """
    if DIFFERENCE in found.column_names and set(found.column(DIFFERENCE).unique().to_pylist()) - {1}:
        return "the count of a node is not 1"
    nodes, values = (found.column(i).to_numpy() for i in (0, 1))
    order = np.argsort(nodes, kind="stable")
    if not np.array_equal(nodes[order], answer.nodes):
        return f"{len(nodes):,} nodes instead of {len(answer.nodes):,}, or other nodes"
    exact = answer.values
    bound = exact * (TOLERANCE * (1 + _FINER) / (1 - DAMPING)) if exact.dtype.kind == "f" else 0
    wrong = np.abs(values[order] - exact) > bound
    if not wrong.any():
        return ""
    worst = int(np.argmax(np.abs(values[order] - exact) - bound))
    told = f"node {answer.nodes[worst]} has {values[order][worst]} instead of {exact[worst]}"
    return f"{int(wrong.sum()):,} of {len(wrong):,} nodes are wrong; {told}"


# -- report -----------------------------------------------------------------------------------------------------------


def figures(case: Case) -> dict[str, float]:
    """Return the figures of a graph and an algorithm, by stable names."""
    prefix = f"{case.graph}_{case.algorithm}"
    found: dict[str, float] = {
        f"{prefix}_edges": case.edges,
        f"{prefix}_recompute_s": round(case.recompute_s, 3),
        f"{prefix}_recompute_rounds": case.recompute_rounds,
        f"{prefix}_single_s": round(median(case.single_s), 4),
    }
    for change in case.typical():
        name = f"{prefix}_{change.kind}" + (f"_{change.edges}" if change.kind in ("insert", "delete") else "")
        all_s = [c.seconds for c in case.changes if (c.kind, c.edges) == (change.kind, change.edges)]
        found |= {
            f"{name}_s": round(change.seconds, 3),
            f"{name}_s_min": round(min(all_s), 3),
            f"{name}_s_max": round(max(all_s), 3),
            f"{name}_rounds": change.rounds,
            f"{name}_jobs": change.jobs,
            f"{name}_per_round_s": round(change.seconds / max(1, change.rounds), 4),
        }
    return found


def iterate_table(cases: list[Case]) -> Table:
    """Return a table of each change of each graph, with the ratio of the time from scratch to that of the change."""
    table = Table(title="iterate: seconds of a change", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("graph, algorithm,\nchange", no_wrap=True)
    for column in ("seconds", "rounds", "s/round", "jobs", "again", "ratio", "one\nthread"):
        table.add_column(column, justify="right", no_wrap=True)
    for case in cases:
        table.add_row(f"{case.graph},\n{case.algorithm}")
        for change in case.typical():
            per_round = f"{change.seconds / change.rounds:.2f}" if change.rounds else "–"
            table.add_row(
                f"  {change.kind} {change.edges:,}", f"{change.seconds:.2f}", str(change.rounds), per_round,
                str(change.jobs), f"{case.recompute_s:.1f}", f"×{case.recompute_s / change.seconds:.1f}",
                f"{median(case.single_s):.2f}", end_section=change is case.typical()[-1],
            )  # fmt: skip
    return table
