"""Layout: an application as the theory sees it, a graph of regions between logs.

    source log ─▶ region ─▶ log ─▶ region ─▶ held log ─▶ sink log
                        └──▶ region ─▶ sink log

Each region has its own time domain. A live region counts in the offsets of the logs that it reads, a batch in
epochs, and an iteration in epochs and rounds. A batch does not read logs itself: a processor of the graph between the
two, the *cutter*, turns offsets into epochs by the recorded cuts. The log of a batch is a log whose records are epochs.

All results of a region are in a log, so a region never discards a message. A cutter keeps nothing, and reads its input
again. A source log can lose messages, after they were acknowledged. A result that may differ on a replay is
*tentative*, and so is everything computed from it. Tentative results reach a sink only through a held log.

No processor here asks for notifications (N̄ and f_n of Figure 6). A batch is called when its epoch is complete, but the
end of the epoch is a recorded cut, and M̄ of the batch's checkpoint is the whole epoch. So the rule for delivered
messages restricts the batch as much as the rule for notifications would.
Source: Falkirk Wheel, §3.1 (time domains), §3.2 (projections), §3.4 (transformers).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.theory.frontier import EMPTY, Frontier, OffsetFrontier, StructuredFrontier
from falkirk.theory.graph import Edge, Graph, Processor
from falkirk.theory.ids import EpochNumber, LogId
from falkirk.theory.metadata import Anywhere, Available, Checkpoints, Metadata
from falkirk.theory.projection import (
    Cuts,
    Durable,
    Enter,
    EpochsToSequence,
    Feedback,
    InTurn,
    Leave,
    Projection,
    SequenceToEpochs,
)
from falkirk.theory.times import TopicPartition

#: The metadata of at most this many checkpoints is cached.
_POINTS_MAX = 4096


class TimeDomain(StrEnum):
    """The time domain of a region."""

    OFFSETS = "offsets"
    EPOCHS = "epochs"
    ROUNDS = "rounds"

    @property
    def nothing(self) -> Frontier:
        """∅ of this domain."""
        return EMPTY if self is TimeDomain.OFFSETS else StructuredFrontier(1 if self is TimeDomain.EPOCHS else 2, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A region.

    Args:
        times: its time domain.
        inputs, output: logs: topics, or logs of epochs, which are logs of one partition whose records are epochs.
        views: the inputs of which it reads only the newest record, repeatedly.
        deterministic: the same input gives the same output in the same order. Results in a log of epochs never change.
    """

    name: str
    inputs: tuple[LogId, ...]
    output: LogId
    deterministic: bool = True
    views: tuple[LogId, ...] = ()
    times: TimeDomain = TimeDomain.OFFSETS

    @property
    def is_cut(self) -> bool:
        """Whether its input is cut into epochs."""
        return self.times is not TimeDomain.OFFSETS

    def through(self, epoch: EpochNumber) -> Frontier:
        """Return the frontier that a batch or an iteration has reached after all rounds of an epoch; -1: before all."""
        epochs = StructuredFrontier.of(1, [(epoch,)] if epoch >= 0 else [])
        return Enter().fixed(epochs) if self.times is TimeDomain.ROUNDS else epochs

    def results(self) -> Projection:
        """Return the edge from a batch or an iteration to its log."""
        log = EpochsToSequence(TopicPartition(topic=self.output, partition=0))
        return InTurn(Leave(), log) if self.times is TimeDomain.ROUNDS else log

    def epochs(self, cuts: Cuts) -> Projection:
        """Return the edge from the cutter to a batch or an iteration."""
        cutting = SequenceToEpochs(cuts)
        return InTurn(cutting, Enter()) if self.times is TimeDomain.ROUNDS else cutting


