"""Layout: an application as the theory sees it, a graph of regions between logs.

    source log ─▶ region ─▶ log ─▶ region ─▶ held log ─▶ sink log
                        └──▶ region ─▶ sink log

A region's times are the offsets of the logs that it reads. All its results are in a log, so a region never discards a
message. Only a source log can lose messages, after they were acknowledged. A result that may differ on a replay is
*tentative*, and so is everything computed from it. Tentative results reach a sink only through a held log.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from falkirk.protocol.ports import Point
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.graph import Edge, Graph, Processor
from falkirk.theory.metadata import Anywhere, Available, Checkpoints, Metadata
from falkirk.theory.projection import Durable
from falkirk.theory.times import TopicPartition

#: The metadata of at most this many checkpoints is cached.
_POINTS_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A region.

    Args:
        inputs, output: logs: topics, or logs of epochs, which are logs of one partition whose records are epochs.
        views: the inputs of which it reads only the newest record, repeatedly.
        deterministic: the same input gives the same output in the same order. Results in a log of epochs never change.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    deterministic: bool = True
    views: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """The regions of an application and the logs between them.

    Args:
        stages: by name.
        partitions: for each topic, the number of its partitions.
        held: for each held log, the sink's topic to which it is copied.
    """

    stages: Mapping[str, Stage]
    partitions: Mapping[str, int]
    held: Mapping[str, str]

    def sequences(self, topic: str) -> frozenset[TopicPartition]:
        """Return the partitions of a topic."""
        return self._sequences[topic]

    @cached_property
    def _sequences(self) -> dict[str, frozenset[TopicPartition]]:
        return {
            topic: frozenset(TopicPartition(topic=topic, partition=p) for p in range(number))
            for topic, number in self.partitions.items()
        }

    def writer(self, topic: str) -> Stage | None:
        """Return the region that writes a topic, or None if the topic comes from outside."""
        return next((s for s in self.stages.values() if s.output == topic), None)

    def readers(self, topic: str) -> tuple[Stage, ...]:
        """Return the regions that read a topic."""
        return tuple(s for s in self.stages.values() if topic in s.inputs)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The topics from outside."""
        found = {t for s in self.stages.values() for t in s.inputs if self.writer(t) is None}
        return tuple(sorted(found))

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        """The topics to the outside that regions write themselves."""
        return tuple(sorted({s.output for s in self.stages.values()} - set(self.hops)))

    @cached_property
    def hops(self) -> tuple[str, ...]:
        """The logs between regions, which nobody else reads."""
        return tuple(sorted(s.output for s in self.stages.values() if self.readers(s.output) or s.output in self.held))

    def edge(self, topic: str, reader: str) -> str:
        """Return the name of the edge on which a region, or a sink, reads a topic."""
        return f"{topic} to {reader}"

    @cached_property
    def graph(self) -> Graph:
        """The processors (sources, regions, held sinks) and the edges between them."""
        names = [*map(source_name, self.sources), *self.stages, *map(sink_name, sorted(self.held))]
        edges = []
        for stage in self.stages.values():
            for topic in stage.inputs:
                writer = self.writer(topic)
                edges.append(self._edge(topic, stage.name, source_name(topic) if writer is None else writer.name))
        for held in sorted(self.held):
            writer = self.writer(held)
            assert writer is not None, "a held log is written by a region"
            edges.append(self._edge(held, sink_name(held), writer.name))
        return Graph([Processor(name=n, domain=EMPTY) for n in names], edges)

    def _edge(self, topic: str, reader: str, writer: str) -> Edge:
        return Edge(
            name=self.edge(topic, reader), source=writer, target=reader, domain=EMPTY, sequences=self.sequences(topic),
            projection=Durable() if self.writer(topic) is None else None,
        )  # fmt: skip

    def restorable(self) -> dict[str, Available]:
        """Return F*(p) for deciding where to restore and what to release, before any checkpoint (THEORY, end of §2).

        A deterministic region can go back to every point that its durable inputs still cover, and a source log to every
        record that it holds.
        """
        return {
            name: Anywhere(discards=False)
            if name not in self.stages or self.stages[name].deterministic
            else Checkpoints([Metadata(frontier=EMPTY)])
            for name in self.graph.processors
        }

    def retained(self) -> dict[str, Available]:
        """Return F*(p) for deciding which data to collect and to acknowledge: only checkpoints.

        A source has discarded the messages that were acknowledged. A sink has accepted the results that it was given.
        """
        return {
            name: Anywhere(discards=True)
            if name.startswith(source_name(""))
            else Checkpoints([Metadata(frontier=EMPTY)])
            for name in self.graph.processors
        }

    def metadata(self, stage: str, point: Point) -> Metadata:
        """Return Ξ(p,f) of a region's checkpoint."""
        return self._metadata(stage, point)

    @cached_property
    def _metadata(self) -> Callable[[str, Point], Metadata]:
        """A cache, because each turn asks about the same points."""
        return lru_cache(maxsize=_POINTS_MAX)(self._describe)

    def _describe(self, stage: str, point: Point) -> Metadata:
        """Return Ξ(p,f).

        The checkpoint's number is a separate sequence in f. A region without new input makes further checkpoints too,
        and each of them knows more about the sent results.
        """
        mine = self.stages[stage]
        own = TopicPartition(topic=f"checkpoints of {stage}", partition=0)
        return Metadata(
            frontier=point.read | OffsetFrontier.of({own: point.number + 1}),
            delivered={self.edge(t, stage): cut(point.read, self, t) for t in mine.inputs},
            projected=dict.fromkeys(self.outputs(stage), point.sent),
        )

    def outputs(self, stage: str) -> tuple[str, ...]:
        """Return the names of the edges on which others read a region's results."""
        return self._outputs[stage]

    @cached_property
    def _outputs(self) -> dict[str, tuple[str, ...]]:
        found = {}
        for name, stage in self.stages.items():
            readers = [s.name for s in self.readers(stage.output)]
            if stage.output in self.held:
                readers.append(sink_name(stage.output))
            found[name] = tuple(self.edge(stage.output, reader) for reader in readers)
        return found


def source_name(topic: str) -> str:
    """Return the name of the processor that stands for a topic from outside."""
    return f"source {topic}"


def sink_name(held: str) -> str:
    """Return the name of the processor that stands for the sink of a held log."""
    return f"sink of {held}"


def cut(frontier: OffsetFrontier, layout: Layout, topic: str) -> OffsetFrontier:
    """Return the part of a frontier that concerns a topic."""
    return frontier.only(layout.sequences(topic))
