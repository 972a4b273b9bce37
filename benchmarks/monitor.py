"""Monitor bench: measures a solution from scratch, and the arrival of one checkpoint, for applications of growing size.

Applications are generated from a seed: layers of processors, a mix of epochs and sequence numbers, edges forward and
some back, and a mix of policies as in Figure 1. Every processor that saves does so at every epoch, in a new random
order. This is the hardest order: nothing of an epoch is settled before its last checkpoint has arrived.
"""

import math
import random
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from benchmarks.report import Report, percentile
from falkirk.theory.frontier import Frontier, OffsetFrontier, StructuredFrontier
from falkirk.theory.graph import Edge, Graph, Processor
from falkirk.theory.ids import LogId
from falkirk.theory.metadata import Anywhere, Available, Checkpoints, Metadata
from falkirk.theory.monitor import Monitor
from falkirk.theory.rollback import solve
from falkirk.theory.times import TopicPartition
from formal.policy import BATCH, EAGER, EPHEMERAL, LAZY, Policy
from formal.projection import Same

_EPOCHS = StructuredFrontier.of(1, [])
_OFFSETS = OffsetFrontier(())
#: Policies, and the share of each in percent.
_MIX: tuple[tuple[Policy, int], ...] = ((EPHEMERAL, 35), (LAZY, 30), (BATCH, 10), (EAGER, 25))
#: The share of saving processors that count in sequence numbers; the share of all processors that are notified.
_COUNTING, _NOTIFIED = 0.2, 0.1
#: The share of edges that lead back.
_BACK = 0.02
_LAYERS = 50
#: The number of messages on an edge per epoch, if they are counted.
_PER_EPOCH = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSettings:
    """The settings.

    Args: processors: sizes, ascending; figures without a size are of the last one. epochs: checkpoints per processor.
        topology: a file of edges, two names or numbers a line; it replaces the generated edges and is the only size.
    """

    processors: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 100_000)
    edges_per_processor: int = 4
    epochs: int = 2
    seed: int = 1
    topology: Path | None = None

    @classmethod
    def quick(cls, topology: Path | None) -> "MonitorSettings":
        """Return settings that take less than four minutes."""
        return cls(processors=(1_000, 10_000, 100_000), epochs=1, topology=topology)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The measurements of one size: times in seconds, memory in bytes (the peak of the whole process)."""

    processors: int
    edges: int
    solve_empty_s: float
    solve_s: float
    arrivals_s: tuple[float, ...]
    grown: int
    memory_bytes: int


def read_edges(file: Path) -> list[tuple[str, str]]:
    """Return the edges of a file: two names a line, with white space or a comma between. Skip other lines."""
    pairs = (line.replace(",", " ").split() for line in file.read_text().splitlines() if not line.startswith("#"))
    return [(pair[0], pair[1]) for pair in pairs if len(pair) >= 2]


def drawn_edges(rng: random.Random, processors: int, number: int) -> Iterator[tuple[str, str]]:
    """Yield edges from each layer to the next, and a few back. Each processor before the last layer has one."""
    layer = max(1, processors // _LAYERS)
    for i in range(number):
        source = i if i < processors - layer else rng.randrange(processors - layer)
        first = (source // layer + 1) * layer
        target = rng.randrange(first, min(processors, first + layer))
        yield (str(target), str(source)) if rng.random() < _BACK else (str(source), str(target))


class Drawn:
    """An application with random policies. Args: pairs: its edges, by the names of processors."""

    def __init__(self, rng: random.Random, pairs: list[tuple[str, str]]) -> None:
        names = list(dict.fromkeys(name for pair in pairs for name in pair))
        kinds, weights = [p for p, _ in _MIX], [w for _, w in _MIX]
        self.policies = dict(zip(names, rng.choices(kinds, weights, k=len(names)), strict=True))
        saving = [n for n in names if self.policies[n] in (LAZY, EAGER)]
        counting = {n for n in saving if rng.random() < _COUNTING}
        processors = [
            Processor(
                name=n,
                domain=_OFFSETS if n in counting else _EPOCHS,
                notified=n not in counting and rng.random() < _NOTIFIED,
            )
            for n in names
        ]
        edges = []
        for number, (source, target) in enumerate(pairs):
            if target in counting and self.policies[source] not in (LAZY, EAGER):
                continue  # a sender without a count can't say what is fixed on such an edge
            counted = source in counting or target in counting
            log = {TopicPartition(topic=LogId(str(number)), partition=0)} if target in counting else set()
            edges.append(
                Edge(
                    name=str(number), source=source, target=target, projection=None if counted else Same(),
                    domain=_OFFSETS if target in counting else _EPOCHS, sequences=frozenset(log),
                )
            )  # fmt: skip
        self.graph, self.saving, self.counting = Graph(processors, edges), saving, counting
        #: The processors that save at each epoch: state, or the messages that they send.
        self.durable = [n for n in names if self.policies[n] is not EPHEMERAL]

    def available(self) -> dict[str, Available]:
        """Return F*(p) at the beginning."""
        return {name: policy.available(name, self.graph) for name, policy in self.policies.items()}

    def checkpoint(self, name: str, epoch: int) -> Metadata:
        """Return Ξ of a processor that has received and sent messages on every edge at every epoch."""
        inputs, outputs = self.graph.inputs[name], self.graph.outputs[name]
        at = StructuredFrontier.through_epoch(epoch)

        def on(edge: Edge) -> Frontier:
            length = (epoch + 1) * _PER_EPOCH
            return OffsetFrontier.of(dict.fromkeys(edge.sequences, length)) if edge.sequences else at

        delivered = {d.name: on(d) for d in inputs}
        frontier: Frontier = at
        if name in self.counting:
            own = {TopicPartition(topic=LogId(name), partition=0): epoch + 1}
            frontier = OffsetFrontier.of(own)
            for part in delivered.values():
                frontier = frontier | part
        return Metadata(
            frontier=frontier,
            notified=at if self.graph.processors[name].notified else None,
            delivered=delivered,
            projected={e.name: on(e) for e in outputs if e.projection is None},
            discarded={} if self.policies[name].logs_sent else {e.name: on(e) for e in outputs},
        )


class ReachingMonitor(Monitor):
    """A monitor of an application whose logs end somewhere. Falkirk's logs reach as far as their readers have read."""

    def extend_reach(self, processor: str, reach: Frontier) -> tuple[str, ...]:
        """Record that the log of a processor reaches further. Returns: as `add_checkpoint`."""
        available = self.solution.available[processor]
        assert isinstance(available, Anywhere)
        assert available.reach is not None, "it has a log"
        available.reach = available.reach | reach
        variable = self.solution.variables_of(processor)[0]
        return self._raise(self.solution.refusals[variable][:1], [variable])


