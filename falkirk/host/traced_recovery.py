"""Traced recovery: the recovery protocol of a host whose spans are recorded.

It wraps the protocol and its ports. So the protocol knows nothing of spans, and a host without a collector runs it
without them.
"""

from collections.abc import Mapping
from typing import Any, cast

from falkirk.protocol.ports import RegionPort
from falkirk.protocol.recovery import RecoveryProtocol
from falkirk.protocol.rollback import Points, RollbackDecision
from falkirk.runtime.live.region import LiveRegion
from falkirk.system.traced import Recorder, note, step
from falkirk.theory.ids import PointNumber


class TracedRecovery(RecoveryProtocol):
    """A recovery protocol that records each recovery as a span. Args: recorder: of the host. Others: as of its base."""

    def __init__(self, *arguments: Any, recorder: Recorder, **named: Any) -> None:
        self._recorder = recorder
        super().__init__(*arguments, **named)

    def recover(
        self,
        failed: frozenset[str],
        reason: str,
        *,
        asked: Mapping[str, PointNumber] | None = None,
        force: bool = False,
    ) -> RollbackDecision:
        """See RecoveryProtocol. The span has the decision: where each processor resumes."""
        with self._recorder.span("recovery", reason=reason, failed=", ".join(sorted(failed))) as span:
            decision = super().recover(failed, reason, asked=asked, force=force)
            span.note(
                processors=", ".join(sorted(decision.goes)),
                checkpoints=", ".join(f"{name} {point}" for name, point in sorted(decision.goes.items())),
            )
            if self.down.errors:
                span.note(down=", ".join(f"{n} {e.condition}" for n, e in sorted(self.down.errors.items())))
            return decision

    def decide(
        self,
        failed: frozenset[str],
        asked: Mapping[str, PointNumber] | None = None,
        *,
        force: bool = False,
        points: Points | None = None,
    ) -> RollbackDecision:
        """See RecoveryProtocol."""
        with step("decision"):
            return super().decide(failed, asked, force=force, points=points)


class TracedRegion:
    """A RegionPort that records its slow calls as steps of a recovery. All others go to the port itself."""

    def __init__(self, name: str, port: RegionPort) -> None:
        self._name, self._port = name, port

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def fence(self) -> None:
        """See RegionPort."""
        with step("fence", processor=self._name):
            self._port.fence()

    def rewind(self, number: PointNumber) -> None:
        """See RegionPort."""
        with step("rewind", processor=self._name, checkpoint=number):
            self._port.rewind(number)

    def start(self, number: PointNumber) -> None:
        """See RegionPort."""
        with step("processor.start", processor=self._name, checkpoint=number):
            self._port.start(number)
            opening = self._port.opening if isinstance(self._port, LiveRegion) else None
            if opening is not None:
                note(incarnation=opening.incarnation, published=opening.released)


def traced(regions: Mapping[str, RegionPort]) -> dict[str, RegionPort]:
    """Return the ports with their slow calls recorded."""
    return {name: cast(RegionPort, TracedRegion(name, port)) for name, port in regions.items()}
