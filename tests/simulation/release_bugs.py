"""Planted bugs of releases: each publishes results too early, twice, or never. See bugs.py."""

from dataclasses import replace

import pytest

from falkirk.recovery.protocol.layout import Layout, cutter_name
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.recovery.protocol.sinks import Sinks
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import LogId
from falkirk.theory.metadata import Anywhere, Available
from falkirk.theory.times import TopicPartition
from tests.simulation.world import World

Patch = pytest.MonkeyPatch


def released_on_arrival(patch: Patch) -> None:
    """Results that may become invalid are released at once, as if everything were deterministic."""

    def restorable(self: Layout) -> dict[str, Available]:
        return {p.name: Anywhere(discards=p.name.startswith(cutter_name(""))) for p in self.processors}

    patch.setattr(Layout, "restorable", restorable)


def released_without_looking(patch: Patch) -> None:
    """An interrupted release is repeated from its beginning."""
    as_it_is = World.copy

    def copy(self: World, held: str, sink: str, first: OffsetFrontier, last: OffsetFrontier) -> OffsetFrontier:
        if held in self.epochs:
            return as_it_is(self, held, sink, first, last)
        void = self.voided(held)
        for e, log in self.partitions(held):
            target = self.logs[TopicPartition(topic=sink, partition=e.partition)]
            for offset in range(int(first.length(e)), int(last.length(e))):
                if offset not in void[e]:
                    self.call()
                    target.elements.append(replace(log.read(offset), stamp=(held, e.partition, offset, 0)))
        self.call()
        return last

    patch.setattr(World, "copy", copy)


def recorded_before_it_is_released(patch: Patch) -> None:
    """A release is written down first; cut off in between, it never happens."""
    feed, copy = RecoveryProtocol._release, Sinks.copy

    def release(self: RecoveryProtocol) -> None:
        later: list[tuple[LogId, OffsetFrontier, OffsetFrontier]] = []

        def copied(sinks: Sinks, held: LogId, first: OffsetFrontier, last: OffsetFrontier) -> OffsetFrontier:
            later.append((held, first, last))
            return last

        with pytest.MonkeyPatch.context() as within:
            within.setattr(Sinks, "copy", copied)
            feed(self)
        for what in later:
            copy(self.sinks, *what)

    patch.setattr(RecoveryProtocol, "_release", release)


def the_sink_is_not_asked(patch: Patch) -> None:
    """A rollback on request does not know the results that an interrupted release has published."""
    patch.setattr(World, "copied", lambda world, held, sink: OffsetFrontier(()))
