"""Recorded: the recoveries and the checkpoints of a host whose spans are recorded.

Classes here wrap the recovery protocol and its ports. So the protocol knows nothing of spans, and a host without a
collector runs it without them.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from falkirk.platform.traced import Recorder, Span, add_attributes, step
from falkirk.recovery.protocol.ports import RegionPort
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.recovery.protocol.rollback import RollbackDecision, UnitCheckpoints
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.theory.ids import CheckpointNumber


class RecordedRecovery(RecoveryProtocol):
    """A recovery protocol that records each recovery as a span. Args: recorder: of the host. Others: as of its base."""

    def __init__(self, *arguments: Any, recorder: Recorder, **named: Any) -> None:
        self._recorder = recorder
        super().__init__(*arguments, **named)

    def recover(
        self,
        failed: frozenset[str],
        reason: str,
        *,
        asked: Mapping[str, CheckpointNumber] | None = None,
        force: bool = False,
    ) -> RollbackDecision:
        """See RecoveryProtocol. The span has the decision: where each processor resumes."""
        with self._recorder.span("recovery", reason=reason, failed=", ".join(sorted(failed))) as span:
            decision = super().recover(failed, reason, asked=asked, force=force)
            span.note(
                processors=", ".join(sorted(decision.goes)),
                checkpoints=", ".join(f"{name} {number}" for name, number in sorted(decision.goes.items())),
            )
            if self.down.errors:
                span.note(down=", ".join(f"{n} {e.condition}" for n, e in sorted(self.down.errors.items())))
            return decision

    def decide(
        self,
        failed: frozenset[str],
        asked: Mapping[str, CheckpointNumber] | None = None,
        *,
        force: bool = False,
        checkpoints: UnitCheckpoints | None = None,
    ) -> RollbackDecision:
        """See RecoveryProtocol."""
        with step("decision"):
            return super().decide(failed, asked, force=force, checkpoints=checkpoints)


class RecordedRegion:
    """A RegionPort that records its slow calls as steps of a recovery. All others go to the port itself."""

    def __init__(self, name: str, port: RegionPort) -> None:
        self._name, self._port = name, port

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def fence(self) -> None:
        """See RegionPort."""
        with step("fence", processor=self._name):
            self._port.fence()

    def rewind(self, number: CheckpointNumber) -> None:
        """See RegionPort."""
        with step("rewind", processor=self._name, checkpoint=number):
            self._port.rewind(number)

    def start(self, number: CheckpointNumber) -> None:
        """See RegionPort."""
        with step("processor.start", processor=self._name, checkpoint=number):
            self._port.start(number)
            opening = self._port.opening if isinstance(self._port, LiveRegion) else None
            if opening is not None:
                add_attributes(incarnation=opening.incarnation, published=opening.released)


def recorded(regions: Mapping[str, RegionPort]) -> dict[str, RegionPort]:
    """Return the ports with their slow calls recorded."""
    return {name: cast(RegionPort, RecordedRegion(name, port)) for name, port in regions.items()}


def checkpoint_span(processor: str, progress: Mapping[str, Any]) -> Span | None:
    """Return the span of a live region's last checkpoint: Spark's batch from its begin until it is durable.

    Args: progress: Spark's report about the batch. Returns: None: Spark does not say how long it took.
    """
    try:
        began_s = datetime.fromisoformat(progress["timestamp"]).timestamp()
        parts = {str(part): int(ms) for part, ms in progress["durationMs"].items()}
        span = Span(name="checkpoint", began_s=began_s, took_s=parts["triggerExecution"] / 1000)
        span.note(processor=processor, checkpoint=int(progress["batchId"]), records=int(progress["numInputRows"] or 0))
        span.note(**{f"{part}_ms": ms for part, ms in sorted(parts.items())})
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return span