def measure(pairs: list[tuple[str, str]], epochs: int, seed: int) -> Size:
    """Measure one application. Run it in a separate process, so that its memory can be measured."""
    rng = random.Random(seed)
    drawn = Drawn(rng, pairs)
    available = drawn.available()
    began = time.perf_counter()
    monitor = ReachingMonitor(drawn.graph, available)
    solve_empty_s = time.perf_counter() - began
    arrivals, grown = [], 0
    for epoch in range(epochs):
        order = drawn.durable[:]
        rng.shuffle(order)
        for name in order:
            metadata = drawn.checkpoint(name, epoch)
            logs_only = drawn.policies[name] is BATCH
            began = time.perf_counter()
            if logs_only:
                grown += len(monitor.extend_reach(name, metadata.frontier))
            else:
                grown += len(monitor.add_checkpoint(name, metadata))
            arrivals.append(time.perf_counter() - began)
        for name in drawn.saving:
            monitor.forget_below(name)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    solution = solve(drawn.graph, available)
    assert all(monitor.low_watermark(n) == m.frontier for n, m in solution.chosen.items()), "they must agree"
    return Size(
        processors=len(drawn.graph.processors), edges=len(drawn.graph.edges), solve_empty_s=solve_empty_s,
        solve_s=math.nan, arrivals_s=tuple(arrivals), grown=grown, memory_bytes=memory,
    )  # fmt: skip


def measure_from_scratch(pairs: list[tuple[str, str]], epochs: int, seed: int) -> float:
    """Return the time of the solver without a monitor, as when a coordinator starts. Run it in a separate process."""
    drawn = Drawn(random.Random(seed), pairs)
    available = drawn.available()
    for epoch in range(epochs):
        for name in drawn.durable:
            mine, metadata = available[name], drawn.checkpoint(name, epoch)
            if isinstance(mine, Checkpoints):
                mine.add(metadata)
            elif mine.reach is not None:
                mine.reach = mine.reach | metadata.frontier
    began = time.perf_counter()
    solve(drawn.graph, available)
    return time.perf_counter() - began


def run_monitor(settings: MonitorSettings, say: Callable[[str], None]) -> tuple[Report, list[Size]]:
    """Measure each size in a separate process. Return the report and the measurements."""
    sizes = []
    if settings.topology is not None:
        cases = [read_edges(settings.topology)]
    else:
        cases = [
            list(drawn_edges(random.Random(settings.seed), n, n * settings.edges_per_processor))
            for n in settings.processors
        ]
    for pairs in cases:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            size = pool.submit(measure, pairs, settings.epochs, settings.seed).result()
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            solve_s = pool.submit(measure_from_scratch, pairs, settings.epochs, settings.seed).result()
        size = replace(size, solve_s=solve_s)
        sizes.append(size)
        say(
            f"{size.processors:,} processors, {size.edges:,} edges: from scratch {size.solve_s:.2f} s, "
            f"a checkpoint {1000 * percentile(sorted(size.arrivals_s), 50):.3f} ms in the median"
        )
    written = {**asdict(settings), "topology": None if settings.topology is None else settings.topology.name}
    report = Report(bench="monitor", settings=written)
    for size in sizes:
        prefix = "" if size is sizes[-1] else f"at_{size.processors}_"
        report.figures |= {
            f"{prefix}processors": size.processors,
            f"{prefix}edges": size.edges,
            f"{prefix}solve_s": round(size.solve_s, 3),
            f"{prefix}solve_without_checkpoints_s": round(size.solve_empty_s, 3),
            f"{prefix}watermarks_grown": size.grown,
            f"{prefix}memory_peak_mib": round(size.memory_bytes / 2**20, 1),
        }
        report.add_latencies(f"{prefix}arrival", size.arrivals_s)
    return report, sizes
