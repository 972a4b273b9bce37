"""Runs one seeded schedule over a simulated world: work, failures, the coordinator's turns, and the verdict."""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from falkirk.errors import GuaranteeError, UnrecoverableError
from falkirk.recovery.decision_store import Store
from falkirk.recovery.protocol.layout import Layout, Stage, TimeDomain, sink_name
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.theory.history import History
from falkirk.theory.metadata import Anywhere, Checkpoints
from falkirk.theory.projection import Cuts
from falkirk.theory.rollback import solve
from falkirk.theory.times import TopicPartition
from tests.simulation.elements import STATELESS, Element, partition_of
from tests.simulation.memory import MemoryStore
from tests.simulation.oracle import judge
from tests.simulation.region import HUNG_AFTER_S, SimRegion
from tests.simulation.world import AnyStore, Crash, World

#: How histories of a time are thinned, in the few minutes that a schedule takes.
LEVELS = ((5.0, 2.0), (20.0, 10.0), (60.0, 30.0))
#: The number of steps in a schedule, before everything comes to rest.
_STEPS = 150


class Refused(Exception):
    """The coordinator has refused to continue, with reason."""


class CrashingStore:
    """A store in which the coordinator may die before and after each call."""

    def __init__(self, store: AnyStore, world: World) -> None:
        self._store, self._world = store, world

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)

        def call(*args: Any, **options: Any) -> Any:
            self._world.call()
            result = method(*args, **options)
            if name == "open_recovery":
                self._world.decided = (self._world.decided or 0) + 1
            self._world.call()
            return result

        return call


@dataclass
class Outcome:
    """The outcome of a run.

    Args: stayed: the number of complete epochs that stayed when their batch went back to a checkpoint before them,
        since others had taken results back. damaged: the number of damaged checkpoints. refused: whether the run ended
        because published results depend on one of them. trace: one line per event.
    """

    seed: int
    outputs: int = 0
    crashes: int = 0
    recoveries: int = 0
    voided: int = 0
    stayed: int = 0
    collected: int = 0
    late: int = 0
    damaged: int = 0
    refused: bool = False
    trace: list[str] = field(default_factory=list)


def random_layout(rng: random.Random, kinds: random.Random) -> Layout:
    """Return chains and branches of up to five regions, some of them non-deterministic, some of them batches.

    Args: kinds: chooses the batches. Each reader of a batch is a batch.
    """
    share = kinds.choice([0.0, 0.0, 0.3, 0.6])
    sources = [f"in{i}" for i in range(rng.randint(1, 2))]
    stages: dict[str, Stage] = {}
    topics = dict.fromkeys(sources, "")
    for i in range(rng.randint(1, 5)):
        read = rng.choice(list(topics))
        is_batch = kinds.random() < share or (topics[read] != "" and stages[topics[read]].is_cut)
        name = f"{kinds.choice(['b', STATELESS]) if is_batch else 'r'}{i}"
        stages[name] = Stage(
            name=name, inputs=(read,), output=f"log-{name}", deterministic=rng.random() < 0.6,
            times=kinds.choice([TimeDomain.EPOCHS, TimeDomain.ROUNDS]) if is_batch else TimeDomain.OFFSETS,
        )  # fmt: skip
        topics[stages[name].output] = name
    read_topics = {t for s in stages.values() for t in s.inputs}
    held = {}
    for name, stage in stages.items():
        chain = [stage]
        while chain[0].inputs[0] not in sources:
            chain.insert(0, stages[topics[chain[0].inputs[0]]])
        if stage.output not in read_topics and (stage.is_cut or not all(s.deterministic for s in chain)):
            held[stage.output] = f"out-{name}"
    partitions = {t: rng.randint(1, 3) for t in topics if t in read_topics or topics[t]}
    partitions |= {s.output: 1 for s in stages.values() if s.is_cut}
    partitions |= {sink: partitions[h] for h, sink in held.items()}
    return Layout(stages=stages, partitions=partitions, held=held)


