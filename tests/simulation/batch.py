"""A simulated batch: it cuts its input into epochs, computes them, and saves its state now and then.

Its log has one partition whose records are epochs. An epoch that is complete never changes. A batch without a state
computes two epochs at a time, so a later one may be complete before an earlier one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from falkirk.recovery.protocol.layout import Stage
from falkirk.recovery.protocol.ports import Checkpoint, Health, LogRange
from falkirk.theory.frontier import Frontier, OffsetFrontier, StructuredFrontier
from falkirk.theory.times import TopicPartition
from tests.simulation.elements import Element, compute, is_stateless

if TYPE_CHECKING:
    from tests.simulation.world import Fence, World

#: The number of epochs that are decided and not complete at a time.
_AT_ONCE = 2
Positions = dict[TopicPartition, int]
State = dict[str, str]


class _ProgramFails(Exception):
    """A stage's program fails on an element."""


@dataclass
class Epoch:
    """A decided epoch.

    Args: results: None until it is complete. state: the state after it, where that is saved. saved: the batch can go
        back to it.
    """

    number: int
    first: Positions
    last: Positions
    results: list[Element] | None = None
    state: State | None = None
    saved: bool = False
    made_at_s: float = 0.0
    #: For those who look at checkpoints of live regions too. Nothing damages this one.
    whole: bool = True
    loads: bool = True


@dataclass
class Incarnation:
    """One run of a batch. state: after the epochs before `position`."""

    number: int
    state: State
    position: int
    void: dict[TopicPartition, set[int]]
    fences: "list[Fence]"
    #: For those who look at live regions too: nothing of a batch is in flight.
    outbox: list[Element] = field(default_factory=list)


