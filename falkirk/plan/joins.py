"""Joins of live sources in one region: all sides become one draft; values that a replay may change are refused."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from falkirk.declare.nodes import Node, ProcessorNode, SourceNode, Step, is_ordered, root_of, steps_of
from falkirk.declare.parts import DeclaredProcessor
from falkirk.declare.policy import Delivery
from falkirk.errors.conditions.order import ORDER_UNSUITABLE_RESULTS
from falkirk.errors.conditions.plan import JOIN_UNDETERMINED, NOT_A_STREAM_PROCESSOR
from falkirk.errors.location import SourceLocation
from falkirk.plan.draft import Draft
from falkirk.plan.event_time import JOIN, NotLiveError
from falkirk.plan.recordings import is_declared_as
from falkirk.steps.live import joins
from falkirk.steps.static_analysis import determinism
from falkirk.steps.static_analysis.formula import deciding_formulas
from falkirk.steps.static_analysis.functions import operation_name
from falkirk.steps.static_analysis.properties import IntroducedOperations

#: Spark's operators of a join. The live one has another.
_OPERATORS = {"Join"}
#: Why a join can't be in the query of the join before it.
_OTHER_KEY = "needs the key of the join before it, unchanged, in its own key, because one live query runs both"


def is_join(steps: Sequence[Step]) -> bool:
    """Return whether a processor joins live sources."""
    return any(step.operation == JOIN for step in steps)


def split_at_join(node: Node) -> tuple[Step, tuple[Step, ...]]:
    """Return the last join of the steps that lead to a node, and the steps after it."""
    steps = steps_of(node)
    place = max(i for i, step in enumerate(steps) if step.operation == JOIN)
    return steps[place], steps[place + 1 :]


def side_source(node: Node, processor: DeclaredProcessor, sources: Mapping[str, SourceNode]) -> str:
    """Return the name of the source at which the steps of one side begin.

    Raises: DefinitionError: `NOT_A_STREAM`: they do not begin at the inputs of the processor.
    """
    root = root_of(node)
    known = {ProcessorNode(name=name): name for name in processor.reads}
    name = known.get(root) if isinstance(root, ProcessorNode) else None
    if name is None:
        name = next((each for each in processor.reads if is_declared_as(root, sources[each])), None)
    if name is None:
        raise NOT_A_STREAM_PROCESSOR.error(where=processor.where, processor=processor.name, name=repr(node))
    return name


def join_drafts(
    left: Draft, right: Draft, step: Step, processor: DeclaredProcessor, introduced: IntroducedOperations
) -> Draft:
    """Return the draft after a join. Args: introduced: receives the operations that the join introduces.

    Raises: DefinitionError: `JOIN_UNDETERMINED`: a replay may give other rows; and the user's mistakes. NotLiveError:
        it can't be in one region with the join before it.
    """
    frame = joins.join_frames(left.frame, right.frame, step)
    had = determinism.operations(left.frame.data) + determinism.operations(right.frame.data)
    own = set(determinism.undetermined(had, determinism.operations(frame.data))) - _OPERATORS
    varying = {**left.differences.varying, **right.differences.varying, **dict.fromkeys(own)}
    if varying and processor.assertion is None:
        raise JOIN_UNDETERMINED.error(
            where=step.where,
            processor=processor.name,
            reason=f"a replay may give different values of {operation_name(min(varying))}",
        )
    key = frame.join_key
    assert key is not None, "it is of join_frames"
    if not key.is_in_last:
        raise NotLiveError(processor, step, _OTHER_KEY)
    introduced.own |= (determinism.operations(frame.data) - had).keys() - _OPERATORS
    side = f"right {len(left.joined) + 1}" if left.joined else "right"
    began = left.began | {number: f"{side} {name}" for number, name in right.began.items()}
    decided = [deciding_formulas(frame.data, frame.columns, began), *([left.decided] if left.joined else [])]
    return replace(
        left, frame=frame, joined=(*left.joined, right.source), node=replace(step, parent=left.node), keys={},
        join_places=(*left.join_places, key.places) if left.joined else (), shards=key.names, began=began,
        decided="; ".join(decided),
    )  # fmt: skip


def check_determined(draft: Draft, delivery: Delivery, where: SourceLocation) -> None:
    """Refuse a join, or a `stateful(order=)`, whose results would have to wait for a checkpoint, or may be skipped.

    A record without a partner is a result when the other source moves on, and a record that waits when its slowest
    partition does. So the stamp of a result does not tell which checkpoint covers it.

    Raises: DefinitionError: `JOIN_UNDETERMINED`, `ORDER_UNSUITABLE`.
    """
    ordered = next(filter(is_ordered, steps_of(draft.node)), None)
    if not draft.joined and ordered is None:
        return
    cause = draft.undetermined
    reason = None
    if cause is not None:
        reason = (
            f"a replay may give different values of {', '.join(map(operation_name, cause.operations)) or cause.policy}"
        )
    elif delivery is Delivery.AT_MOST_ONCE:
        reason = f"its output is {delivery}"
    if reason is None:
        return
    names = ", ".join(draft.processors)
    if ordered is not None:
        raise ORDER_UNSUITABLE_RESULTS.error(where=ordered.where, processor=names, reason=reason)
    raise JOIN_UNDETERMINED.error(where=where, processor=names, reason=reason)
