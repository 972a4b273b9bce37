"""Logs: the topics of an application under test, as the LogsPort of the recovery protocol."""

from dataclasses import replace

from falkirk.recovery.decision_store import Store
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import LogId, Offset, Positions
from falkirk.user_tools.testkit.world import World


class MemoryLogs:
    """The topics of a world. Each has one partition, and its records never expire."""

    def __init__(self, world: World, store: Store) -> None:
        self._world, self._store = world, store

    def ends(self, topic: LogId) -> OffsetFrontier:
        """See LogsPort."""
        return OffsetFrontier.prefix(topic, self._world.end(topic))

    def copy(self, held: LogId, sink: str, first: OffsetFrontier, last: OffsetFrontier) -> OffsetFrontier:
        """See LogsPort. Raises: Crash: between two records."""
        begin, end = (self.copied(held, sink) | first).length_of(held), last.length_of(held)
        void = {o for v in self._store.voided_ranges(held) for o in range(v.first, v.last_exclusive)}
        for offset, record in self._world.since(held, Offset(int(begin))):
            if offset < end and offset not in void:
                self._world.append(LogId(sink), replace(record, stamp=(offset,)))
        return OffsetFrontier.prefix(held, max(begin, end))

    def copied(self, held: LogId, sink: str) -> OffsetFrontier:
        """See LogsPort."""
        last = self._world.topic(LogId(sink))[-1:]
        return OffsetFrontier.prefix(held, Offset(last[0].stamp[0] + 1 if last else 0))

    def sink_ends(self, held: LogId, sink: str) -> Positions:
        """See LogsPort."""
        return {LogId(sink): {0: self._world.end(LogId(sink))}}

    def remains(self, held: LogId, sink: str, released: OffsetFrontier) -> OffsetFrontier:
        """See LogsPort."""
        return released

    def delete_below(self, topic: LogId, below: OffsetFrontier) -> None:
        """See LogsPort. A test may still want to see the records."""

    def acknowledge(self, topic: LogId, upto: OffsetFrontier) -> None:
        """See LogsPort. Nobody outside waits for it."""
