"""Rollbacks of a whole application to a cut, under the failures of every schedule: results stay possible ones."""

import os
from collections.abc import Mapping
from pathlib import Path

from falkirk.errors import FalkirkError
from falkirk.recovery.protocol.consistent_cuts import ConsistentCut, consistent_cuts
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.recovery.protocol.rollback import RollbackDecision
from tests.simulation.run import Run
from tests.simulation.test_history import TEN, Idle

#: `FALKIRK_SCHEDULES` runs more of them.
SCHEDULES = 40 if "FALKIRK_SCHEDULES" in os.environ else 20


class Exact(RecoveryProtocol):
    """Checks that every rollback to a cut restores exactly it."""

    restored = 0

    def recover(
        self, failed: frozenset[str], reason: str, *, asked: Mapping[str, int] | None = None, force: bool = False
    ) -> RollbackDecision:
        decision = super().recover(failed, reason, asked=asked, force=force)
        if asked:
            assert decision.goes == asked
            Exact.restored += 1
        return decision


class ToCuts(Run):
    """A schedule whose requests name a cut, not a region's point."""

    def _ask(self) -> None:
        if any(s.whole and not s.loads for r in self.world.regions.values() for s in r.saved.values()):
            return
        found = consistent_cuts(self.world.layout, {name: r.checkpoints() for name, r in self.world.regions.items()})
        if found:
            self._coordinate(crash=self._rng.random() < 0.3, ask=self._rng.choice(found).asked)


def test_outputs_are_those_of_a_run_without_rollbacks() -> None:
    Exact.restored = 0
    for seed in range(SCHEDULES):
        schedule = ToCuts(seed, recovery=Exact)
        try:
            schedule.go()
        except (AssertionError, FalkirkError) as error:
            raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(schedule.outcome.trace[-40:])) from error
    assert Exact.restored > SCHEDULES, "hardly a cut was restored"


def test_each_cut_of_a_history_can_be_restored(tmp_path: Path) -> None:
    """From the newest to the oldest, with new input in between. No record is missing that one of them needs."""
    bench = Idle(tmp_path, TEN)
    bench.work(4)
    bench.idle(12)
    bench.work(4)
    before = bench_cuts(bench)
    assert len(before) > 6
    assert any(cut.first_number < cut.number for cut in before), "idle time made cuts that are equal"
    for cut in before:
        assert bench.recovery.recover(frozenset(), "asked", asked=cut.asked, force=True).goes == cut.asked
        assert bench_cuts(bench)[0].number == cut.number
        bench.feed()


def bench_cuts(bench: Idle) -> tuple[ConsistentCut, ...]:
    return consistent_cuts(
        bench.world.layout, {name: region.checkpoints() for name, region in bench.world.regions.items()}
    )
