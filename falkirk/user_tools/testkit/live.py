"""Live: a live region in memory, as a RegionPort. It processes input when the test asks it to."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from falkirk.declare.policy import Delivery
from falkirk.plan.region import Region
from falkirk.recovery.decision_store import Store
from falkirk.recovery.protocol.ports import Checkpoint, Health, LogRange
from falkirk.runtime.spark.live.epochs_read import EpochsRead, as_positions
from falkirk.theory.frontier import Frontier, OffsetFrontier
from falkirk.theory.ids import INITIAL, BatchId, CheckpointNumber, EpochNumber, Incarnation, LogId, Offset
from falkirk.user_tools.testkit.chunks import ChunkSteps
from falkirk.user_tools.testkit.steps import LiveSteps, RegionResult
from falkirk.user_tools.testkit.world import Chunk, MemoryRecord, Saved, World

#: The place of a result: its offset in the input, and its sub-indexes.
_Place = tuple[int, ...]
_BEFORE: _Place = ()
_Places = Mapping[int, _Place]
"""The greatest place of the results of each source."""


@dataclass(slots=True, kw_only=True)
class _Incarnation:
    """One run. Args: main, dead: the greatest places that are published. A replay does not publish up to these."""

    number: Incarnation
    read: tuple[Offset, ...]
    state: Any
    main: _Places
    dead: _Places


class MemoryRegion:
    """A live region. It is dead until `start`, and a crash of the application ends it."""

    def __init__(self, region: Region, world: World, store: Store, steps: LiveSteps | ChunkSteps) -> None:
        self.region, self._world, self._store, self._steps = region, world, store, steps
        self._sources, self._output = tuple(s.topic.log for s in region.sources), region.output.log
        initial = Saved(read=(Offset(0),) * len(self._sources), sent=Offset(0))
        self.saved = world.saved.setdefault(region.name, {INITIAL: initial})
        self._running: _Incarnation | None = None
        self._epochs_read = EpochsRead(region.name, store, [view.log for view in region.views])

    # -- actions that the test requests ------------------------------------------------------------------------------

    def step(self) -> bool:
        """Process all waiting input; return whether there was any. Raises: Crash."""
        run, world = self._running, self._world
        ends = tuple(map(world.end, self._sources))
        if run is None or run.read == ends:
            return False
        chunk = self._chunk(run.read, ends) if isinstance(self._steps, ChunkSteps) else None
        ends = ends if chunk is None else chunk.ends
        skipped = world.skipped.get(self.region.name, set())
        records = []
        for source, read, end in zip(self._sources, run.read, ends, strict=True):
            left_out = self._void(source) | skipped
            records.append([each for each in world.since(source, read) if each[0] < end and each[0] not in left_out])
        found, state = list[RegionResult](), run.state
        if any(records):
            if isinstance(self._steps, LiveSteps):
                found, state = self._steps.compute(records[0], state, run.number, records[1:])
            elif chunk is not None:
                found, state = self._steps.compute(chunk, records, state, run.number)
        for each in found:
            if each.stamp[2:] > (run.dead if each.is_dead else run.main).get(each.stamp[0], _BEFORE):
                topic = self.region.dead_letter_topic if each.is_dead else self._output
                now_us = round(world.time() * 1e6)
                world.append(topic, MemoryRecord(key=each.key, value=each.value, timestamp_us=now_us, stamp=each.stamp))
        run.read, run.state = ends, state
        return True

    def _chunk(self, read: tuple[Offset, ...], ends: tuple[Offset, ...]) -> Chunk:
        """Return the chunk that follows what is read: as before a crash, or up to the present ends.

        With at-most-once delivery it is one record of its only source.
        """
        known = self._world.chunks.setdefault(self.region.name, [])
        for chunk in known:
            if chunk.ends != read and all(map(int.__ge__, chunk.ends, read)):
                return chunk
        source = next(number for number, end in enumerate(ends) if end > read[number])
        if self.region.delivery is Delivery.AT_MOST_ONCE:  # the stamps of its results tell which input took effect
            ends = (Offset(read[0] + 1),)
        known.append(Chunk(ends=ends, source=source, offset=Offset(ends[source] - 1), at_s=self._world.time()))
        return known[-1]

    def is_due(self) -> bool:
        """Return whether its interval has passed since its last checkpoint."""
        newest = self.saved[max(self.saved)]
        return self._world.time() - (newest.made_at_s or 0.0) >= self.region.interval_s

    def checkpoint(self) -> None:
        """Save the state. All results of the input in it are published. Raises: Crash."""
        assert self._running is not None, "a region that does not run has no state"
        self._world.write()
        self.saved[CheckpointNumber(max(self.saved) + 1)] = Saved(
            read=self._running.read, sent=self._world.end(self._output), state=self._running.state,
            made_at_s=self._world.time(),
        )  # fmt: skip

    def _void(self, topic: LogId) -> set[Offset]:
        return {Offset(o) for v in self._store.voided_ranges(topic) for o in range(v.first, v.last_exclusive)}

    # -- RegionPort ---------------------------------------------------------------------------------------------------

    def health(self) -> Health:
        """See RegionPort."""
        return Health(runs=self._running is not None)

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """See RegionPort."""
        return tuple(
            Checkpoint(
                number=number, read=self._before(number, 1), sent=OffsetFrontier.prefix(self._output, saved.sent),
                needs=self._before(number, 0) if self.region.views else None, made_at_s=saved.made_at_s,
            )
            for number, saved in sorted(self.saved.items())
        )  # fmt: skip

    def _before(self, number: CheckpointNumber, more: int) -> OffsetFrontier:
        """Return the end of the input of a checkpoint. Args: more: of its views, as of `as_positions`."""
        positions = {source: {0: read} for source, read in zip(self._sources, self.saved[number].read, strict=True)}
        epochs = self._epochs_read.upto(number) if self.region.views else {}
        return OffsetFrontier.before(positions | as_positions(epochs, more))

    def note_epochs(self, epochs: Mapping[LogId, EpochNumber]) -> None:
        """Note epochs of its views before it reads them. Raises: Crash."""
        self._epochs_read.note(BatchId(max(self.saved) + 1), epochs)

    def cuts(self, after: EpochNumber) -> Sequence[tuple[EpochNumber, OffsetFrontier]]:
        """See RegionPort."""
        return ()

    def fence(self) -> None:
        """See RegionPort."""
        self._running = None

    def beyond(self, number: CheckpointNumber, upto: Frontier) -> tuple[LogRange, ...]:
        """See RegionPort."""
        assert isinstance(upto, OffsetFrontier), "a live region counts in offsets"
        saved, void = self.saved[number], self._void(self._output)
        covered = [max(read, upto.length_of(source)) for source, read in zip(self._sources, saved.read, strict=True)]
        return tuple(
            (self._output, 0, offset, Offset(offset + 1))
            for offset, record in self._world.since(self._output, saved.sent)
            if offset not in void and record.stamp[2] >= covered[record.stamp[0]]
        )

    def rewind(self, number: CheckpointNumber) -> None:
        """See RegionPort."""
        for later in [n for n in self.saved if n > number]:
            del self.saved[later]

    def start(self, number: CheckpointNumber) -> None:
        """See RegionPort."""
        saved, void = self.saved[number], self._void(self._output)
        is_first = not self._store.incarnations(self.region.name)
        incarnation = self._store.open_incarnation(self.region.name, number)
        sent = (r for o, r in self._world.since(self._output, saved.sent) if o not in void)
        dead, main = _greatest(self._world.topic(self.region.dead_letter_topic)), _greatest(sent)
        if self.region.repeats:
            dead = main = {}
        if self.region.delivery is Delivery.AT_MOST_ONCE and not is_first:
            (source,), (read,) = self._sources, saved.read  # the plan refuses it for several
            reached = max(main.get(0, _BEFORE)[:1] + dead.get(0, _BEFORE)[:1], default=-1)
            downtime = range(max(reached + 1, read), self._world.end(source))
            self._world.skipped.setdefault(self.region.name, set()).update(map(Offset, downtime))
        self._running = _Incarnation(number=incarnation, read=saved.read, state=saved.state, main=main, dead=dead)

    def keep_only(self, numbers: Sequence[CheckpointNumber]) -> None:
        """See RegionPort."""
        for old in [n for n in self.saved if n < numbers[-1] and n not in numbers]:
            del self.saved[old]
        if self.region.views:
            self._epochs_read.keep_from(min(self.saved))

    def set_aside(self, numbers: Sequence[CheckpointNumber]) -> None:
        """See RegionPort. Nobody else deletes them."""


def _greatest(records: Iterable[MemoryRecord]) -> _Places:
    greatest: dict[int, _Place] = {}
    for record in records:
        source, _, *place = record.stamp
        greatest[source] = max(greatest.get(source, _BEFORE), tuple(place))
    return greatest
