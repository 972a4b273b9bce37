"""A simulated live region: it reads one element at a time, and its records are in flight for a while."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from falkirk.recovery.protocol.layout import Stage
from falkirk.recovery.protocol.ports import Checkpoint, Health, LogRange
from falkirk.theory.frontier import Frontier, OffsetFrontier
from falkirk.theory.times import TopicPartition
from tests.simulation.elements import Element, compute, partition_of

if TYPE_CHECKING:
    from tests.simulation.world import Fence, World

#: A region that has not got on for so long is brought back.
HUNG_AFTER_S = 30.0
BACKOFF_S = 10.0


@dataclass
class Incarnation:
    """One run of a region. outbox: records that it has sent and that have not arrived yet, oldest first."""

    number: int
    read: dict[TopicPartition, int]
    state: dict[str, str]
    released: set[tuple[str, int, int, int]]
    void: dict[TopicPartition, set[int]]
    fences: "list[Fence]"
    outbox: list[tuple[TopicPartition, Element]] = field(default_factory=list)


@dataclass
class Saved:
    """A checkpoint on disk. whole: its files look as they should. loads: its state does, which only a start tells."""

    read: dict[TopicPartition, int]
    state: dict[str, str]
    sent: dict[TopicPartition, int]
    made_at_s: float | None
    whole: bool = True
    loads: bool = True
    _checkpoint: Checkpoint | None = None

    def point(self, number: int) -> Checkpoint:
        """Return it as the coordinator sees it. Its content and its number never change."""
        if self._checkpoint is None:
            read, sent = OffsetFrontier.of(self.read), OffsetFrontier.of(self.sent)
            self._checkpoint = Checkpoint(number=number, read=read, sent=sent, made_at_s=self.made_at_s)
        return self._checkpoint


class SimRegion:
    """A region, as RegionPort."""

    stayed = 0

    def __init__(self, world: "World", stage: Stage) -> None:
        self.world, self.stage = world, stage
        self.saved: dict[int, Saved] = {
            -1: Saved(dict.fromkeys(self._inputs(), 0), {}, dict.fromkeys(self._outputs(), 0), None)
        }
        self.running: Incarnation | None = None
        self.lingering: list[Incarnation] = []
        self.incarnations = 0
        self.went_back_to = -1
        self.progressed_at_s = self.ready_at_s = 0.0
        self.stuck = False
        #: Its program has failed on an element.
        self.failed = False
        self.late: list[tuple[TopicPartition, Element]] = []
        self.ends: dict[TopicPartition, int] = {}

    def _inputs(self) -> Iterator[TopicPartition]:
        return (e for t in self.stage.inputs for e in sorted(self.world.layout.sequences(t)))

    def _outputs(self) -> list[TopicPartition]:
        return sorted(self.world.layout.sequences(self.stage.output))

    # -- its own steps ---------------------------------------------------------------------------------------

    def step(self, who: Incarnation) -> bool:
        """Process one element of some input; return whether one was waiting."""
        waiting = [e for e in self._inputs() if who.read[e] < self.world.logs[e].end]
        if who is self.running:
            self.progressed_at_s = self.world.now_s
        if not waiting:
            return False
        e = self.world.rng.choice(waiting)
        offset = who.read[e]
        element = self.world.logs[e].read(offset)
        is_void = offset in who.void[e] or self.world.is_late(e, offset, who.fences)
        if not is_void and self.world.fails(self.stage.name, element):
            if who is self.running:
                self.failed = True
                self.die()
            return False
        who.read[e] = offset + 1
        if is_void:
            return True
        state, sent = compute(self.stage, who.state.get(element.key, ""), element, self.world.rng.randrange(10**6))
        who.state[element.key] = state
        for sub, out in enumerate(sent):
            stamp = (e.topic, e.partition, offset, sub)
            if stamp not in who.released:
                to = partition_of(out.key, self.world.layout.partitions[self.stage.output])
                stamped = replace(out, stamp=stamp, writer=(self.stage.name, who.number))
                who.outbox.append((TopicPartition(topic=self.stage.output, partition=to), stamped))
        return True

    def has_read_all(self, who: Incarnation) -> bool:
        """Return whether nothing is left to do."""
        return all(who.read[e] == self.world.logs[e].end for e in self._inputs())

    def deliver(self, who: Incarnation, number: int) -> None:
        """Let a number of records in flight arrive."""
        for e, element in who.outbox[:number]:
            self.world.logs[e].elements.append(element)
        del who.outbox[:number]

    def deliver_late(self, number: int) -> None:
        """Let a number of records of dead incarnations arrive."""
        for e, element in self.late[:number]:
            self.world.logs[e].elements.append(element)
        del self.late[:number]

    def checkpoint(self, who: Incarnation) -> None:
        """Flush the sent records and save the state, as Real-time Mode does at the end of a batch."""
        self.deliver(who, len(who.outbox))
        newest = self.saved[max(self.saved)]
        exact = {e: self.world.logs[e].end for e in self._outputs()}
        # Positions are observed now and then, so the known position may lag by a checkpoint. And while a replay has not
        # reached the results of former incarnations, the ends lie after the results that a restore would send again.
        caught_up = all(s[2] < who.read[TopicPartition(topic=s[0], partition=s[1])] for s in who.released)
        sent = exact if caught_up and self.world.rng.random() >= self.world.lag else dict(newest.sent)
        self.saved[max(self.saved) + 1] = Saved(dict(who.read), dict(who.state), sent, self.world.now_s)

    def die(self) -> None:
        """Die, as far as the coordinator can see; records stay in flight, and the region may continue for a while."""
        if self.running is not None:
            self.lingering.append(self.running)
            self.running = None
            if self.world.backoff is not None and self.world.backoff.random() < 0.3:
                self.ready_at_s = self.world.now_s + self.world.backoff.uniform(0, BACKOFF_S)

    def damage(self, number: int, *, at_sight: bool) -> None:
        """Damage a checkpoint: so that its files show it, or only its state once it is loaded."""
        self.saved[number].whole, self.saved[number].loads = not at_sight, False

    # -- RegionPort ---------------------------------------------------------------------------------------------------

    def health(self) -> Health:
        self.world.call()
        running = self.running is not None
        return Health(
            runs=running,
            progressed_at_s=self.progressed_at_s,
            hung_after_s=HUNG_AFTER_S,
            ready_at_s=self.ready_at_s,
        )

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        self.world.call()
        return tuple(saved.point(n) for n, saved in sorted(self.saved.items()) if saved.whole)

    def fence(self) -> None:
        self.world.call()
        self.die()
        for who in self.lingering:  # it takes its time to end them
            for _ in range(self.world.rng.randint(0, 2)):
                self.step(who)
            self.deliver(who, self.world.rng.randint(0, len(who.outbox)))
            if self.world.rng.random() < 0.2:
                self.checkpoint(who)
            late = self.world.late
            if late is not None and self.world.killed and self.stage.output in self.world.layout.hops:
                self.late += who.outbox[: late.randint(0, len(who.outbox))]
        self.lingering = []
        self.take_position()
        self.world.call()

    def take_position(self) -> None:
        """Take down where its outputs end."""
        self.ends = {e: self.world.logs[e].end for e in self._outputs()}

    def _fences(self, topic: str) -> "list[Fence]":
        return list(self.world.fences.get(topic, []))

    def cuts(self, after: int) -> tuple[tuple[int, OffsetFrontier], ...]:
        return ()

    def beyond(self, number: int, upto: Frontier) -> tuple[LogRange, ...]:
        self.world.call()
        assert isinstance(upto, OffsetFrontier)
        saved, found, void = self.saved[number], [], self.world.voided(self.stage.output)
        counts = {e: max(n, upto.length(e)) for e, n in saved.read.items()}
        for e in self._outputs():
            for offset in range(saved.sent[e], self.ends[e]):
                topic, partition, cause, _ = self.world.logs[e].read(offset).stamp
                if self.world.is_late(e, offset, self._fences(self.stage.output)):
                    continue
                if offset not in void[e] and cause >= counts[TopicPartition(topic=topic, partition=partition)]:
                    found.append((e.topic, e.partition, offset, offset + 1))
        return tuple(found)

    def rewind(self, number: int) -> None:
        assert number in self.saved, "it goes back to what is not there"
        assert self.running is None, "it is rewound while it runs"
        assert not self.lingering, "it is rewound while somebody may save"
        self.went_back_to = number
        for n in sorted(self.saved, reverse=True):
            self.world.call()
            if n > number:
                del self.saved[n]

    def start(self, number: int) -> None:
        self.world.call()
        assert number == max(self.saved), "it starts from another checkpoint than was decided"
        saved = self.saved[number]
        mine = self.world.voided(self.stage.output)
        released = {
            self.world.logs[e].read(o).stamp
            for e in self._outputs()
            for o in range(saved.sent[e], self.ends[e])
            if o not in mine[e] and not self.world.is_late(e, o, self._fences(self.stage.output))
        }
        void = {e: offsets for t in self.stage.inputs for e, offsets in self.world.voided(t).items()}
        known = [fence for t in self.stage.inputs for fence in self._fences(t)]
        self.incarnations += 1
        self.world.fences.setdefault(self.stage.output, []).append((self.incarnations, dict(self.ends)))
        if not saved.loads:  # an incarnation finds this after it has begun
            saved.whole = False  # from now on this is known, and the region is dead
            return
        self.running = Incarnation(self.incarnations, dict(saved.read), dict(saved.state), released, void, known)
        self.progressed_at_s, self.stuck, self.failed = self.world.now_s, False, False
        self.world.call()

    def keep_only(self, numbers: Sequence[int]) -> None:
        for n in sorted(self.saved):
            if n < numbers[-1] and n not in numbers:
                self.world.call()
                del self.saved[n]

    def set_aside(self, numbers: Sequence[int]) -> None:
        """Nobody else deletes them."""
