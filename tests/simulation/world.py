"""A simulated world: logs, and regions that compute over them, as unreliable as the real ones.

Durable data (logs, checkpoints) outlives every crash. A record is in flight until it arrives, in the order in which an
incarnation sent records to a partition. A dead region may continue to send and even to compute until it is fenced. If
everything was killed, some records to internal logs arrive even later. The outside deletes acknowledged records, so a
reader that needs one after all is detected.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from falkirk.recovery.decision_store import Store
from falkirk.recovery.protocol.layout import Layout
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import Positions
from falkirk.theory.times import TopicPartition
from tests.simulation.batch import Epoch, SimBatch, copied
from tests.simulation.elements import Element
from tests.simulation.memory import MemoryStore
from tests.simulation.region import SimRegion

AnyStore = Store | MemoryStore


class Crash(Exception):
    """The coordinator's process ends here."""


class NeededRecordGone(AssertionError):
    """Somebody reads a deleted record."""


@dataclass
class Log:
    """A topic's partition. first: all records before it are deleted."""

    elements: list[Element] = field(default_factory=list)
    first: int = 0

    @property
    def end(self) -> int:
        return len(self.elements)

    def read(self, offset: int) -> Element:
        if offset < self.first:
            raise NeededRecordGone(f"offset {offset} of a log that begins at {self.first}")
        return self.elements[offset]


Fence = tuple[int, dict[TopicPartition, int]]


