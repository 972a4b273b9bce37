"""Watermarks: how far no failure can take a region back, kept up to date as checkpoints and cuts are recorded.

There are two. The *restorable* watermark decides what to release. It takes into account that deterministic regions can
replay their logs. The *retained* watermark counts checkpoints only, and decides what to delete and to acknowledge.
Source: Falkirk Wheel, §4.2 (monitor).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from falkirk.recovery.protocol.layout import Layout, epochs_name, sink_name
from falkirk.recovery.protocol.marks import Marks
from falkirk.recovery.protocol.ports import Checkpoint, RegionPort
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.graph import Edge
from falkirk.theory.ids import CheckpointNumber, EpochNumber, LogId
from falkirk.theory.metadata import Anywhere, Metadata
from falkirk.theory.monitor import Monitor
from falkirk.theory.projection import Cuts
from falkirk.theory.times import Natural


class Watermarks:
    """The watermarks of one application.

    Args: as of `RecoveryProtocol`; marks: the marks of its regions.
    Attributes: checkpoints: those of each region that are known. restorable, retained: the monitors.
    """

    def __init__(
        self, layout: Layout, regions: Mapping[str, RegionPort], marks: Marks, live: Collection[str], spare: int
    ) -> None:
        self.layout, self._regions, self._marks, self._live, self._spare = layout, regions, marks, live, spare
        self._forget()

    def _forget(self) -> None:
        self.checkpoints: dict[str, tuple[Checkpoint, ...]] = {}
        #: For each region, the newest checkpoint that each monitor knows.
        self._restorable_to: dict[str, CheckpointNumber] = {}
        self._retained_to: dict[str, CheckpointNumber] = {}
        self._cuts = {name: Cuts() for name in self.layout.batches}
        graph = self.layout.graph(self._cuts)
        self.restorable = Monitor(graph, self.layout.restorable())
        self.retained = Monitor(graph, self.layout.retained())

    def take_in(self, names: Iterable[str]) -> None:
        """Give the monitors the new checkpoints, considering that some of these may turn out to be damaged."""
        for name in names:
            checkpoints = self.checkpoints[name] = self._regions[name].checkpoints()
            self._take_in_cuts(name)  # read after the checkpoints, and known before them: the epochs of the checkpoints
            self._marks.take_in(name, checkpoints)
            for metadata in self._new(name, checkpoints, self._restorable_to, self._may_lose(name)):
                self._feed_restorable(name, metadata)
            # The kept checkpoints contain a consistent state even if each live region loses one of them.
            for metadata in self._new(
                name, checkpoints, self._retained_to, max(int(name in self._live), self._may_lose(name))
            ):
                self.retained.add_checkpoint(name, metadata)

    def _take_in_cuts(self, name: str) -> None:
        """Give the monitors the new cuts of a batch."""
        if name not in self._cuts:
            return
        known = self._cuts[name]
        found = self._regions[name].cuts(known.epochs[-1] if known.epochs else EpochNumber(-1))
        for epoch, end in found:
            known.add(epoch, end)
        if found:
            self.restorable.extend_projection(epochs_name(name))
            self.retained.extend_projection(epochs_name(name))

    def _may_lose(self, name: str) -> int:
        """Return how many checkpoints of a region may be damaged without a loss of published results.

        A deterministic region computes the same again from an older one, so it can lose any.
        """
        return self._spare if name in self._live and not self.layout.stages[name].deterministic else 0

    def _new(
        self, name: str, checkpoints: tuple[Checkpoint, ...], upto: dict[str, CheckpointNumber], may_lose: int
    ) -> Iterable[Metadata]:
        """Yield the checkpoints that a monitor does not know, if `may_lose` of them may be lost.

        Each one is given the demands of the checkpoint that is `may_lose` later. Where these are met, all checkpoints
        between the two are consistent, and one of them remains after any of these losses.
        """
        for checkpoint, later in zip(checkpoints, checkpoints[may_lose:], strict=False):
            if checkpoint.number > upto.get(name, -2):
                upto[name] = checkpoint.number
                metadata = self.layout.metadata(name, checkpoint)
                if not metadata.frontier.is_empty:  # the initial state is known from the beginning
                    demands = self.layout.metadata(name, later).delivered
                    yield metadata if later is checkpoint else replace(metadata, delivered=demands)

    def _feed_restorable(self, name: str, metadata: Metadata) -> None:
        if isinstance(self.restorable.solution.available[name], Anywhere):
            for edge, fixed in metadata.projected.items():
                self.restorable.add_mark(name, edge, metadata.frontier, fixed)
        else:
            self.restorable.add_checkpoint(name, metadata)

    def begin_again(self, released: Mapping[LogId, OffsetFrontier]) -> None:
        """Give new monitors all checkpoints: a rollback has deleted some, or the monitors have none yet.

        Args: released: as of `take_in_release`, for each held log.
        """
        self._forget()
        for name, marks in self._marks.known.items():
            for mark in marks:
                for edge in self.layout.outputs(name):
                    self.restorable.add_mark(name, edge, mark.read, mark.sent)
        self.take_in(self.layout.stages)
        for held, out in released.items():
            self.take_in_release(held, out)

    def take_in_release(self, held: LogId, out: OffsetFrontier) -> None:
        """Record how much of a held log is published."""
        if not out.is_empty:
            delivered = {self.layout.edge(held, sink_name(held)): out}
            self.retained.add_checkpoint(sink_name(held), Metadata(frontier=out, delivered=delivered))

    def settled(self, held: LogId) -> OffsetFrontier:
        """Return the part of a held log that can no longer become invalid: φ(d)(f_low(src(d)))."""
        return self._settled(self.restorable.solution.graph.inputs[sink_name(held)][0])

    def settled_epochs(self, log: LogId) -> Natural:
        """Return where the part of a batch's log ends that no failure takes back. A live region looks its epochs up."""
        reader = next(stage.name for stage in self.layout.readers(log) if not stage.is_cut)
        edges = self.restorable.solution.graph.inputs[reader]
        return self._settled(next(e for e in edges if e.name == self.layout.edge(log, reader))).length_of(log)

    def _settled(self, edge: Edge) -> OffsetFrontier:
        settled = self.restorable.solution.chosen[edge.source].fixed(edge)
        assert isinstance(settled, OffsetFrontier), "readers of logs count in the offsets of the log"
        return settled

    def forget_below(self) -> None:
        """Forget the metadata that no failure can need any more."""
        for processor in self.layout.processors:
            self.restorable.forget_below(processor.name)
            self.retained.forget_below(processor.name)
