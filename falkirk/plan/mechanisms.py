"""Mechanisms: applies the policy of a live processor to its regions and sinks.

    Lazy          Exactly-once over determinism: results are published on arrival, and a replay gives the same results
                  (FlameStream).

    Snapshots     F* has only the checkpoints, so results are tentative until a checkpoint covers them (Flink).

    LogSends      Strong productions: all results are in a log before any reader gets them (MillWheel, Dataflow).

    Acknowledged  Upstream backup: unacknowledged input is read, and its results are sent, again (Storm).

All share one implementation. `Snapshots` holds results like those that may differ on a replay. `LogSends` adds hops.
`Acknowledged` omits the barrier.

Source: Delivery-consistency-determinism, §II; Falkirk Wheel, §1.
"""

from collections.abc import Iterable

from pyspark.sql import SparkSession

from falkirk.declare.application import Application
from falkirk.declare.nodes import SourceNode
from falkirk.declare.parts import DeclaredProcessor, DeclaredSink
from falkirk.declare.policy import (
    DEFAULT_POLICY,
    Acknowledged,
    Delivery,
    Ephemeral,
    Lazy,
    LogSends,
    Policy,
    Snapshots,
)
from falkirk.errors import GuaranteeError
from falkirk.errors.conditions.object_home import HOME_REFUSES_CLUSTER
from falkirk.errors.conditions.objective import OBJECTIVE_REFUSED
from falkirk.errors.conditions.plan import POLICY_MISPLACED_LIVE, STATE_UNSAVED, TWINS_REFUSED
from falkirk.errors.location import SourceLocation
from falkirk.plan.draft import Draft
from falkirk.plan.reasons import Undetermined, duration_text
from falkirk.plan.region import Region
from falkirk.platform.data import HDFS
from falkirk.spark_setup.spark import writes_elsewhere

#: The promises for which tentative results must wait in a held log.
HELD = (Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE)
#: The least time between checkpoints of a region with twins.
TWINS_INTERVAL_S = 5.0


def governing(policies: Iterable[Policy]) -> Policy:
    """Return the policy of a region: that of its only processor that is not ephemeral."""
    return next((policy for policy in policies if not isinstance(policy, Ephemeral)), DEFAULT_POLICY)


def has_transactional_sinks(app: Application, session: SparkSession) -> bool:
    """Return whether the broker refuses former writers of an application's sinks: by default, on a cluster."""
    return writes_elsewhere(session) if app.transactional is None else app.transactional


def check_home(app: Application, session: SparkSession, region: Region) -> None:
    """Check that the states of a region can be kept in the home. Raises: DefinitionError: `HOME_REFUSES_CLUSTER`."""
    if app.data is not None and app.data.startswith(f"{HDFS}:") and writes_elsewhere(session):
        raise HOME_REFUSES_CLUSTER.error(where=region.where, region=region.name, home=app.data)


def kept_promise(policy: Policy, delivery: Delivery) -> Delivery:
    """Return the promise that a region keeps, given the requested one."""
    return Delivery.AT_LEAST_ONCE if isinstance(policy, Acknowledged) else delivery


def enter(draft: Draft, processor: DeclaredProcessor) -> None:
    """Begin a processor's steps in a region."""
    draft.processors.append(processor.name)
    if isinstance(processor.policy, Snapshots) and draft.differences.matters is None:
        draft.differences.matters = Undetermined(
            operations=(), processor=processor.name, where=processor.where, policy="fk.Snapshots"
        )


def leave(draft: Draft, processor: DeclaredProcessor) -> None:
    """End a processor's steps in a region.

    Raises: GuaranteeError: `STATE_UNSAVED`.
    """
    if isinstance(processor.policy, Acknowledged):
        if draft.frame.keyed:
            raise STATE_UNSAVED.error(where=processor.where, processor=processor.name)
        draft.differences.matters, draft.repeated_by = None, processor.name  # readers are not promised equal results


def is_logged(policy: Policy, draft: Draft, *, shared: bool) -> bool:
    """Return whether a processor's results must be in a log although a reader could be fused with it.

    Args: draft: its output. shared: it has several readers.
    """
    if isinstance(policy, Ephemeral):
        return shared and draft.apart is not None
    return shared or isinstance(policy, LogSends)


def why_logged(processor: DeclaredProcessor, draft: Draft) -> str:
    """Return why the output of a live processor is a hop. Args: draft: that output."""
    if isinstance(processor.policy, LogSends):
        return f"fk.LogSends() writes the results of {processor.name} to a log before any reader gets them"
    if isinstance(processor.policy, Ephemeral):
        return f"{processor.name} has several readers, and {draft.apart}"
    name = processor.name
    if draft.apart is not None:  # with fk.Ephemeral() it would have a hop as well
        return f"other processors read {name}, and a hop keeps each record until they have read it"
    return f"other processors read {name} (with fk.Ephemeral(), {name} would run inside each reader instead)"


def before_keyed(draft: Draft, processor: DeclaredProcessor) -> str | None:
    """Return why a keyed step needs a hop before it although the order of its records needs none; None: no hop."""
    if isinstance(processor.policy, LogSends) and not isinstance(draft.node, SourceNode):
        return f"fk.LogSends() writes the input of the `groupBy` in {processor.name} to a log first"
    return None


