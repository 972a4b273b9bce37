"""Connected live regions of which the first is not deterministic, on real Spark: all go back, and nothing that was
released is ever contradicted."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread
from typing import TYPE_CHECKING, Any

import pytest

from falkirk.kafka_client.connection import Connection
from falkirk.recovery.protocol import rollback
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.recovery.protocol.rollback import RollbackDecision
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from falkirk.theory.ids import LogId
from tests.chaos.harness import Load
from tests.integration.live import Wire
from tests.integration.tentative import COUNTS, DRAWN, REGIONS, Hop, application, expected, released
from tests.support import wait_until

#: The thread that looks after a query's regions.
WATCH = "falkirk-watch"

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Records per second. Each look reads all results so far, and on a slow machine it would never catch up with more.
RATE = 50.0
#: Between checkpoints of the first region.
INTERVAL_S = 4


class Decided:
    """Every decision of a wheel, with the points that it was made from."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[RecoveryProtocol, RollbackDecision, Mapping[str, tuple[Checkpoint, ...]]]] = []
        decide = RecoveryProtocol.decide

        def remember(recovery: RecoveryProtocol, *arguments: Any, **options: Any) -> RollbackDecision:
            decision = decide(recovery, *arguments, **options)
            if current_thread().name != WATCH:
                return decision  # a test that asks
            checkpoints = {name: region.checkpoints() for name, region in recovery._regions.items()}
            self.made.append((recovery, decision, checkpoints))
            return decision

        patch.setattr(RecoveryProtocol, "decide", remember)

    def mistakes(self, restored: Mapping[str, int]) -> list[str]:
        """Return the regions that resumed from another checkpoint than that of the solver's answer."""
        recovery, decision, checkpoints = self.made[-1]
        wrong = []
        for name, batch in restored.items():
            answer = decision.solution.chosen[name].frontier
            fitting = [p.number for p in checkpoints[name] if recovery.layout.metadata(name, p).frontier <= answer]
            if batch != max(fitting):
                wrong.append(f"{name} went on from {batch}, the solver's answer is {max(fitting)}")
        return wrong


