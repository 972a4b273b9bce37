"""Event time in live regions: decides whether `dropDuplicates`, windows and joins can run live, and checks their steps.

It runs live if all records of a key are in one partition of the source. Then the records before a record in its
partition decide everything about it. A hop before the step would mix partitions, and records of a partition that is
read more slowly would be late. A join needs no such key: all records that are not late meet all their partners. But it
reads its sources, because a log between has other partitions. `stateful(order=)` needs no such key either: records wait
until no partition can have an earlier one.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from falkirk.declare.clock import ClockTopic
from falkirk.declare.keys import key_columns
from falkirk.declare.nodes import CLOCKED, SourceNode, Step, clocked_by, is_ordered, root_of, steps_of, steps_since
from falkirk.declare.parts import DeclaredProcessor
from falkirk.declare.policy import Ephemeral, Lazy, LogSends
from falkirk.declare.watermark import ProcessingTime, Watermark, watermark_of_state
from falkirk.declare.windows import is_in_one_partition, split_windows
from falkirk.errors.conditions.clocks import CLOCK_UNSUITABLE
from falkirk.errors.conditions.plan import EXPIRY_UNSUITABLE, WATERMARK_UNUSED
from falkirk.plan.keyed_steps import ROW_STEPS, against_steps
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.stamped import Frame
from falkirk.steps.static_analysis.columns import check_group, plain_keys

#: Steps that need an event time.
TIMED = ("dropDuplicates", "windows")
JOIN = "timedJoin"


class NotLiveError(Exception):
    """A step with event time that can't run live, as only the plan has shown.

    Attributes: processor: its name. reason: as the engine's other reasons.
    """

    def __init__(self, processor: DeclaredProcessor, step: Step, reason: str) -> None:
        self.processor, self.reason = processor.name, f"{step_text(step)}: {reason} ({step.where})"
        super().__init__(self.reason)


def is_timed(step: Step) -> bool:
    """Return whether a step keeps something by event time, apart from joins."""
    return step.operation in TIMED or _of_state(step) is not None


def is_clocked(step: Step) -> bool:
    """Return whether a step has timers by the clock."""
    return isinstance(_of_state(step), ProcessingTime)


def check_clock(processor: DeclaredProcessor, steps: Sequence[Step], sources: Mapping[str, SourceNode]) -> None:
    """Refuse a `withClock` whose stream is no clock, or without timers after it.

    Args: steps: upstream first. Raises: DefinitionError: `CLOCK_UNSUITABLE`.
    """
    used = [clocked_by(step.parent) for step in steps if is_clocked(step)]
    for step in steps:
        if step.operation != CLOCKED:
            continue
        clock, reason = step.arguments[0].node, None
        if isinstance(clock, Step) or clock.name not in _clocks(sources):
            reason = f"{root_of(clock).name} is no source that was declared with fk.Clock, without further steps"
        elif not any(step is each for each in used):
            reason = "no stateful() with on_timer= uses it"
        if reason is not None:
            raise CLOCK_UNSUITABLE.error(where=step.where, processor=processor.name, reason=reason)


def check_clock_in_batches(processor: DeclaredProcessor, steps: Sequence[Step], reason: str) -> None:
    """Refuse timers by the clock in micro-batches. Args: reason: why the processor runs there.

    Raises: DefinitionError: `CLOCK_UNSUITABLE`.
    """
    for step in steps:
        if step.operation == CLOCKED:
            why = f"they only fire in live regions, and {reason}"
            raise CLOCK_UNSUITABLE.error(where=step.where, processor=processor.name, reason=why)


def _clocks(sources: Mapping[str, SourceNode]) -> set[str]:
    return {name for name, source in sources.items() if isinstance(source.topic, ClockTopic)}


def _read_by(processor: DeclaredProcessor, sources: Mapping[str, SourceNode]) -> list[str]:
    """Return the names of what a processor reads besides clocks."""
    return [name for name in processor.reads if name not in _clocks(sources)]


def _of_state(step: Step) -> Watermark | None:
    """Return the event time by which a step's states expire, have timers, or get their records, if they do."""
    return watermark_of_state(step.arguments[1]) if step.operation == "stateful" else None


def _watermark_of(step: Step) -> Watermark:
    found = _of_state(step) or step.arguments[-1]
    assert isinstance(found, Watermark), "a step with event time"
    return found


def check_expiry(processor: DeclaredProcessor, steps: Sequence[Step], sources: Mapping[str, SourceNode]) -> None:
    """Refuse a state that expires or has timers, unless all records of a key are in one partition of a source.

    Otherwise, several partitions would have a say in its time, and it would depend on the epochs' ends.

    Args: steps: upstream first. Raises: DefinitionError: `EXPIRY_UNSUITABLE`.
    """
    for place, step in enumerate(steps):
        if _of_state(step) is None or is_ordered(step):
            continue
        read = _read_by(processor, sources)
        if len(read) != 1 or read[0] not in sources:
            reason = f"it reads {', '.join(read)}"
        else:
            topic = sources[read[0]].topic
            if is_in_one_partition(step, steps[:place], topic.keys):
                continue
            of = f"partitioned by {', '.join(topic.keys)}" if topic.keys else "declared without key="
            reason = f"{topic.topic} is {of}"
        option = "expires" if "expiry" in step.arguments[1] else "on_timer"
        raise EXPIRY_UNSUITABLE.error(where=step.where, processor=processor.name, option=option, reason=reason)


