"""Planner: cuts a declared graph into regions, checks every step against Spark, and says why each hop is there.

It walks the recorded steps of each sink from the source on, on empty DataFrames: nothing is read. A region ends
  * before a keyed step whose records of one key may come from several partitions: the order in which they meet is
    non-deterministic, so a sequencer hop records it;
  * before a second keyed step, since a Real-time Mode query has one;
  * behind a processor that is not ephemeral and is read by others: its output is a log.
Everything else is fused.

What may come out differently on a replay, and all that is computed from it, is tentative: an exactly-once sink behind
it gets a log of its own, from which results are released once they can't be taken back any more.
"""

import itertools
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from falkirk.app import App, Processor, Sink
from falkirk.endpoints import Kafka
from falkirk.errors import DefinitionError, GuaranteeError
from falkirk.location import SourceLocation
from falkirk.plan import columns, determinism, frames
from falkirk.plan.fingerprint import fingerprint
from falkirk.plan.frames import Frame
from falkirk.plan.refusals import check_live
from falkirk.plan.region import Hop, Plan, Region, Undetermined, root_of, steps_of
from falkirk.plan.topics import check_declared
from falkirk.policy import Delivery, Ephemeral, Lazy
from falkirk.stream import Node, ProcessorNode, SourceNode, Step, Stream