@dataclass
class World:
    """Everything outside the coordinator.

    Args: crash_in: so many calls until the coordinator dies; None: it does not. lag: the share of checkpoints
        that do not know yet which records the region has sent. decided: the number of recoveries so far, if
        somebody counts them. Each may void records, so void ranges are looked up once after each.
    """

    layout: Layout
    rng: random.Random
    now_s: float = 0.0
    crash_in: int | None = None
    lag: float = 0.3
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    #: The epochs of each batch, by its log.
    epochs: dict[str, list[Epoch]] = field(default_factory=dict)
    regions: dict[str, Any] = field(default_factory=dict)
    store: AnyStore = None  # type: ignore[assignment]
    decided: int | None = None
    #: Decides which records arrive late; None: nothing does. Only a kill of everything leaves such records.
    late: random.Random | None = None
    #: How long a dead live region must not be started; None: it may at once.
    backoff: random.Random | None = None
    #: Returns whether a stage's program fails on an element.
    fails: Callable[[str, Element], bool] = lambda stage, element: False
    killed: bool = False
    #: Where each log was found to end when an incarnation of its writer began, and the number of that.
    fences: dict[str, list[Fence]] = field(default_factory=dict)
    _voided: dict[str, tuple[int, dict[TopicPartition, set[int]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for topic, partitions in self.layout.partitions.items():
            for p in range(partitions):
                self.logs[TopicPartition(topic=topic, partition=p)] = Log()
        self.epochs = {stage.output: [] for stage in self.layout.stages.values() if stage.is_cut}
        self.regions = {
            name: SimBatch(self, stage) if stage.is_cut else SimRegion(self, stage)
            for name, stage in self.layout.stages.items()
        }

    def clock(self) -> float:
        return self.now_s

    def call(self) -> None:
        """Count a call of the coordinator, before and after its effect, and crash at the chosen one."""
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in <= 0:
                raise Crash

    def partitions(self, topic: str) -> list[tuple[TopicPartition, Log]]:
        return [(e, self.logs[e]) for e in sorted(self.layout.sequences(topic))]

    # -- LogsPort -----------------------------------------------------------------------------------------------------

    def ends(self, topic: str) -> OffsetFrontier:
        self.call()
        return OffsetFrontier.of(self.readable(topic))

    def readable(self, topic: str) -> dict[TopicPartition, int]:
        """Return where each partition ends for its readers: a log of epochs before the first that is not complete."""
        if topic not in self.epochs:
            return {e: log.end for e, log in self.partitions(topic)}
        (log,) = self.layout.sequences(topic)
        void = self.voided(topic)[log]
        missing = (e.number for e in self.epochs[topic] if e.results is None and e.number not in void)
        return {log: next(missing, len(self.epochs[topic]))}

    def read_epoch(self, log: TopicPartition, number: int) -> list[Element]:
        """Return the results of a complete epoch."""
        if number < self.logs[log].first:
            raise NeededRecordGone(f"epoch {number} of a log that begins at {self.logs[log].first}")
        found = self.epochs[log.topic][number].results
        assert found is not None, "an epoch is read before it is complete"
        return found

    def voided(self, topic: str) -> dict[TopicPartition, set[int]]:
        """Return the offsets that count as nothing."""
        if self.decided is None or self._voided.get(topic, (-1, {}))[0] != self.decided:
            found: dict[TopicPartition, set[int]] = {e: set() for e in self.layout.sequences(topic)}
            for v in self.store.voided_ranges(topic):
                found[TopicPartition(topic=topic, partition=v.partition)].update(range(v.first, v.last_exclusive))
            self._voided[topic] = self.decided or 0, found
        return self._voided[topic][1]

    def is_late(self, e: TopicPartition, offset: int, known: list[Fence]) -> bool:
        """Return whether a record lies after the fence of a later incarnation than its writer's."""
        _, writer = self.logs[e].elements[offset].writer
        return any(writer < number and offset >= ends[e] for number, ends in known)

    def copy(self, held: str, sink: str, first: OffsetFrontier, last: OffsetFrontier) -> OffsetFrontier:
        void = self.voided(held)
        if held in self.epochs:
            return self._copy_epochs(held, sink, first, last)
        for e, log in self.partitions(held):
            target = self.logs[TopicPartition(topic=sink, partition=e.partition)]
            done = max((x.stamp[2] for x in target.elements if x.stamp[0] == held), default=-1)
            for offset in range(max(done + 1, int(first.length(e))), int(last.length(e))):
                if offset not in void[e] and not self.is_late(e, offset, self.fences.get(held, [])):
                    self.call()
                    target.elements.append(replace(log.read(offset), stamp=(held, e.partition, offset, 0)))
        self.call()
        return last

    def _copy_epochs(self, held: str, sink: str, first: OffsetFrontier, last: OffsetFrontier) -> OffsetFrontier:
        (e,) = self.layout.sequences(held)
        target = self.logs[TopicPartition(topic=sink, partition=0)]
        done = max((x.stamp[2] for x in target.elements if x.stamp[0] == held), default=-1)
        for number in range(max(done + 1, int(first.length(e))), int(last.length(e))):
            if number not in self.voided(held)[e]:
                self.call()
                self.read_epoch(e, number)
                target.elements.extend(copied(self.epochs[held][number], held))
        self.call()
        return last

    def sink_ends(self, held: str, sink: str) -> Positions:
        return {}  # the outside loses nothing here: see tests/unit/kafka/test_truncated_sinks.py

    def remains(self, held: str, sink: str, released: OffsetFrontier) -> OffsetFrontier:
        return released

    def copied(self, held: str, sink: str) -> OffsetFrontier:
        self.call()
        found: dict[TopicPartition, float] = {}
        for e, log in self.partitions(sink):
            offsets = [x.stamp[2] for x in log.elements if x.stamp[0] == held]
            found[TopicPartition(topic=held, partition=e.partition)] = max(offsets, default=-1) + 1
        return OffsetFrontier.of(found)

    def delete_below(self, topic: str, below: OffsetFrontier) -> None:
        for e, log in self.partitions(topic):
            self.call()
            end = len(self.epochs[topic]) if topic in self.epochs else log.end
            log.first = max(log.first, min(int(below.length(e)), end))

    def acknowledge(self, topic: str, upto: OffsetFrontier) -> None:
        self.delete_below(topic, upto)