@dataclass(frozen=True)
class Layout:
    """The regions of an application and the logs between them.

    Args:
        stages: by name.
        partitions: for each topic, the number of its partitions.
        held: for each held log, the sink's topic to which it is copied.
    """

    stages: Mapping[str, Stage]
    partitions: Mapping[LogId, int]
    held: Mapping[LogId, str]

    def sequences(self, topic: LogId) -> frozenset[TopicPartition]:
        """Return the partitions of a topic."""
        return self._sequences[topic]

    @cached_property
    def _sequences(self) -> dict[LogId, frozenset[TopicPartition]]:
        return {
            topic: frozenset(TopicPartition(topic=topic, partition=p) for p in range(number))
            for topic, number in self.partitions.items()
        }

    def writer(self, topic: LogId) -> Stage | None:
        """Return the region that writes a topic, or None if the topic comes from outside."""
        return next((s for s in self.stages.values() if s.output == topic), None)

    def readers(self, topic: LogId) -> tuple[Stage, ...]:
        """Return the regions that read a topic."""
        return tuple(s for s in self.stages.values() if topic in s.inputs)

    @cached_property
    def sources(self) -> tuple[LogId, ...]:
        """The topics from outside."""
        found = {t for s in self.stages.values() for t in s.inputs if self.writer(t) is None}
        return tuple(sorted(found))

    @cached_property
    def sinks(self) -> tuple[LogId, ...]:
        """The topics to the outside that regions write themselves."""
        return tuple(sorted({s.output for s in self.stages.values()} - set(self.hops)))

    @cached_property
    def hops(self) -> tuple[LogId, ...]:
        """The logs between regions, which nobody else reads."""
        return tuple(sorted(s.output for s in self.stages.values() if self.readers(s.output) or s.output in self.held))

    def edge(self, topic: LogId, reader: str) -> str:
        """Return the name of the edge on which a region, or a sink, reads a topic."""
        return f"{topic} to {reader}"

    @cached_property
    def processors(self) -> tuple[Processor, ...]:
        """The sources, regions, cutters and held sinks."""
        found = [Processor(name=source_name(topic), domain=EMPTY) for topic in self.sources]
        for name, stage in self.stages.items():
            found += [Processor(name=cutter_name(name), domain=EMPTY)] if stage.is_cut else []
            found.append(Processor(name=name, domain=stage.times.nothing))
        return (*found, *(Processor(name=sink_name(held), domain=EMPTY) for held in sorted(self.held)))

    @cached_property
    def batches(self) -> tuple[str, ...]:
        """The regions whose input is cut into epochs."""
        return tuple(name for name, stage in self.stages.items() if stage.is_cut)

    def graph(self, cuts: Mapping[str, Cuts]) -> Graph:
        """Return the processors and the edges between them.

        Args: cuts: for each region whose input is cut into epochs, where. The graph keeps them: they may grow.
        """
        return Graph(self.processors, self._edges(cuts))

    def _edges(self, cuts: Mapping[str, Cuts]) -> Iterator[Edge]:
        for name, stage in self.stages.items():
            for topic in stage.inputs:
                yield self._edge(topic, name, cutter_name(name) if stage.is_cut else name)
            if stage.is_cut:
                yield Edge(
                    name=epochs_name(name), source=cutter_name(name), target=name, domain=stage.times.nothing,
                    projection=stage.epochs(cuts[name]),
                )  # fmt: skip
            if stage.times is TimeDomain.ROUNDS:
                yield Edge(
                    name=_rounds_name(name), source=name, target=name, domain=stage.times.nothing,
                    projection=Feedback(),
                )  # fmt: skip
        for held in sorted(self.held):
            yield self._edge(held, sink_name(held), sink_name(held))

    def _edge(self, topic: LogId, reader: str, target: str) -> Edge:
        writer = self.writer(topic)
        assert writer is not None or topic not in self.held, "a held log is written by a region"
        projection: Projection | None = Durable() if writer is None else None
        if writer is not None and writer.is_cut:
            projection = writer.results()
        return Edge(
            name=self.edge(topic, reader), source=source_name(topic) if writer is None else writer.name, target=target,
            domain=EMPTY, sequences=self.sequences(topic), projection=projection,
        )  # fmt: skip

    def restorable(self) -> dict[str, Available]:
        """Return F*(p) for deciding where to restore and what to release, before any checkpoint (THEORY, end of §2).

        A deterministic region can go back to every checkpoint that its durable inputs still cover, and a source log to
        every record that it holds.
        """
        return {
            p.name: Checkpoints([Metadata(frontier=p.domain)])
            if p.name in self.stages and not self.stages[p.name].deterministic
            else Anywhere(discards=p.name in self._cutters)
            for p in self.processors
        }

    def retained(self) -> dict[str, Available]:
        """Return F*(p) for deciding which data to collect and to acknowledge: only checkpoints.

        A source has discarded the messages that were acknowledged. A sink has accepted the results that it was given.
        """
        return {
            p.name: Anywhere(discards=True)
            if p.name in self._cutters or p.name.startswith(source_name(LogId("")))
            else Checkpoints([Metadata(frontier=p.domain)])
            for p in self.processors
        }

    @cached_property
    def _cutters(self) -> frozenset[str]:
        return frozenset(map(cutter_name, self.batches))

    def metadata(self, stage: str, checkpoint: Checkpoint) -> Metadata:
        """Return Ξ(p,f) of a region's checkpoint."""
        return self._metadata(stage, checkpoint)

    @cached_property
    def _metadata(self) -> Callable[[str, Checkpoint], Metadata]:
        """A cache, because each turn asks about the same checkpoints."""
        return lru_cache(maxsize=_POINTS_MAX)(self._describe)

    def _describe(self, stage: str, checkpoint: Checkpoint) -> Metadata:
        """Return Ξ(p,f).

        The checkpoint of a batch is that of an epoch. That of a live region is one of offsets, and there the
        checkpoint's number is a separate sequence in f. A region without new input makes further checkpoints too,
        and each of them knows more about the sent results.
        """
        mine = self.stages[stage]
        if mine.is_cut:
            at = mine.through(EpochNumber(checkpoint.number))
            edges = [epochs_name(stage)] + [_rounds_name(stage)] * (mine.times is TimeDomain.ROUNDS)
            return Metadata(frontier=at, delivered=dict.fromkeys(edges, at))
        own = TopicPartition(topic=LogId(f"checkpoints:{stage}"), partition=0)
        return Metadata(
            frontier=checkpoint.read | OffsetFrontier.of({own: checkpoint.number + 1}),
            delivered={self.edge(t, stage): cut(checkpoint.read, self, t) for t in mine.inputs},
            projected=dict.fromkeys(self.outputs(stage), checkpoint.sent),
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


def source_name(topic: LogId) -> str:
    """Return the name of the processor that stands for a topic from outside."""
    return f"source {topic}"


def cutter_name(region: str) -> str:
    """Return the name of the processor that cuts the input of a region into epochs."""
    return f"cuts of {region}"


def epochs_name(region: str) -> str:
    """Return the name of the edge on which a region gets its epochs."""
    return f"epochs of {region}"


def _rounds_name(region: str) -> str:
    return f"rounds of {region}"


def sink_name(held: LogId) -> str:
    """Return the name of the processor that stands for the sink of a held log."""
    return f"sink of {held}"


def cut(frontier: OffsetFrontier, layout: Layout, topic: LogId) -> OffsetFrontier:
    """Return the part of a frontier that concerns a topic."""
    return frontier.only(layout.sequences(topic))