def check_promise(sink: DeclaredSink, cause: Undetermined | None, repeated_by: str | None) -> None:
    """Check that a sink's promise is possible with the policies before it.

    Args: cause: the cause that makes it tentative. repeated_by: the acknowledged processor upstream, if there is one.
    Raises: GuaranteeError: `POLICY_CONTRADICTS_DELIVERY`.
    """
    if repeated_by is not None and sink.delivery is not Delivery.AT_LEAST_ONCE:
        raise _contradiction(
            sink.where,
            f"{repeated_by!r} has the policy fk.Acknowledged, which repeats results after a failure, so sink "
            f"{sink.name!r} can't be {sink.delivery}.",
            'Add delivery="at-least-once", or declare it under fk.Lazy().',
            repeated_by,
            sink.name,
        )
    if cause is not None and cause.policy and sink.delivery is Delivery.AT_MOST_ONCE:
        raise _contradiction(
            sink.where,
            f"{cause.processor!r} restarts from its checkpoint after a failure ({cause.policy}), so sink {sink.name!r} "
            "can't be at-most-once.",
            "Declare it under fk.Lazy(), or ask for exactly-once.",
            cause.processor,
            sink.name,
        )


def check_batch(repeated_by: str | None, where: SourceLocation) -> None:
    """Check that a batch, whose sinks are exactly-once, does not read repeated results.

    Raises: GuaranteeError: `POLICY_CONTRADICTS_DELIVERY`.
    """
    if repeated_by is not None:
        raise _contradiction(
            where,
            f"{repeated_by!r} has the policy fk.Acknowledged, which repeats results after a failure, and a batch reads "
            "it. The results of a batch are exactly-once.",
            f"Declare {repeated_by!r} under fk.Lazy().",
            repeated_by,
            None,
        )


def check_live_policy(processor: DeclaredProcessor, reason: str) -> None:
    """Refuse a policy that only live processors can have, on a processor in micro-batches.

    Raises: DefinitionError: `POLICY_MISPLACED`, `TWINS_REFUSED`, `OBJECTIVE_REFUSED`.
    """
    check_batched(processor, f"it does not run live, because {reason}")
    if isinstance(processor.policy, Snapshots | Acknowledged):
        raise POLICY_MISPLACED_LIVE.error(
            where=processor.where, policy=processor.policy, processor=processor.name, reason=reason
        )


def check_batched(processor: DeclaredProcessor, reason: str) -> None:
    """Refuse options of `Lazy` that only live processors can have. Args: reason: why the processor is not live.

    Raises: DefinitionError: `TWINS_REFUSED`, `OBJECTIVE_REFUSED`.
    """
    if isinstance(processor.policy, Lazy) and processor.policy.twins:
        raise TWINS_REFUSED.error(where=processor.where, name=processor.name, reason=reason)
    if isinstance(processor.policy, Lazy) and processor.policy.recover_within is not None:
        raise OBJECTIVE_REFUSED.error(where=processor.where, name=processor.name, reason=reason)


def check_twins(region: Region, session: SparkSession) -> None:
    """Check that both queries of a region with twins publish the same results, on arrival, from one JVM.

    Raises: DefinitionError: `TWINS_REFUSED`.
    """
    reasons = {
        "its results wait for a checkpoint": region.released_to is not None or not region.deterministic,
        "it joins streams": bool(region.joined),
        "its results do not leave in the order of their stamps": region.reorders,
        "it reads several topics": bool(region.others),
        "its two queries would read different epochs of a view": bool(region.views),
        "its two queries would not share the lanes of one JVM": writes_elsewhere(session),
        f"its output is {region.delivery}": region.delivery is not Delivery.EXACTLY_ONCE,
        f"checkpoints every {duration_text(region.interval_s)} leave no time between those of the two queries; the "
        f"least is {duration_text(TWINS_INTERVAL_S)}": region.interval_s < TWINS_INTERVAL_S
        and not region.has_objective,
    }
    reason = next((text for text, applies in reasons.items() if applies), None)
    if region.twins and reason is not None:
        raise TWINS_REFUSED.error(where=region.where, name=region.name, reason=reason)


def may_vary(region: Region) -> bool:
    """Return whether results that a region repeats after a failure may differ from the first ones."""
    return bool(region.varying) or (region.undetermined is not None and bool(region.undetermined.operations))


def consequence(region: Region) -> str:
    """Return the effects of a region's policy on its results, as sentences."""
    policy, interval_s = region.policy, region.interval_s
    if isinstance(policy, Acknowledged):
        return (
            f"No result waits. After a failure, results of the last {duration_text(interval_s)} may be published again."
        )
    if region.delivery is Delivery.REPEATED:
        text = "After a failure, results since the last checkpoint are published again"
        text += ", and may differ." if may_vary(region) else "."
    elif region.delivery is Delivery.AT_MOST_ONCE:
        text = "After any restart, also a planned one, the region skips waiting input."
    elif isinstance(policy, Snapshots):
        text = f"A result is published when a checkpoint covers it, {duration_text(interval_s / 2)} later on average."
    elif not region.deterministic and region.hop is not None:
        text = (
            "A replay may write different records to the hop, so exactly-once results that depend on them wait for a "
            f"checkpoint of {region.name}."
        )
    elif not region.deterministic:
        text = "A replay may give different results, so a result is published when a checkpoint covers it."
    elif isinstance(policy, LogSends):
        text = "Results are in a log before any reader gets them, and no failure takes them back."
    else:
        text = (
            "After a failure, results since the last checkpoint are computed again, and Falkirk drops those that are "
            "already in the topic or hop."
        )
    if region.repeated_by is not None:
        text += f" If {region.repeated_by} sends a record twice, this region counts it twice."
    return text


def _contradiction(where: SourceLocation, message: str, hint: str, processor: str, sink: str | None) -> GuaranteeError:
    return GuaranteeError(
        "POLICY_CONTRADICTS_DELIVERY", message, where=where, hint=hint, processor=processor, sink=sink
    )