def plan_application(app: App, session: SparkSession, identity: str) -> Plan:
    """Return the regions of a declared application.

    Args: identity: of the home; part of the names of internal topics, so that two homes never share one.
    Raises: DefinitionError, GuaranteeError: with the user's line.
    """
    if not app.sinks:
        raise DefinitionError(
            "SINK_MISSING",
            f"application {app.name!r} has no sink.",
            hint='Declare one: app.sink("name", processor, fk.Kafka("topic")).',
        )
    check_declared(app)
    planner = _Planner(app=app, session=session, identity=identity)
    for sink in app.sinks.values():
        planner.add_sink(sink)
    return Plan(application=app.name, regions=tuple(planner.regions), state_partitions=app.state_partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """An internal log as its readers see it; `split` as in `_Draft`. `undetermined`: what makes it tentative."""

    source: SourceNode
    split: bool
    undetermined: Undetermined | None


@dataclass(kw_only=True)
class _Draft:
    """A region while it is being cut: where it begins, its steps so far, and the frame they lead to.

    `split`: the log it reads may hold several records that come from one record of the user's source.
    `inherited`, `own`: what makes its results tentative, in the log that it reads and in its own steps.
    """

    source: SourceNode
    reads_hop: bool
    split: bool
    node: Node
    frame: Frame
    keys: dict[str, int]
    processors: list[str] = field(default_factory=list)
    inherited: Undetermined | None = None
    own: Undetermined | None = None

    @property
    def undetermined(self) -> Undetermined | None:
        return self.inherited or self.own


@dataclass(kw_only=True)
class _Planner:
    app: App
    session: SparkSession
    identity: str
    regions: list[Region] = field(default_factory=list)
    logs: dict[str, _Log] = field(default_factory=dict)
    visiting: list[str] = field(default_factory=list)
    dead_letter_topics: set[str] = field(default_factory=set)

    def add_sink(self, sink: Sink) -> None:
        draft = self._read(sink.reads, sink.where, direct=True)
        missing = [key for key in sink.topic.keys if key not in draft.frame.columns]
        if missing:
            raise DefinitionError(
                "COLUMN_MISSING",
                f"sink {sink.name!r} has key {missing[0]!r}, which {sink.reads!r} has no column for.",
                where=sink.where,
                hint=f"Columns here: {', '.join(draft.frame.columns)}.",
                column=missing[0],
                columns=tuple(draft.frame.columns),
            )
        if draft.split and sink.delivery is Delivery.AT_MOST_ONCE:
            raise GuaranteeError(
                "DERIVATIVES_APART",
                f"hop {draft.source.name} lies between {sink.name!r} and a step that makes several records of one, "
                "so a failure could skip some of them and keep others: at-most-once can't be promised.",
                where=sink.where,
                hint="Key the source by what is grouped, so that no hop is needed, or ask for exactly-once.",
                sink=sink.name,
                hop=draft.source.topic.topic,
            )
        cause = draft.undetermined
        if cause is not None and sink.delivery is Delivery.AT_MOST_ONCE:
            raise GuaranteeError(
                "UNDETERMINED_OPERATION",
                f"{', '.join(cause.operations)} in {cause.processor!r} is not known to give the same result on a "
                f"replay, so at-most-once can't be promised of {sink.name!r}.",
                where=cause.where,
                hint="Compute it upstream and send it as data, or ask for exactly-once, which holds results back "
                'until they are in a checkpoint, or for delivery="repeated".',
                operations=cause.operations,
                processor=cause.processor,
                sink=sink.name,
            )
        columns.check_key(draft.frame, [f"`{key}`" for key in sink.topic.keys], sink.where)
        held = cause is not None and sink.delivery is Delivery.EXACTLY_ONCE
        self._close(
            draft,
            name=sink.name,
            output=replace(sink.topic, topic=self._internal(f"{sink.name}-held")) if held else sink.topic,
            hop=None,
            released_to=sink.topic if held else None,
            delivery=sink.delivery,
            where=sink.where,
        )

    def _internal(self, name: str) -> str:
        return f"falkirk.{self.app.name}.{self.identity}.{name}"

    def _read(self, name: str, where: SourceLocation, *, direct: bool) -> _Draft:
        """Return a draft whose frame is the output of the named source or processor."""
        if name in self.app.sources:
            return self._begin(self.app.sources[name])
        processor = self.app.processors.get(name)
        if processor is None:
            raise DefinitionError(
                "UNKNOWN_UPSTREAM",
                f"there is no source or processor named {name!r}.",
                where=where,
                hint=f"There are: {', '.join([*self.app.sources, *self.app.processors])}.",
                upstream=name,
            )
        shared = not isinstance(processor.policy, Ephemeral) and self._readers(name) > 1
        if name in self.logs:
            return self._begin_at(self.logs[name])
        if name in self.visiting:
            raise DefinitionError(
                "CYCLE",
                f"processor {name!r} reads its own output.",
                where=processor.where,
                hint="Let it read a source, or a processor that does not depend on it.",
                processor=name,
            )
        self.visiting.append(name)
        draft = self._process(processor)
        self.visiting.pop()
        if not shared and (direct or isinstance(processor.policy, Ephemeral)):
            return draft
        reason = f"{name} is not ephemeral and is read by others: its output is a log"
        self.logs[name] = self._hop(draft, f"{name}-out", (), reason, processor.where)
        return self._begin_at(self.logs[name])

    def _readers(self, name: str) -> int:
        return sum(name in p.reads for p in self.app.processors.values()) + sum(
            s.reads == name for s in self.app.sinks.values()
        )

    def _begin_at(self, log: _Log) -> _Draft:
        return replace(self._begin(log.source), reads_hop=True, split=log.split, inherited=log.undetermined)

    def _begin(self, source: SourceNode) -> _Draft:
        empty = self.session.createDataFrame([], frames.KAFKA_DDL)
        frame = frames.parse(empty, source.topic)
        missing = [key for key in source.topic.keys if key not in frame.columns]
        if missing:
            raise DefinitionError(
                "COLUMN_MISSING",
                f"source {source.name!r} is keyed by {missing[0]!r}, which its schema lacks.",
                where=source.topic.where,
                hint=f"Columns here: {', '.join(frame.columns)}.",
                column=missing[0],
                columns=tuple(frame.columns),
            )
        ids = columns.expression_ids(frame)
        keys = {key: ids[key] for key in source.topic.keys}
        return _Draft(source=source, reads_hop=False, split=False, node=source, frame=frame, keys=keys)

    def _process(self, processor: Processor) -> _Draft:
        if len(processor.reads) > 1:
            raise DefinitionError(
                "UNSUPPORTED_METHOD",
                f"live processor {processor.name!r} reads {len(processor.reads)} streams.",
                where=processor.where,
                hint="A live processor reads one stream for now.",
                processor=processor.name,
            )
        upstream = processor.reads[0]
        draft = self._read(upstream, processor.where, direct=False)
        result = processor.body(Stream(ProcessorNode(name=upstream)))
        if not isinstance(result, Stream) or root_of(result.node) != ProcessorNode(name=upstream):
            raise DefinitionError(
                "NOT_A_STREAM",
                f"processor {processor.name!r} returned {type(result).__name__}, not a stream made from what it reads.",
                where=processor.where,
                hint="Return the transformed stream.",
                processor=processor.name,
            )
        draft.processors.append(processor.name)
        for step in steps_of(result.node):
            draft = self._step(draft, step, processor)
        return draft

    def _step(self, draft: _Draft, step: Step, processor: Processor) -> _Draft:
        if step.operation in ("agg", "count"):
            frames.apply(draft.frame, step)  # the user's mistakes are told before ours is made
            keys = columns.plain_keys(draft.frame, step.arguments[0])
            reason = self._needs_sequencer(draft, keys)
            if reason is not None:
                if not all(isinstance(key, str) for key in keys):  # the hop's writer computes them too
                    keyed = draft.frame.data.select(*map(frames.key_column, keys))
                    _see(
                        draft, step, processor, determinism.operations(draft.frame.data), determinism.operations(keyed)
                    )
                name = self._unused(f"{processor.name}-by-{_key_label(keys)}")
                draft = self._begin_at(self._hop(draft, name, keys, reason, step.where))
                draft.processors.append(processor.name)
        before = draft.frame
        draft.frame = frames.apply(before, step)
        draft.node = replace(step, parent=draft.node)
        had, has = determinism.operations(before.data), determinism.operations(draft.frame.data)
        check_live(before, step, had, has)
        _see(draft, step, processor, had, has)
        return draft

    def _needs_sequencer(self, draft: _Draft, keys: tuple[Any, ...]) -> str | None:
        if draft.frame.keyed:
            return "a live query has one keyed step"
        label = _key_label(keys)
        if not draft.keys:
            return f"no key is declared for {draft.source.topic.topic}, so one {label} may come from several partitions"
        ids = columns.expression_ids(draft.frame)
        grouped = {ids.get(key) for key in keys if isinstance(key, str)}
        if set(draft.keys.values()) <= grouped:
            return None
        return f"{draft.source.topic.topic} is partitioned by {', '.join(draft.keys)}, not by {label}"

    def _hop(self, draft: _Draft, name: str, keys: tuple[Any, ...], reason: str, where: SourceLocation) -> _Log:
        """Close the draft with a log of its own, partitioned by `keys`, and return that log."""
        topic = self._internal(name)
        columns.check_key(draft.frame, keys, where)
        ddl = columns.hop_ddl(draft.frame, where)
        names = keys if all(isinstance(key, str) for key in keys) else ()
        self._close(
            draft,
            name=name,
            output=Kafka(topic, where=where),
            hop=Hop(topic=topic, keys=keys, reason=reason),
            released_to=None,
            delivery=Delivery.EXACTLY_ONCE,
            where=where,
        )
        source = SourceNode(name=name, topic=Kafka(topic, schema=ddl, key=names or None, where=where))
        return _Log(source=source, split=draft.split or draft.frame.depth > 0, undetermined=draft.undetermined)

    def _unused(self, name: str) -> str:
        """Return the name, or the first numbered form of it that no region has."""
        taken = {region.name for region in self.regions}
        numbered = (f"{name}-{i}" for i in itertools.count(2))
        return next(n for n in itertools.chain([name], numbered) if n not in taken)

    def _close(
        self,
        draft: _Draft,
        *,
        name: str,
        output: Kafka,
        hop: Hop | None,
        released_to: Kafka | None,
        delivery: Delivery,
        where: SourceLocation,
    ) -> None:
        if any(name == region.name or output.topic == region.output.topic for region in self.regions):
            raise DefinitionError(
                "NAME_TAKEN",
                f"{name!r} is what an internal log is called.",
                where=where,
                hint="Give it another name.",
                name=name,
            )
        if not draft.frame.columns:
            raise DefinitionError(
                "COLUMN_MISSING",
                f"nothing is left to write for {name!r}.",
                where=where,
                hint="Keep at least one column.",
            )
        lazy = [
            self.app.processors[p].policy for p in draft.processors
            if isinstance(self.app.processors[p].policy, Lazy)
        ]  # fmt: skip
        interval_s = min((p.interval_s for p in lazy if isinstance(p, Lazy)), default=Lazy().interval_s)
        dead = self._dead_letter_topic(draft, released_to or output, hop)
        self.regions.append(
            Region(
                name=name,
                processors=tuple(draft.processors),
                source=draft.source,
                reads_hop=draft.reads_hop,
                node=draft.node,
                output=output,
                hop=hop,
                released_to=released_to,
                deterministic=draft.own is None,
                undetermined=draft.undetermined,
                delivery=delivery,
                interval_s=interval_s,
                stateful=draft.frame.keyed,
                where=where,
                dead_letter_topic=dead,
                fingerprint=fingerprint(
                    draft.source.topic.topic,
                    output,
                    released_to,
                    dead,
                    draft.node,
                    draft.frame,
                    self.app.state_partitions,
                ),
            )
        )

    def _dead_letter_topic(self, draft: _Draft, output: Kafka, hop: Hop | None) -> str:
        """Return a topic of the region's own, since its tail is read on recovery; named by what its users know."""
        source = draft.source.topic
        named = output.dead_letters or (None if draft.reads_hop else source.dead_letters)
        familiar = source.topic if hop is not None and not draft.reads_hop else output.topic
        declared = {source.topic.topic for source in self.app.sources.values()}
        declared |= {sink.topic.topic for sink in self.app.sinks.values()}
        others: tuple[str, ...] = (f"{familiar}.dead-letters", f"{output.topic}.dead-letters")
        if output.dead_letters is not None or named in declared:  # asked for, so nothing else will do
            others = ()
        for topic in (named, *others):
            if topic is not None and topic not in self.dead_letter_topics | declared:
                self.dead_letter_topics.add(topic)
                return topic
        raise DefinitionError(
            "TOPIC_SHARED",
            f"dead-letter topic {named!r} has another use.",
            where=output.where,
            hint="Give each sink a dead-letter topic of its own.",
            topic=named,
        )


def _see(draft: _Draft, step: Step, processor: Processor, had: Collection[str], has: Collection[str]) -> None:
    """Remember the first operations that may come out differently on a replay."""
    operations = determinism.undetermined(had, has)
    if operations and draft.own is None:
        draft.own = Undetermined(operations=operations, processor=processor.name, where=step.where)


def _key_label(keys: tuple[Any, ...]) -> str:
    """Return a grouping key as part of a name; what is no plain column is called "key"."""
    named = [re.sub("[^A-Za-z0-9_]+", "-", key).strip("-") for key in keys if isinstance(key, str)]
    return "-".join(filter(None, named)) if len(named) == len(keys) and any(named) else "key"