def check_used(processor: DeclaredProcessor, steps: Sequence[Step]) -> None:
    """Refuse an event time that no step uses. Args: steps: upstream first.

    Raises: DefinitionError: `WATERMARK_UNUSED`.
    """
    used = [_watermark_of(step) for step in steps if is_timed(step)]
    used += [watermark for step in steps if step.operation == JOIN for watermark in step.arguments[1].watermarks]
    for step in steps:
        if step.operation == "withWatermark" and not any(step.arguments[0] is watermark for watermark in used):
            raise WATERMARK_UNUSED.error(where=step.where, processor=processor.name)


def timed_against_live(
    processor: DeclaredProcessor, steps: Sequence[Step], sources: Mapping[str, SourceNode]
) -> str | None:
    """Return why a processor's step with event time can't run live, or None. Args: steps: upstream first."""
    idle = next((s for s in steps if s.operation == "withWatermark" and s.arguments[0].idle_us is not None), None)
    if idle is not None:
        return f"which partitions are idle is decided at the end of an epoch: withWatermark(idle=) ({idle.where})"
    join = next((step for step in steps if step.operation == JOIN), None)
    if join is not None:
        reason = _against_join(processor, join, steps, sources)
        return None if reason is None else f"{step_text(join)} {reason} ({join.where})"
    places = [place for place, step in enumerate(steps) if is_timed(step)]
    if not places:
        return None
    step, read, apart = steps[places[0]], _read_by(processor, sources), against_steps(steps[: places[-1] + 1])
    if len(read) != 1 or read[0] not in sources:
        reason = "runs live only on a source, whose partitions give it the time"
    elif apart is not None:
        reason = f"and another step with state are in one processor, and one live query can't run both: {apart}"
    elif isinstance(processor.policy, LogSends):
        reason = "would read a log under fk.LogSends(), whose partitions have other times"
    elif is_ordered(step):
        if isinstance(processor.policy, Lazy | Ephemeral):
            return None
        reason = f"runs live only under fk.Lazy() and fk.Ephemeral(), not under {processor.policy}"
    else:
        topic = sources[read[0]].topic
        split = [i for i in places if not is_in_one_partition(steps[i], steps[:i], topic.keys)]
        if not split:
            return None
        step, of = steps[split[0]], f"partitioned by {', '.join(topic.keys)}" if topic.keys else "declared without key="
        reason = f"runs live only if each of its keys is in one partition, and {topic.topic} is {of}"
    return f"{step_text(step)} {reason} ({step.where})"


def _against_join(
    processor: DeclaredProcessor, join: Step, steps: Sequence[Step], sources: Mapping[str, SourceNode]
) -> str | None:
    read = [sources[name].topic.topic for name in processor.reads if name in sources]
    joins = [step for step in steps if step.operation == JOIN]
    spine = [step for step in steps_of(steps[-1]) if step.operation == JOIN]
    if len(spine) != len(joins):
        return "has a right stream that is a join, and only the left one may be live"
    roots = {root_of(join), *(root_of(each.arguments[0].node) for each in joins)}
    count = len(joins) + 1
    if len(processor.reads) != count or len(set(read)) != count or len(roots) != count:
        return f"runs live only on {'two sources' if count == 2 else 'sources'} with different topics"
    if any(map(is_timed, steps)):
        return "and another step with state are in one processor, and one live query can't run both"
    for step in steps_since(joins[0], joins[-1]):
        if step.operation not in (*ROW_STEPS, JOIN):
            return f"and another join are in one live query, and {step.operation}() ({step.where}) is between them"
    if not isinstance(processor.policy, Lazy | Ephemeral):
        return f"runs live only under fk.Lazy() and fk.Ephemeral(), not under {processor.policy}"
    return None


def step_text(step: Step) -> str:
    """Return the name of a step with event time, for messages."""
    if step.operation == JOIN:
        return f"{step.arguments[1].method}()"
    if is_ordered(step):
        return "stateful(order=)"
    return "a window" if step.operation == "windows" else f"{step.operation}()"


def check_keyed_step(
    before: Frame, step: Step, processor: DeclaredProcessor, keys: tuple[Any, ...], needs_hop: str | None
) -> None:  # fmt: skip
    """Check that a live step with event time can keep its state.

    Args: keys: its `timed_keys`. needs_hop: why it would need a hop before it, which `stateful(order=)` only does after
        another step with a state.

    Raises: NotLiveError: it can't. DefinitionError: `KEY_INVALID`, `COLUMN_MISSING`.
    """
    if needs_hop is not None and (before.keyed or not is_ordered(step)):
        raise NotLiveError(processor, step, needs_hop)
    if step.operation == "windows" or set(keys) <= set(before.columns):
        check_group(before, keys, step.where)


def timed_keys(before: Frame, step: Step) -> tuple[Any, ...]:
    """Return the key of a step with event time, without its window. Plain columns are names.

    Raises: DefinitionError: the user's mistakes in windows.
    """
    if step.operation == "stateful":
        return key_columns(step.arguments[1]["key"])
    if step.operation != "windows":
        return tuple(step.arguments[0])
    frames.apply(before, step)
    return plain_keys(before, split_windows(step.arguments[0])[1])


def deciding_columns(step: Step, after: Frame) -> Collection[Any]:
    """Return the columns of a step's results whose formulas its state depends on.

    That of `dropDuplicates` has only keys. The stand-in's condition has the formula of the time.
    """
    return step.arguments[0] if step.operation == "dropDuplicates" else after.columns