class Run:
    """One schedule. The same seed gives the same run.

    Args: folder: for a real store; None: the store is in memory.
    """

    def __init__(
        self, seed: int, folder: Path | None = None, recovery: type[RecoveryProtocol] = RecoveryProtocol
    ) -> None:
        self.outcome, self._rng, self._wheel_class = Outcome(seed), random.Random(seed), recovery
        self._early = random.Random(seed + 1_000_000)
        self.world = World(random_layout(self._rng, random.Random(seed + 9_000_001)), self._rng, decided=0)
        self.world.late = random.Random(seed + 3_000_000)
        self.world.backoff = random.Random(seed + 9_000_000) if seed % 5 == 4 else None
        self._history = History(checkpoints=self._rng.choice([0, 0, 1, 3]))
        spans = random.Random(seed + 7_000_000)
        if spans.random() < 0.3:
            self._history = History(span_s=spans.choice([5.0, 60.0, 300.0]), levels=LEVELS)
        self._harm = random.Random(seed + 2_000_000)
        self._harm_share = self._harm.choice([0.0, 0.1])
        self._spare = self._harm.choice([0, 1]) if self._harm_share else 0
        self._store = self.world.store = MemoryStore() if folder is None else Store(folder / f"{seed}.db")
        self._recovery: RecoveryProtocol | None = None
        self._inputs: dict[str, list[Element]] = defaultdict(list)

    def go(self) -> Outcome:
        """Run the schedule, let everything come to rest, and judge."""
        try:
            self._coordinate(crash=False)
            actions = [self._produce, self._produce, *[self._step] * 4, self._arrive, *[self._checkpoint] * 3,
                       *[self._turn] * 3, self._fail, self._crash, self._crash, self._ask, self._wait]  # fmt: skip
            for _ in range(_STEPS):
                self._rng.choice(actions)()
                if self._harm.random() < self._harm_share:
                    self._damage()
            self._judge(complete=False)
            self._settle()
            self._judge(complete=True)
        except Refused:
            self.outcome.refused = True
            self._judge(complete=False)
        finally:
            self._store.close()
        return self.outcome

    def _judge(self, *, complete: bool) -> None:
        newest = self._store.newest_recovery()
        self.outcome.recoveries = newest.recovery if newest else 0
        self.outcome.outputs = judge(self.world, self._inputs, complete=complete)
        self.outcome.stayed = sum(region.stayed for region in self.world.regions.values())
        self.outcome.collected = sum(log.first for log in self.world.logs.values())
        self.outcome.voided = sum(
            v.last_exclusive - v.first for t in self.world.layout.partitions for v in self._store.voided_ranges(t)
        )

    # -- possible events -----------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        topic = self._rng.choice(self.world.layout.sources)
        key = f"{topic}.{self._rng.randint(0, 3)}"
        number = len(self._inputs[key])
        element = Element(key=key, path=f"{key}:{number}", digest="")
        self._inputs[key].append(element)
        to = partition_of(key, self.world.layout.partitions[topic])
        self.world.logs[TopicPartition(topic=topic, partition=to)].elements.append(element)

    def _region(self) -> Any:
        return self.world.regions[self._rng.choice(sorted(self.world.regions))]

    def _step(self) -> None:
        region = self._region()
        who = self._rng.choice([w for w in (region.running, *region.lingering) if w] or [None])
        if who is not None and not (region.stuck and who is region.running):
            for _ in range(self._rng.randint(1, 5)):
                region.step(who)

    def _arrive(self) -> None:
        region = self._region()
        for who in [w for w in (region.running, *region.lingering) if w]:
            region.deliver(who, self._rng.randint(0, 3))
        assert self.world.late is not None
        self._come_late(region, self.world.late.randint(0, 2))

    def _come_late(self, region: SimRegion, number: int) -> None:
        self.outcome.late += min(number, len(region.late))
        region.deliver_late(number)

    def _checkpoint(self) -> None:
        region = self._region()
        # A dead region may still finish a checkpoint that it had begun, until it is fenced.
        who = region.running or (self._rng.choice(region.lingering) if region.lingering else None)
        if who is not None:
            region.checkpoint(who)

    def _fail(self) -> None:
        region = self._region()
        kind = self._rng.choice(["die", "die", "hang", "slow"])
        self._say(f"{region.stage.name}: {kind}")
        if kind == "die":
            region.die()
        elif kind == "hang" and not region.stage.is_cut:  # a batch may take any time
            region.stuck = True

    def _damage(self) -> None:
        """Damage a checkpoint of a region that has saved one since its last rollback, unless one is damaged already."""
        region = self.world.regions[self._harm.choice(sorted(self.world.regions))]
        if region.stage.is_cut:
            return  # no batch loses its records
        if self._harm.random() < 0.7:  # then results depend on it
            for each in self.world.regions.values():
                if each.running is not None and not each.stuck:
                    for _ in range(5):
                        each.step(each.running)
                    each.checkpoint(each.running)
            self._turn()
        numbers = sorted(region.saved)
        # Only one at a time: a region that rolls back together with another may also need exactly the damaged
        # checkpoint.
        if numbers[-1] <= region.went_back_to or not all(
            s.loads for each in self.world.regions.values() for s in each.saved.values()
        ):
            return
        number, at_sight = self._harm.choice([numbers[-1], numbers[-1], *numbers[1:-1]]), self._harm.random() < 0.5
        self._say(f"{region.stage.name}: checkpoint {number} is damaged{'' if at_sight else ', which nobody sees'}")
        region.damage(number, at_sight=at_sight)
        if self._harm.random() < 0.7:  # otherwise it continues, and may not need that checkpoint any more
            self._say(f"{region.stage.name}: dies with it")
            region.die()
        if self._harm.random() < 0.3:
            self._say("the coordinator dies with it")
            self._recovery = None
        self.outcome.damaged += 1

    def _is_lost(self, goes: dict[str, int]) -> bool:
        """Return whether one of these regions is random and has lost more checkpoints than the spare ones."""
        drawing = [self.world.regions[n] for n in goes if not self.world.layout.stages[n].deterministic]
        lost = [c for r in drawing for c, s in r.saved.items() if c > goes[r.stage.name] and not s.whole]
        return bool(lost) and not self._spare

    def _ask(self) -> None:
        """Roll a region back on request, unless that would contradict published results.

        Do not do so while a checkpoint is damaged and nobody knows. The region might go back to that checkpoint, and
        delete later ones.
        """
        region = self._region()
        number = self._rng.choice(sorted(region.saved))
        if any(s.whole and not s.loads for r in self.world.regions.values() for s in r.saved.values()):
            return
        self._coordinate(crash=self._rng.random() < 0.3, ask={region.stage.name: number})

    def _wait(self) -> None:
        self.world.now_s += self._rng.choice([0.5, 5.0, 20.0])

    def _turn(self) -> None:
        self._coordinate(crash=False)

    def _crash(self) -> None:
        self._coordinate(crash=True)

    # -- the coordinator ----------------------------------------------------------------------------------------------

    def _coordinate(self, *, crash: bool, ask: dict[str, int] | None = None) -> None:
        self.world.crash_in = self._rng.randint(1, 60) if crash else None
        try:
            self.world.killed = self._recovery is None
            if self._recovery is None:
                self._say("a coordinator opens")
                live = [n for n, s in self.world.layout.stages.items() if not s.is_cut]
                recovery = self._wheel_class(
                    self.world.layout, self.world.regions, self.world, CrashingStore(self._store, self.world),  # type: ignore[arg-type]
                    self.world.clock, say=self._say,
                    history=self._history, live=live, spare=self._spare, on_failure=self._on_failure,
                )  # fmt: skip
                recovery.open()
                self._recovery, self.world.killed = recovery, False
            if ask:
                self._say(f"asked to go back: {ask}")
                self._recovery.recover(frozenset(), "asked", asked=ask)
            running = {n: r.incarnations for n, r in self.world.regions.items() if r.running and not self._hangs(r)}
            if self._early.random() < 0.25:  # some regions have just completed something
                self._recovery.release_of([name for name in sorted(running) if self._early.random() < 0.5])
            self._recovery.turn()
            if not crash:
                self._judge_turn(self._recovery, running)
        except GuaranteeError as error:
            if not ask or error.condition not in ("CONTRADICTS_RELEASED", "CHECKPOINT_TOO_OLD"):
                raise
        except UnrecoverableError as error:
            if error.condition != "CHECKPOINT_LOST" or not self._is_lost(error.parameters["goes"]):  # type: ignore[arg-type]
                raise
            self._say(error.message)
            raise Refused from error
        except Crash:
            self._say("the coordinator dies")
            self.outcome.crashes += 1
            self._recovery = None
        finally:
            self.world.crash_in = None

    def _on_failure(self, name: str, reason: str) -> None:
        """Let every region be brought back, however often it has failed."""

    def _hangs(self, region: SimRegion) -> bool:
        return self.world.now_s - region.progressed_at_s > HUNG_AFTER_S

    def _judge_turn(self, recovery: RecoveryProtocol, running: dict[str, int]) -> None:
        """Check that no more regions moved than necessary, and that everything that may be released was released."""
        layout = self.world.layout
        if all(s.deterministic for s in layout.stages.values()):
            moved = [n for n, number in running.items() if self.world.regions[n].incarnations != number]
            assert not moved, f"{moved} were restarted although nothing was wrong with them"
        available = layout.restorable()
        for name, region in self.world.regions.items():
            mine = available[name]
            stage = layout.stages[name]
            spare = 0 if stage.deterministic or stage.is_cut else self._spare
            checkpoints = region.checkpoints()
            for point, later in zip(checkpoints, checkpoints[spare:], strict=False):
                demands = layout.metadata(name, later).delivered
                metadata = replace(layout.metadata(name, point), delivered=demands)
                if isinstance(mine, Checkpoints) and not metadata.frontier.is_empty:
                    mine.add(metadata)
                elif isinstance(mine, Anywhere):
                    for edge, fixed in metadata.projected.items():
                        mine.marks.setdefault(edge, []).append((metadata.frontier, fixed))
        cuts = {name: Cuts.of(self.world.regions[name].cuts(-1)) for name in layout.batches}
        solution = solve(layout.graph(cuts), available)
        for held in layout.held:
            due = solution.chosen[sink_name(held)].frontier & self.world.ends(held)
            assert due <= recovery.released(held), f"{held}: {due} could be released, {recovery.released(held)} is"

    def _settle(self) -> None:
        """Finish all work without further failures, and observe sent elements at once."""
        self.world.lag = 0.0
        idle = 0
        for _ in range(100):
            self.world.now_s += 1
            busy = False
            for region in self.world.regions.values():
                self._come_late(region, len(region.late))
                if region.running is not None and not region.stuck:
                    while region.step(region.running):
                        busy = True
                    region.checkpoint(region.running)
                else:
                    busy = True
            self._coordinate(crash=False)
            idle = 0 if busy else idle + 1
            if idle > 2:
                return
            if any(r.stuck for r in self.world.regions.values()):
                self.world.now_s += HUNG_AFTER_S
        raise AssertionError("it does not come to rest")

    def _say(self, text: str) -> None:
        self.outcome.trace.append(f"{self.world.now_s:8.1f} s  {text}")
