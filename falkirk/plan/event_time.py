"""Event time in live regions: decides whether `dropDuplicates` can run live, and checks its steps.

It runs live if all records of a key are in one partition of the source. Then the records before a record in its
partition decide everything about it. A hop before the step would mix partitions, and records of a partition that is
read more slowly would be late.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from falkirk.analysis.columns import check_group
from falkirk.declare.parts import Processor
from falkirk.declare.policy import LogSends
from falkirk.declare.stream import SourceNode, Step
from falkirk.errors.conditions.plan import ENGINE_UNSUITABLE_DUPLICATES, WATERMARK_UNUSED
from falkirk.frames.stamped import Frame
from falkirk.plan.fingerprint import KEYED


def check_used(processor: Processor, steps: Sequence[Step]) -> None:
    """Refuse an event time that no step uses. Args: steps: upstream first.

    Raises: DefinitionError: `WATERMARK_UNUSED`.
    """
    used = [step.arguments[1] for step in steps if step.operation == "dropDuplicates"]
    for step in steps:
        if step.operation == "withWatermark" and not any(step.arguments[0] is watermark for watermark in used):
            raise WATERMARK_UNUSED.error(where=step.where, processor=processor.name)


def against_live(processor: Processor, steps: Sequence[Step], sources: Mapping[str, SourceNode]) -> str | None:
    """Return why a processor's `dropDuplicates` can't run live, or None. Args: steps: upstream first."""
    place = next((i for i, step in enumerate(steps) if step.operation == "dropDuplicates"), None)
    if place is None:
        return None
    step, before = steps[place], steps[:place]
    if len(processor.reads) != 1 or processor.reads[0] not in sources:
        reason = "runs live only on a source, whose partitions give it the time"
    elif any(other.operation in KEYED for other in before) or any(
        other.operation == step.operation for other in steps[place + 1 :]
    ):
        reason = "and another step with a state are in one processor, and a live query has one"
    elif isinstance(processor.policy, LogSends):
        reason = "would read a log under fk.LogSends(), whose partitions have other times"
    else:
        topic = sources[processor.reads[0]].topic
        kept = _unchanged(topic.keys, before)
        if topic.keys and set(topic.keys) <= kept & set(step.arguments[0]):
            return None
        of = f"partitioned by {', '.join(topic.keys)}" if topic.keys else "declared without key="
        reason = f"runs live only if each of its keys is in one partition, and {topic.topic} is {of}"
    return f"dropDuplicates() {reason} ({step.where})"


def _unchanged(keys: Sequence[str], steps: Sequence[Step]) -> set[str]:
    """Return the columns of a source that steps certainly pass on unchanged, under their names."""
    kept = set(keys)
    for step in steps:
        if step.operation in ("select", "selectExpr"):
            entries = [c for each in step.arguments for c in (each if isinstance(each, list | tuple) else (each,))]
            texts = {str(c._jc.toString()) if hasattr(c, "_jc") else str(c).strip() for c in entries}
            kept = kept if "*" in texts else kept & texts
        elif step.operation in ("withColumns", "drop", "withColumnRenamed", "explode"):
            named = step.arguments[0] if step.operation == "withColumns" else step.arguments
            changed = {name.casefold() for name in named if isinstance(name, str)}
            kept = {name for name in kept if name.casefold() not in changed}
    return kept


def check(before: Frame, step: Step, processor: Processor, needs_hop: str | None) -> None:
    """Check that a live `dropDuplicates` can keep its state. Args: needs_hop: why it would need a hop before it.

    Raises: DefinitionError: `ENGINE_UNSUITABLE`, `KEY_INVALID`, `COLUMN_MISSING`.
    """
    if needs_hop is not None:
        raise ENGINE_UNSUITABLE_DUPLICATES.error(where=step.where, processor=processor.name, reason=needs_hop)
    if set(step.arguments[0]) <= set(before.columns):
        check_group(before, step.arguments[0], step.where)


def deciding(step: Step, after: Frame) -> Collection[Any]:
    """Return the columns of a step's results whose formulas its state depends on.

    That of `dropDuplicates` has only keys. The stand-in's condition has the formula of the time.
    """
    return step.arguments[0] if step.operation == "dropDuplicates" else after.columns