class Run:
    """The application at work, with all that its hop ever held."""

    def __init__(self, spark: "SparkSession", broker: Broker, tag: str, home: Path) -> None:
        self.wire = Wire(bootstrap=broker.bootstrap, tag=tag)
        self.events, self.counts = self.wire.topic("events"), self.wire.topic("counts")
        app = application(self.events, self.counts, home, interval=f"{INTERVAL_S} seconds")
        self.query: Query = run_here(app, Connection.of(broker.bootstrap))
        self.store = self.query._home.store
        self.hop = Hop(broker.bootstrap, self.query.hops[1])

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *raised: object) -> None:
        self.query.stop()

    def _is_ahead(self) -> bool:
        """Return whether the second region has saved a state that depends on unsaved random values of the first."""
        assert self.query.isActive, self.query.exception()
        recovery = self._recovery
        decision = recovery.decide(frozenset({DRAWN}))
        newest = recovery._regions[COUNTS].checkpoints()[-1]
        return decision.goes[DRAWN] >= 0 and decision.goes[COUNTS] < newest.number

    def let_the_reader_save_what_is_not_fixed(self) -> None:
        """Wait until the second region is ahead of the first. The first one's next checkpoint ends this."""
        wait_until(self._is_ahead, 120, "a checkpoint of the reader that is ahead")

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Enter the block when the last region has saved what depends on values behind the first one's last checkpoint.

        In the block, no further checkpoint of the first region counts: they are unfinished, and a rollback deletes
        them. On a busy machine, one would otherwise often come between the look and a failure.
        """
        region, reader = self._recovery._regions[DRAWN], self._recovery._regions[COUNTS]
        checkpoints = region.checkpoints
        wait_until(lambda: checkpoints()[-1].number >= 0, 120, "a checkpoint of the first region")
        last = checkpoints()[-1].number
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(region, "checkpoints", lambda: tuple(p for p in checkpoints() if p.number <= last))
            before = reader.checkpoints()[-1].number
            # Its next checkpoint may have begun before that of the first region. The one after it has not.
            wait_until(lambda: reader.checkpoints()[-1].number > before + 1, 120, "two checkpoints of the last region")
            self.let_the_reader_save_what_is_not_fixed()
            yield

    def fail_the_first(self) -> None:
        """End the first region's query and wait until all regions run as new incarnations."""
        before = {r.name: r for r in self.query.status}
        self.query.queries[0].stop()

        def back() -> bool:
            assert self.query.isActive, self.query.exception()
            return all(r.incarnation > before[r.name].incarnation for r in self.query.status)

        wait_until(back, 120, lambda: f"new incarnations: {self.query.status}")

    @property
    def _recovery(self) -> RecoveryProtocol:
        recovery = self.query._host._recovery
        assert recovery is not None
        return recovery

    def come_to_rest(self, sent: int) -> None:
        """Wait until a checkpoint covers all input, or the time is up that it could take; take down the hop then."""
        commits = {r.name: r.last_commit for r in self.query.status}

        def at_rest() -> bool:
            assert self.query.isActive, self.query.exception()
            behind = all(r.last_commit > commits[r.name] + 1 for r in self.query.status)
            return behind and (self.wire.count(self.counts) >= sent or not self._moves())

        wait_until(at_rest, 180, f"{sent} results; there are {self.wire.count(self.counts)}: {self.query.status}")
        self.hop.take_down()

    def restored(self) -> dict[str, int]:
        """Return the checkpoint from which each region last resumed."""
        return {n: self.store.incarnations(n)[-1].restored_batch for n in REGIONS}

    def is_contradicted(self) -> bool:
        """Return whether a result was released that the valid records of the hop do not determine."""
        assert self.query.isActive, self.query.exception()
        found = released(self.wire.bootstrap, self.counts)
        self.hop.take_down()
        determined = expected(self.hop, self.store)
        return any(rows != determined[word][: len(rows)] for word, rows in found.items())

    def _moves(self) -> bool:
        """Return whether the held log still has results that are not in the sink."""
        held = next(iter(self._recovery.layout.held))
        return not self._recovery._logs.ends(held) <= self._recovery.released(held)


def test_all_go_back_nothing_released_is_contradicted_and_a_perturbed_answer_shows(
    broker: Broker, spark: "SparkSession", home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time, the last region is made to stay where it was."""
    decided = Decided(monkeypatch)
    newest_within = rollback.newest_within

    def perturbed(layout: Any, name: str, checkpoints: tuple[Checkpoint, ...], frontier: object) -> Checkpoint:
        return checkpoints[-1] if name == COUNTS else newest_within(layout, name, checkpoints, frontier)

    with Run(spark, broker, tag, home) as run:
        with Load(broker.bootstrap, run.events, rate=RATE) as load:
            with run.ahead():
                run.fail_the_first()
            assert run.store.voided_ranges(LogId(run.hop.topic)), "the reader had saved records that became void"
            run.let_the_reader_save_what_is_not_fixed()
        run.come_to_rest(load.sent)
        assert set(decided.made[-1][1].takes_back) == set(REGIONS)
        assert decided.mistakes(run.restored()) == []
        found = released(broker.bootstrap, run.counts)
        assert sorted(r["n"] for rows in found.values() for r in rows) == list(range(load.sent))
        assert found == expected(run.hop, run.store)
        with Load(broker.bootstrap, run.events, rate=RATE):
            with run.ahead():
                monkeypatch.setattr(rollback, "newest_within", perturbed)
                run.fail_the_first()
                monkeypatch.setattr(rollback, "newest_within", newest_within)
                assert decided.mistakes(run.restored())
            wait_until(run.is_contradicted, 60, "a result that rests on what was taken back")
