"""Unions in live regions: decides whether they run live, and makes one draft of two.

A live region can read several topics, each in one place: Spark refuses a source that is united with itself in Real-time
Mode. The sides of a union have no state, because Spark refuses one there. After a union, records of one
key come from several topics. So a `groupBy` there gets a hop before it, unless all topics are of one list whose `key=`
covers them together.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from falkirk.declare.application import Application
from falkirk.declare.nodes import (
    CLOCKED,
    UNIONS,
    Node,
    ProcessorNode,
    Step,
    all_steps_of,
    is_right_first,
    roots_of,
    sources_of,
    steps_of,
)
from falkirk.declare.parts import DeclaredProcessor
from falkirk.declare.policy import Delivery, Ephemeral
from falkirk.declare.stream import Stream
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.plan import NOT_A_STREAM_PROCESSOR, TOPICS_READ_LIVE
from falkirk.errors.location import SourceLocation
from falkirk.plan.draft import Draft
from falkirk.plan.event_time import JOIN, is_timed
from falkirk.plan.fingerprint import KEYED
from falkirk.plan.recordings import Recordings, is_declared_as, node_of
from falkirk.steps.live.stamped import attempt
from falkirk.steps.live.unions import put_beside
from falkirk.steps.static_analysis import columns, determinism
from falkirk.steps.static_analysis.formula import deciding_formulas
from falkirk.steps.static_analysis.properties import IntroducedOperations


def has_union(node: Node) -> bool:
    """Return whether a union is among the steps that lead to a node."""
    return len(roots_of(node)) > 1


def no_stream(processor: DeclaredProcessor, recordings: Recordings) -> DefinitionError:
    """Return the error for a function whose steps do not begin at its inputs."""
    name = type(recordings.first(processor)).__name__
    return NOT_A_STREAM_PROCESSOR.error(where=processor.where, processor=processor.name, name=name)


def upstream_of(root: Node, processor: DeclaredProcessor, app: Application, recordings: Recordings) -> str:
    """Return the name of the input of a processor at which steps begin.

    Raises: DefinitionError: `NOT_A_STREAM`: they begin elsewhere.
    """
    for name in processor.reads:
        if root == ProcessorNode(name=name) or is_declared_as(root, app.sources.get(name)):
            return name
    raise no_stream(processor, recordings)


def split_at_union(node: Node) -> tuple[Step, tuple[Step, ...]]:
    """Return the last union of the steps that lead to a node, and the steps after it."""
    steps = steps_of(node)
    place = max(i for i, step in enumerate(steps) if step.operation in UNIONS)
    return steps[place], steps[place + 1 :]


def draft_after_unions(
    node: Node,
    begin: Callable[[Node], Draft],
    after: Callable[[Draft, Step], Draft],
    introduced: IntroducedOperations,
) -> Draft:
    """Return the draft after a node with unions. Args: begin: returns that at a root. after: that after a step."""
    if not isinstance(node, Step):
        return begin(node)
    draft = draft_after_unions(node.parent, begin, after, introduced)
    if node.operation not in UNIONS:
        return after(draft, node)
    return _union_drafts(draft, draft_after_unions(node.arguments[0].node, begin, after, introduced), node, introduced)


def unions_against_live(
    processor: DeclaredProcessor, steps: Sequence[Step], app: Application, recordings: Recordings
) -> str | None:
    """Return why a processor that reads several topics does not run live, or None. Args: steps: upstream first."""
    unions = [step for step in steps if step.operation in UNIONS]
    of_list = next((read for read in processor.reads if read in app.lists), None)
    if not unions and of_list is None:
        return None
    what = f"{unions[0].operation}() ({unions[0].where})" if unions else f"{of_list!r}, which has several topics,"
    if any(step.operation in ("join", JOIN) for step in steps):
        return f"{what} and a join are in one processor"
    fused = [step for read in _inputs(processor, recordings) for step in _fused(read, app, recordings)]
    before = [*(fused if unions else ()), *(each for union in unions for each in _before(union))]
    kept = next((step for step in before if step.operation in KEYED or is_timed(step)), None)
    if kept is not None:
        return f"{what} comes after a step with a state ({kept.where}), and Spark has no state before a union there"
    logs: list[str] = []
    for read in _inputs(processor, recordings):
        logs += _logs_of(read, app, recordings)
    twice = next((log for log, count in Counter(logs).items() if count > 1), None)
    if twice is None:
        return None
    return f"{what} reads {twice} twice, and Spark unites no source with itself in Real-time Mode"


def _before(union: Step) -> tuple[Step, ...]:
    return (*all_steps_of(union.parent), *all_steps_of(union.arguments[0].node))


def _fused(name: str, app: Application, recordings: Recordings, path: tuple[str, ...] = ()) -> list[Step]:
    """Return the steps of processors that run inside their reader, from a name on. Args: path: the readers."""
    processor = app.processors.get(name)
    if processor is None or not isinstance(processor.policy, Ephemeral) or name in path:
        return []
    reads = _inputs(processor, recordings)
    upstream = [step for read in reads for step in _fused(read, app, recordings, (*path, name))]
    return [*upstream, *all_steps_of(node_of(recordings.first(processor)))]


def _inputs(processor: DeclaredProcessor, recordings: Recordings) -> list[str]:
    """Return the names at which the steps of a processor begin, each as often as they do."""
    return [root.name for root in roots_of(node_of(recordings.first(processor)))]


def _logs_of(name: str, app: Application, recordings: Recordings, path: tuple[str, ...] = ()) -> list[str]:
    """Return the topics that a reader of a source or a processor reads, and the names of logs of processors.

    Args: path: the readers. A processor that reads itself is refused later.
    """
    if name in app.lists:
        return [app.sources[part].topic.topic for part in app.lists[name]]
    if name in app.pushed:
        return [name]
    if name in app.sources:
        return [app.sources[name].topic.topic]
    processor = app.processors.get(name)
    if processor is None or not isinstance(processor.policy, Ephemeral) or name in path:
        return [name]
    reads = _inputs(processor, recordings)
    return [log for read in reads for log in _logs_of(read, app, recordings, (*path, name))]


def begin_at_list(parts: Sequence[Draft], where: SourceLocation) -> Draft:
    """Return the draft that begins at all topics of a list. Args: parts: one that begins at each."""
    first, *others = parts
    for each in others:
        step = Step(parent=first.node, operation="unionByName", arguments=(Stream(each.node),), where=where)
        first = _union_drafts(first, each, step, IntroducedOperations())
    return first


def _union_drafts(left: Draft, right: Draft, step: Step, introduced: IntroducedOperations) -> Draft:
    """Return the draft after a union. Args: introduced: receives the operations that the union introduces.

    Raises: DefinitionError: `UNION_INVALID`.
    """
    step = replace(step, parent=left.node, arguments=(Stream(right.node), *step.arguments[1:]))
    is_first = is_right_first(step)
    frame = attempt(left.frame, step, lambda: put_beside(left.frame, right.frame, step))
    had = determinism.operations(left.frame.data) + determinism.operations(right.frame.data)
    introduced.own |= (determinism.operations(frame.data) - had).keys()
    sides = (right, left) if is_first else (left, right)
    first, *others = sources_of(step)
    ids = columns.expression_ids(frame)
    are_one = left.keys.keys() == right.keys.keys() and _are_of_one_list(step)
    before = columns.expression_ids(left.frame) if step.operation == CLOCKED else {}
    same = [key for key, number in left.keys.items() if are_one or before.get(key) == number]
    left.differences.add(right.differences)
    return replace(
        left, source=first, others=tuple(others), node=step, frame=frame, reads_hop=left.reads_hop and right.reads_hop,
        split=left.split or right.split, inherited=left.inherited or right.inherited,
        repeated_by=left.repeated_by or right.repeated_by, keys={key: ids[key] for key in same},
        began={number: name for name, number in ids.items()}, called=(*left.called, *right.called),
        processors=[*dict.fromkeys([*left.processors, *right.processors])],
        united=tuple(text for side in sides for text in _formulas(side)),
    )  # fmt: skip


def _are_of_one_list(union: Step) -> bool:
    """Return whether a union puts the topics of one list beside each other, without any step before it.

    Then `key=` is a claim about all of them together.
    """
    names = {source.name.rpartition("/")[0] for source in sources_of(union)}
    return all(step.operation in UNIONS for step in all_steps_of(union)) and len(names) == 1 and "" not in names


def _formulas(side: Draft) -> list[str]:
    """Return the formulas of a side, with the name of its source, and those of its own sides."""
    own = deciding_formulas(side.frame.data, side.frame.columns, side.began)
    return [*side.united, f"{side.source.topic.topic}: {own}"]


def check_delivery(draft: Draft, delivery: Delivery, where: SourceLocation) -> None:
    """Refuse at-most-once for a region with several topics: the record of skipped input has partitions alone.

    Raises: DefinitionError: `TOPICS_READ_LIVE`.
    """
    if draft.others and delivery is Delivery.AT_MOST_ONCE:
        topics = [each.topic.topic for each in draft.sources]
        raise TOPICS_READ_LIVE.error(where=where, topics=topics)