class SimBatch:
    """A batch, as RegionPort."""

    stuck = False
    went_back_to = -1

    def __init__(self, world: "World", stage: Stage) -> None:
        self.world, self.stage = world, stage
        self._log = TopicPartition(topic=stage.output, partition=0)
        self.running: Incarnation | None = None
        self.lingering: list[Incarnation] = []
        self.late: list[Element] = []
        self.incarnations = 0
        self.progressed_at_s = 0.0
        self.failed = False
        self.stayed = 0
        self._kept_from = -1

    @property
    def saved(self) -> dict[int, Epoch]:
        """The checkpoints, by number."""
        start = {-1: Epoch(-1, {}, self._begin())} if self._kept_from < 0 else {}
        return start | {e.number: e for e in self._saved()}

    def _begin(self) -> Positions:
        return {e: 0 for t in self.stage.inputs for e in sorted(self.world.layout.sequences(t))}

    def epochs(self) -> Iterator[Epoch]:
        """Return the epochs that are not void."""
        void = self.world.voided(self.stage.output)[self._log]
        return (e for e in self.world.epochs[self.stage.output] if e.number not in void)

    def _saved(self) -> Iterator[Epoch]:
        for epoch in self.epochs():
            if epoch.results is None:
                return
            if epoch.number >= self._kept_from and epoch.saved:
                yield epoch

    # -- its own steps ---------------------------------------------------------------------------------------

    def step(self, who: Incarnation) -> bool:
        """Compute an epoch or decide one; return whether one was due."""
        self.progressed_at_s = self.world.now_s
        waiting = [e for e in self.epochs() if e.results is None]
        if len(waiting) < _AT_ONCE and self._decide(who, waiting):
            return True
        if not waiting:
            return False
        self._run(who, self.world.rng.choice(waiting) if is_stateless(self.stage) else waiting[0])
        return not self.failed

    def has_read_all(self, who: Incarnation) -> bool:
        """Return whether nothing is left to do."""
        last = next((e.last for e in reversed(list(self.epochs()))), self._begin())
        ends = {e: n for t in self.stage.inputs for e, n in self.world.readable(t).items()}
        return all(e.results is not None for e in self.epochs()) and all(ends[e] <= n for e, n in last.items())

    def _decide(self, who: Incarnation, waiting: list[Epoch]) -> bool:
        first = next((e.last for e in reversed(list(self.epochs()))), self._begin())
        ends = {e: n for t in self.stage.inputs for e, n in self.world.readable(t).items()}
        if not any(ends[e] > n for e, n in first.items()) or (waiting and self.world.rng.random() < 0.5):
            return False
        last = {e: self.world.rng.randint(n, max(n, ends[e])) for e, n in first.items()}
        if last == first:
            last = {e: max(n, ends[e]) for e, n in first.items()}
        number = len(self.world.epochs[self.stage.output])
        self.world.epochs[self.stage.output].append(Epoch(number, dict(first), last))
        return True

    def _run(self, who: Incarnation, epoch: Epoch) -> None:
        try:
            results, after = self._compute(who, epoch)
        except _ProgramFails:
            self.failed = True
            self.die()
            return
        epoch.results, epoch.made_at_s = results, self.world.now_s
        if is_stateless(self.stage):
            epoch.saved = True
        else:
            who.state, who.position = after, epoch.number + 1

    def _compute(self, who: Incarnation, epoch: Epoch) -> tuple[list[Element], State]:
        state, results = dict(who.state), []
        for e in sorted(epoch.first):
            for offset in range(epoch.first[e], epoch.last[e]):
                for element in self._read(who, e, offset):
                    if self.world.fails(self.stage.name, element):
                        raise _ProgramFails
                    after, sent = compute(
                        self.stage, state.get(element.key, ""), element, self.world.rng.randrange(10**6)
                    )
                    state[element.key] = after
                    results += sent
        return results, state

    def _read(self, who: Incarnation, e: TopicPartition, offset: int) -> Sequence[Element]:
        if offset in who.void[e]:
            return ()
        if e.topic in self.world.epochs:
            return self.world.read_epoch(e, offset)
        element = self.world.logs[e].read(offset)
        return () if self.world.is_late(e, offset, who.fences) else (element,)

    def checkpoint(self, who: Incarnation) -> None:
        """Save the state after the newest epoch that is complete with all before it."""
        newest = next((e for e in reversed(list(self.epochs())) if e.number < who.position), None)
        if newest is not None and newest.results is not None and who is self.running and not is_stateless(self.stage):
            newest.state, newest.saved = dict(who.state), True

    def deliver(self, who: Incarnation, number: int) -> None:
        """Nothing of a batch is in flight: an epoch is recorded or it is not."""

    def deliver_late(self, number: int) -> None:
        """Nothing is in flight."""

    def die(self) -> None:
        """Be dead. A run that has ended records nothing any more."""
        self.running = None

    # -- RegionPort ---------------------------------------------------------------------------------------------------

    def health(self) -> Health:
        self.world.call()
        return Health(runs=self.running is not None)

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        self.world.call()
        return tuple(
            Checkpoint(
                number=number,
                read=OffsetFrontier.of(epoch.last),
                sent=OffsetFrontier.of({self._log: number + 1}),
                made_at_s=None if number < 0 else epoch.made_at_s,
            )
            for number, epoch in self.saved.items()
        )

    def cuts(self, after: int) -> tuple[tuple[int, OffsetFrontier], ...]:
        self.world.call()
        after = max(after, self._kept_from - 1)
        return tuple((e.number, OffsetFrontier.of(e.last)) for e in self.epochs() if e.number > after)

    def fence(self) -> None:
        self.world.call()
        self.die()
        self.world.call()

    def beyond(self, number: int, upto: Frontier) -> tuple[LogRange, ...]:
        self.world.call()
        assert isinstance(upto, StructuredFrontier)
        last = max((bound[0] for bound in upto.maxima), default=-1)
        self.stayed += sum(number < e.number <= last and e.results is not None for e in self.epochs())
        return tuple((*self._log, e.number, e.number + 1) for e in self.epochs() if e.number > last)

    def rewind(self, number: int) -> None:
        assert number in self.saved, "it goes back to what is not there"
        assert self.running is None, "it is rewound while it runs"
        self.world.call()
        self.went_back_to = number
        for epoch in self.epochs():
            if epoch.number > number and not is_stateless(self.stage):
                epoch.state, epoch.saved = None, False

    def start(self, number: int) -> None:
        self.world.call()
        assert number == max(self.saved), "it starts from another checkpoint than was decided"
        void = {e: offsets for t in self.stage.inputs for e, offsets in self.world.voided(t).items()}
        known = [fence for t in self.stage.inputs for fence in self.world.fences.get(t, [])]
        self.incarnations += 1
        who = Incarnation(self.incarnations, dict(self.saved[number].state or {}), number + 1, void, known)
        for epoch in self.epochs():
            if epoch.number > number and epoch.results is not None and not is_stateless(self.stage):
                again, who.state = self._compute(who, epoch)
                assert again == epoch.results, "an epoch is computed again, and has other results"
                who.position = epoch.number + 1
        self.running, self.progressed_at_s, self.failed = who, self.world.now_s, False
        self.world.call()

    def keep_only(self, numbers: Sequence[int]) -> None:
        self._kept_from = max(self._kept_from, numbers[0])
        for epoch in self.epochs():
            if epoch.number < numbers[-1] and epoch.number not in numbers:
                self.world.call()
                epoch.state, epoch.saved = None, False

    def set_aside(self, numbers: Sequence[int]) -> None:
        """Nobody else deletes them."""


def copied(epoch: Epoch, held: str) -> list[Element]:
    """Return the results of an epoch as they are in a sink."""
    return [replace(x, stamp=(held, 0, epoch.number, i)) for i, x in enumerate(epoch.results or ())]
