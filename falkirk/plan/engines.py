"""Engines: decides which processors run live, and which in micro-batches because they have a step that needs them.

A processor under `@app.stream()` uses `Stream` in both cases, so its meaning does not depend on the engine. In
micro-batches it is a batch whose epoch ends as soon as any record has arrived. Its recorded steps are applied to
DataFrames.
"""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from falkirk.declare.application import Application
from falkirk.declare.cut import OnArrival
from falkirk.declare.joins import passed
from falkirk.declare.nodes import LOOKUP, NEWEST_ROW, Node, Step, is_ordered
from falkirk.declare.parts import DeclaredProcessor
from falkirk.declare.policy import DEFAULT_POLICY, Eager, Lazy
from falkirk.declare.stream import Stream
from falkirk.errors.conditions.plan import ENGINE_UNSUITABLE, ENGINE_UNSUITABLE_GROUP
from falkirk.plan import event_time, joins, python_steps, unions
from falkirk.plan.recordings import Recordings, node_of
from falkirk.spark_setup.cluster_plugin import CLUSTER_PLUGIN
from falkirk.steps.dataframes.names import STAMP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Steps that Real-time Mode does not have, with the reasons for users.
_NOT_LIVE = {
    "join": "join() keeps both streams; with withWatermark on both sources it could run live",
}


def in_engines(
    app: Application, recordings: Recordings | None = None, *, holds_views: bool = True,
    not_live: Mapping[str, str] = MappingProxyType({}),
) -> Application:  # fmt: skip
    """Return the application. Its live processors that can't run live are micro-batches in it.

    Args: recordings: receives the result of each stream's function. holds_views: tasks can look views up. not_live:
        processors of which only their plan has shown that they can't run live, with the reasons.
    Raises: DefinitionError: `ENGINE_UNSUITABLE`: a processor with engine="live" can't run live, or one in micro-batches
        has a step that only runs live. Errors of a processor's function.
    """
    recordings = recordings or Recordings()
    chosen = copy.copy(app)
    chosen.processors = dict(app.processors)
    changed = True
    while changed:  # a reader of a processor in micro-batches runs in micro-batches too
        changed = False
        for name, processor in chosen.processors.items():
            reason = None
            if processor.cut is None:
                found = _against_live(processor, chosen, recordings, holds_views) or not_live.get(name)
                reason = _reason(processor, chosen, found)
            if reason is not None:
                chosen.processors[name] = _in_micro_batches(processor, reason, chosen, recordings)
                changed = True
    return chosen


def _reason(processor: DeclaredProcessor, app: Application, found: str | None) -> str | None:
    """Return why a processor does not run live, or None when it does. Args: found: why it can't."""
    if processor.engine == "live" and found is not None:
        raise ENGINE_UNSUITABLE.error(where=processor.where, processor=processor.name, found=found)
    if processor.engine == "micro-batch" and found is None:
        return 'engine="micro-batch" is set'
    pattern = next((read for read in processor.reads if read in app.patterns), None)
    if processor.engine is None and found is None and pattern is not None:
        return f"the topics of {pattern!r}, which has a pattern, may grow"
    return found


def _against_live(
    processor: DeclaredProcessor, app: Application, recordings: Recordings, holds_views: bool
) -> str | None:
    every = _steps(node_of(recordings.first(processor)))
    event_time.check_clock(processor, every, app.sources)
    event_time.check_expiry(processor, every, app.sources)
    for read in processor.reads:
        if read in app.processors and app.processors[read].cut is not None and read not in processor.views:
            return f"it reads {read!r}, which runs in batches"
    event_time.check_used(processor, every)
    if (name := _ambiguous(processor, app)) is not None:
        return f"it reads topics with the name {name!r} on several clusters"
    united = unions.unions_against_live(processor, every, app, recordings)
    if united is not None:
        return united
    looking = next((step for step in every if step.operation == LOOKUP), None)
    if looking is not None and not holds_views:
        return f"lookup() needs spark.plugins={CLUSTER_PLUGIN} on a cluster ({looking.where})"
    steps = [step for step in every if step.operation in _NOT_LIVE]
    if steps:
        return f"{_NOT_LIVE[steps[0].operation]} ({steps[0].where})"
    sources = {name: source for name, source in app.sources.items() if name not in app.pushed}
    waits = joins.is_join(every) or any(map(is_ordered, every))  # a request needs its answer at once
    timed = event_time.timed_against_live(processor, every, sources if waits else app.sources)
    return timed or python_steps.python_against_live(processor, every)


def _ambiguous(processor: DeclaredProcessor, app: Application) -> str | None:
    """Return a name that several topics have which a live region with this processor may read, or None.

    Spark records the offsets of a query by the names of its topics, without their clusters.
    """
    read, seen, ahead = dict[str, str](), set[str](), [*processor.reads]
    while ahead:
        name = ahead.pop()
        if name in app.processors and name not in seen:
            ahead += app.processors[name].reads
        seen.add(name)
        for part in app.lists.get(name, (name,)):
            if part in app.sources and (topic := app.sources[part].topic).topic != read.setdefault(
                topic.name, topic.topic
            ):
                return topic.name
    return None


def _steps(node: Node) -> list[Step]:
    """Return all steps of all streams that lead to a node, upstream first."""
    if not isinstance(node, Step):
        return []
    others = [n for a in node.arguments if isinstance(a, Stream) for n in _steps(a.node)]
    return [*_steps(node.parent), *others, node]


def _in_micro_batches(
    processor: DeclaredProcessor, reason: str, app: Application, recordings: Recordings
) -> DeclaredProcessor:
    from falkirk.plan import mechanisms

    mechanisms.check_live_policy(processor, reason)
    steps = _steps(node_of(recordings.first(processor)))
    event_time.check_clock_in_batches(processor, steps, reason)
    keyed = [step for step in steps if step.operation in ("agg", "count")]
    if keyed:
        raise ENGINE_UNSUITABLE_GROUP.error(where=keyed[0].where, processor=processor.name, reason=reason)
    read = {name: app.sources[name].topic.keys for name in processor.reads if name in app.sources}
    return replace(
        processor,
        body=_replaying(processor, recordings.first, read),
        body_again=_replaying(processor, recordings.second, read),
        cut=OnArrival(),
        policy=processor.policy if _saves_by_itself(processor, steps) else Eager(),
        stamped={read: STAMP for read in processor.reads if read not in processor.views},
        engine_reason=reason,
        passed=passed(steps),
    )


def _saves_by_itself(processor: DeclaredProcessor, steps: list[Step]) -> bool:
    """Return whether the processor has a state and the user has set how often to save it."""
    if not isinstance(processor.policy, Lazy) or processor.policy is DEFAULT_POLICY:
        return False
    return any(step.operation in ("stateful", "join", event_time.JOIN, NEWEST_ROW) for step in steps)


def _replaying(
    processor: DeclaredProcessor, recorded: Callable[[DeclaredProcessor], Any], keys: Mapping[str, Sequence[str]]
) -> "Callable[..., DataFrame]":
    """Return the recorded steps of a processor as a function of DataFrames with stamps. Args: keys: see `replay`."""
    from falkirk.steps.batch.replay import replay

    def body(*given: "DataFrame") -> "DataFrame":
        return replay(node_of(recorded(processor)), dict(zip(processor.reads, given, strict=True)), processor, keys)

    functools.update_wrapper(body, processor.body)  # assertions about the original function hold for this one
    return body
