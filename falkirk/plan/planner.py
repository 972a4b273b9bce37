"""Planner: cuts a declared graph into regions, checks every step against Spark, and gives a reason for each hop.

It applies the recorded steps of each sink to empty DataFrames, from the source on, and reads no data. A region ends
  * before a keyed step if records of one key may come from several partitions. Their order is non-deterministic, so a
    sequencer hop records it;
  * before a second keyed step that can't be in one query with the first one (chains.py);
  * after a processor that is not ephemeral and that others read. Its output is a log;
  * after an ephemeral processor with several readers, if they would see different values.
All other steps are fused.

If a value may differ on a replay and results could contradict it (live_determinism.py), these results are tentative,
and so is everything computed from them. An exactly-once sink of tentative results gets a held log, from which results
are released once they can't become invalid any more.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from falkirk.declare.application import Application
from falkirk.declare.endpoints import Kafka
from falkirk.declare.nodes import NEWEST_ROW, Node, SourceNode, Step, all_steps_of, steps_of
from falkirk.declare.parts import DeclaredProcessor, DeclaredSink
from falkirk.declare.policy import Delivery, Ephemeral
from falkirk.errors.conditions.plan import (
    COLUMN_MISSING_ALL,
    CYCLE,
    NAME_TAKEN_LOG,
    NAME_TAKEN_REGION,
    SINK_MISSING,
    UNKNOWN_UPSTREAM,
    UNSUPPORTED_METHOD,
)
from falkirk.errors.location import SourceLocation
from falkirk.kafka_client.internal import internal_topic
from falkirk.plan import chains, event_time, joins, mechanisms, objective, promises, python_steps, unions
from falkirk.plan.batches import BatchPlanner
from falkirk.plan.direct import as_direct
from falkirk.plan.draft import Draft, Log, begin_draft
from falkirk.plan.engines import in_engines
from falkirk.plan.fingerprint import DECIDING, KEYED, fingerprint
from falkirk.plan.plan import Plan
from falkirk.plan.recordings import Recordings, begins_at, node_of
from falkirk.plan.refusals import check_live_step, check_not_files
from falkirk.plan.region import Hop, Region
from falkirk.plan.requests import bound, plan_push
from falkirk.plan.topics import check_declared, dead_letter_topic
from falkirk.spark_setup.cluster_plugin import reaches_driver
from falkirk.steps.dataframes.empty import no_rows
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.stamped import Frame
from falkirk.steps.sources.topics import kafka_schema, parse_records, parsing
from falkirk.steps.sources.written import check_written
from falkirk.steps.static_analysis import columns, determinism
from falkirk.steps.static_analysis.formula import deciding_formulas
from falkirk.steps.static_analysis.functions import DATED, ITSELF
from falkirk.steps.static_analysis.properties import IntroducedOperations, Properties, of_live


def plan_application(app: Application, session: SparkSession, identity: str) -> Plan:
    """Return the regions of a declared application, which stays as it is. Two calls give the same plan.

    Args: identity: the home's; part of the names of internal topics, so that two homes never share one.
    Raises: DefinitionError, GuaranteeError: with the user's line.
    """
    if not app.sinks:
        raise SINK_MISSING.error(app=app.name)
    app = bound(app, identity)
    check_declared(app)
    recordings, not_live = Recordings(), dict[str, str]()
    while True:
        try:
            return _plan(app, session, identity, recordings, not_live)
        except event_time.NotLiveError as found:  # in the next round it is not planned live
            not_live[found.processor] = found.reason


def _plan(
    app: Application, session: SparkSession, identity: str, recordings: Recordings, not_live: Mapping[str, str]
) -> Plan:
    """Return the plan. Args: not_live: see `in_engines`. Raises: NotLiveError: one more processor is not live."""
    app = in_engines(app, recordings, holds_views=reaches_driver(session), not_live=not_live)
    planner = _Planner(app=app, session=session, identity=identity, recordings=recordings)
    for sink in app.sinks.values():
        planner.add_sink(sink)
    for region in planner.regions:
        mechanisms.check_home(app, session, region)
        if any(region.name == batch.name for batch in planner.batches.planned):
            raise NAME_TAKEN_REGION.error(where=region.where, name=region.name)
    regions, batches = tuple(planner.regions), as_direct(planner.regions, planner.batches.planned, session)
    return Plan(
        application=app.name,
        regions=regions,
        batches=batches,
        push=plan_push(app, identity, regions, batches),
        properties=planner.properties | {batch.name: batch.properties for batch in batches},
        state_partitions=app.state_partitions,
        spare_checkpoints=app.spare_checkpoints,
        transactional=mechanisms.has_transactional_sinks(app, session),
    )


@dataclass(kw_only=True)
class _Planner:
    app: Application
    session: SparkSession
    identity: str
    recordings: Recordings
    begun: dict[tuple[str, str], Frame] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)
    batches: BatchPlanner = field(init=False)
    properties: dict[str, Properties] = field(default_factory=dict)
    logs: dict[str, Log] = field(default_factory=dict)
    visiting: list[str] = field(default_factory=list)
    dead_letter_topics: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.batches = BatchPlanner(self.app, self.session, self)

    def add_sink(self, sink: DeclaredSink) -> None:
        if sink.reads in self.app.processors and self.app.processors[sink.reads].cut is not None:
            self.batches.add(self.app.processors[sink.reads])
            return
        promises.check_live_sink(sink)
        draft = self._read(sink.reads, sink.where, direct=True)
        promises.check_sink_key(sink, draft.frame.columns)
        draft.differences.see_key(draft.frame, [F.col(f"`{key}`") for key in sink.topic.keys])
        cause = draft.undetermined
        mechanisms.check_promise(sink, cause, draft.repeated_by)
        promises.check_at_most_once(sink, split=draft.source.topic.topic if draft.split else None, cause=cause)
        columns.check_partition_key(draft.frame, [f"`{key}`" for key in sink.topic.keys], sink.where)
        check_written(sink, draft.frame.data, draft.frame.columns)
        held = cause is not None and sink.delivery in mechanisms.HELD
        self._close(
            draft,
            name=sink.name,
            output=replace(sink.topic, topic=self._internal(f"{sink.name}-held")) if held else sink.topic,
            hop=None,
            released_to=sink.topic if held else None,
            delivery=sink.delivery,
            where=sink.where,
        )

    def log_of(self, name: str, where: SourceLocation) -> tuple[SourceNode, Frame, tuple[str, ...]]:
        """Return the log of a source or live processor for a reader that is not a live region.

        Returns: the log, its frame, and the columns of the key for whose every change it has a record.
        Raises: as `plan_application`.
        """
        if name in self.app.sources:
            source = self.app.sources[name]
            return source, self._begin(source).frame, ()
        draft = self._read(name, where, direct=False, logged=True)
        mechanisms.check_batch(draft.repeated_by, where)
        return draft.source, draft.frame, self.logs[name].grouped_by

    def _internal(self, name: str) -> str:
        return internal_topic(self.app.name, self.identity, name)

    @contextmanager
    def visit(self, processor: DeclaredProcessor) -> Iterator[None]:
        """Refuse a processor that reads itself, while its inputs are planned."""
        if processor.name in self.visiting:
            raise CYCLE.error(where=processor.where, processor=processor.name)
        self.visiting.append(processor.name)
        yield
        self.visiting.pop()

    def _read(self, name: str, where: SourceLocation, *, direct: bool, logged: bool = False) -> Draft:
        """Return a draft whose frame is the output of the named source or processor.

        Args: direct: the reader is a sink that writes it unchanged. logged: the reader is not a live region, and needs
            a log.
        """
        if name in self.app.sources:
            return self._begin(self.app.sources[name])
        if parts := sorted(self.app.lists.get(name, ())):
            return unions.begin_at_list([self._begin(self.app.sources[part]) for part in parts], where)
        check_not_files(self.app, name, where)
        processor = self.app.processors.get(name)
        if processor is None:
            raise UNKNOWN_UPSTREAM.error(
                where=where,
                upstream=name,
                known=", ".join([*self.app.sources, *self.app.lists, *self.app.folders, *self.app.processors]),
            )
        assert processor.cut is None, "a reader of a batch runs in micro-batches too (engines.py)"
        if name in self.logs:
            return self._begin_at(self.logs[name])
        with self.visit(processor):
            draft = self._process(processor)
        shared = self._readers(name) > 1
        fused = direct or isinstance(processor.policy, Ephemeral)
        if fused and not logged and not mechanisms.is_logged(processor.policy, draft, shared=shared):
            return draft
        reason = f"a batch reads {name}, and batches read topics" if logged else mechanisms.why_logged(processor, draft)
        self.logs[name] = self._hop(draft, f"{name}-out", (), reason, processor.where)
        return self._begin_at(self.logs[name])

    def _readers(self, name: str) -> int:
        return sum(name in p.reads for p in self.app.processors.values()) + sum(
            s.reads == name for s in self.app.sinks.values()
        )

    def _begin_at(self, log: Log) -> Draft:
        draft = replace(self._begin(log.source), reads_hop=True, split=log.split, inherited=log.undetermined)
        return replace(draft, repeated_by=log.repeated_by)

    def _begin(self, source: SourceNode) -> Draft:
        known = source.name, source.topic.topic
        if (frame := self.begun.get(known)) is None:
            rows = no_rows(self.session, kafka_schema())
            frame = self.begun[known] = parse_records(rows, parsing(source.topic, self.session, planned=True))
        return begin_draft(source, frame)

    def _process(self, processor: DeclaredProcessor) -> Draft:
        node = node_of(self.recordings.first(processor))
        if joins.is_join(steps_of(node)):
            return self._join(processor)
        if unions.has_union(node):
            return self._unite(processor, node)
        upstream, *more = [read for read in processor.reads if read not in processor.views]
        if more:
            raise UNSUPPORTED_METHOD.error(where=processor.where, processor=processor.name, reads=1 + len(more))
        draft = self._read(upstream, processor.where, direct=False)
        if not begins_at(node, upstream, self.app.sources.get(upstream)):
            raise unions.no_stream(processor, self.recordings)
        return self._apply(draft, steps_of(node), processor, IntroducedOperations())

    def _unite(self, processor: DeclaredProcessor, node: Node) -> Draft:
        """Return a draft that begins at all sources of a union."""
        introduced, (union, after) = IntroducedOperations(), unions.split_at_union(node)

        def begin(root: Node) -> Draft:
            name = unions.upstream_of(root, processor, self.app, self.recordings)
            return self._read(name, processor.where, direct=False)

        draft = unions.draft_after_unions(
            union, begin, lambda side, step: self._step(side, step, processor, introduced), introduced
        )
        return self._apply(draft, after, processor, introduced, every=all_steps_of(node))

    def _join(self, processor: DeclaredProcessor) -> Draft:
        """Return a draft that begins at all sources of joins."""
        node, introduced = node_of(self.recordings.first(processor)), IntroducedOperations()
        joined, after = joins.split_at_join(node)

        def drafted(node: Node) -> Draft:
            draft = self._begin(self.app.sources[joins.side_source(node, processor, self.app.sources)])
            for step in steps_of(node):
                if step.operation == event_time.JOIN:
                    draft = joins.join_drafts(draft, drafted(step.arguments[0].node), step, processor, introduced)
                else:
                    draft = self._step(draft, step, processor, introduced)
            return draft

        return self._apply(drafted(joined), after, processor, introduced, every=steps_of(node))

    def _apply(
        self, draft: Draft, steps: Sequence[Step], processor: DeclaredProcessor, introduced: IntroducedOperations,
        every: Sequence[Step] | None = None,
    ) -> Draft:  # fmt: skip
        """Return the draft after the steps of a processor. Args: every: all of its steps, if these are not all."""
        mechanisms.enter(draft, processor)
        for step in steps:
            draft = self._step(draft, step, processor, introduced)
        if processor.assertion is None and DATED in introduced.own | introduced.logged:
            draft.differences.fail(DATED, processor)
        if self.recordings.differ(processor):
            draft.differences.fail(ITSELF, processor)
            introduced.own.add(ITSELF)
        remaining = introduced.remaining(draft.frame)
        self.properties[processor.name] = of_live(every or steps, remaining, processor.assertion)
        mechanisms.leave(draft, processor)
        return draft

    def _step(self, draft: Draft, step: Step, processor: DeclaredProcessor, introduced: IntroducedOperations) -> Draft:
        """Return the draft with one more step. Args: introduced: receives the operations that the step introduces."""
        python_steps.check_options(step)
        step = self.batches.with_view(step, processor, self.identity)
        after: Frame | None = None
        if step.operation in ("agg", "count", "stateful", NEWEST_ROW) and not event_time.is_timed(step):
            after = frames.apply(draft.frame, step)  # report the user's mistakes before a hop is planned
            grouped = python_steps.grouped_by(step)
            keys = columns.plain_keys(draft.frame, grouped, columns.check_group(draft.frame, grouped, step.where))
            reason = chains.needs_hop(draft, step, keys, step.operation) or mechanisms.before_keyed(draft, processor)
            if reason is not None:
                if not all(isinstance(key, str) for key in keys) and processor.assertion is None:
                    keyed = draft.frame.data.select(*map(frames.key_column, keys))  # the hop's writer computes them too
                    had, has = determinism.operations(draft.frame.data), determinism.operations(keyed)
                    draft.differences.note(determinism.undetermined(had, has), processor, step)
                introduced.log(draft.frame)
                name = self._unused(f"{processor.name}-by-{columns.key_label(keys)}")
                draft = replace(self._begin_at(self._hop(draft, name, keys, reason, step.where)), ordered_by=name)
                mechanisms.enter(draft, processor)
                after = None  # the step begins at the hop
            draft.note_key(keys)
        before = draft.frame
        if event_time.is_timed(step):
            grouped = event_time.timed_keys(before, step)
            event_time.check_keyed_step(before, step, processor, grouped, chains.needs_hop(draft, step, grouped))
            draft.note_key(grouped)
        draft.note_step(step, frames.apply(before, step) if after is None else after)
        if step.operation in DECIDING:
            decided = deciding_formulas(draft.frame.data, event_time.deciding_columns(step, draft.frame), draft.began)
            draft.decided = "; ".join([decided, *draft.united, *([draft.decided] if draft.is_chain else [])])
        had, has = determinism.operations(before.data), determinism.operations(draft.frame.data)
        is_join = joins.is_join(steps_of(node_of(self.recordings.first(processor))))
        called = python_steps.udfs_of(before, draft.frame, step, had, has, is_join=is_join)
        draft.called += called
        draft.keeps_tracebacks |= step.operation in KEYED and bool(draft.called)
        has = python_steps.operations_after(step, had, has, called)
        check_live_step(before, step, had, has)
        introduced.own |= (has - had).keys()
        draft.differences.see(processor, step, before, draft.frame, had, has, called)
        return draft

    def _hop(self, draft: Draft, name: str, keys: tuple[Any, ...], reason: str, where: SourceLocation) -> Log:
        """Close the draft with a new log, partitioned by `keys`, and return that log."""
        topic = self._internal(name)
        columns.check_partition_key(draft.frame, keys, where)
        draft.differences.see_key(draft.frame, keys)
        ddl = columns.hop_ddl(draft.frame, where)
        names = keys if all(isinstance(key, str) for key in keys) else ()
        self._close(
            draft, name=name, output=Kafka(topic, where=where), hop=Hop(topic=topic, keys=keys, reason=reason),
            released_to=None, delivery=Delivery.EXACTLY_ONCE, where=where,
        )  # fmt: skip
        source = SourceNode(name=name, topic=Kafka(topic, schema=ddl, key=names or None, where=where), is_hop=True)
        return Log(
            source=source,
            split=draft.split or draft.frame.depth > 0,
            undetermined=draft.undetermined,
            repeated_by=draft.repeated_by,
            grouped_by=draft.frame.grouped_by if set(draft.frame.grouped_by) <= set(draft.frame.columns) else (),
        )

    def _unused(self, name: str) -> str:
        """Return the name, or its first numbered form that no region has."""
        taken = {region.name for region in self.regions}
        numbered = (f"{name}-{i}" for i in itertools.count(2))
        return next(n for n in itertools.chain([name], numbered) if n not in taken)

    def _close(
        self, draft: Draft, *, name: str, output: Kafka, hop: Hop | None, released_to: Kafka | None,
        delivery: Delivery, where: SourceLocation,
    ) -> None:  # fmt: skip
        if any(name == region.name or output.topic == region.output.topic for region in self.regions):
            raise NAME_TAKEN_LOG.error(where=where, name=name)
        joins.check_determined(draft, delivery, where)
        unions.check_delivery(draft, delivery, where)
        if not draft.frame.columns:
            raise COLUMN_MISSING_ALL.error(where=where, name=name)
        policy = mechanisms.governing(self.app.processors[p].policy for p in draft.processors)
        is_transactional = mechanisms.has_transactional_sinks(self.app, self.session)
        is_internal = hop is not None or released_to is not None
        dead = dead_letter_topic(
            self.app, draft.source, released_to or output, self.dead_letter_topics,
            reads_hop=draft.reads_hop, writes_hop=hop is not None,
        )  # fmt: skip
        region = Region(
            name=name,
            processors=tuple(draft.processors),
            source=draft.source,
            reads_hop=draft.reads_hop,
            node=draft.node,
            output=output,
            hop=hop,
            released_to=released_to,
            record_bytes=columns.record_bytes(draft.frame),
            deterministic=draft.differences.matters is None,
            undetermined=draft.undetermined,
            varying=draft.differences.harmless,
            assertions=draft.differences.assertions,
            delivery=mechanisms.kept_promise(policy, delivery),
            interval_s=policy.interval_s,
            policy=policy,
            repeated_by=draft.repeated_by,
            # Readers of internal logs skip late records (falkirk/kafka_client/void.py).
            transactional=is_transactional and not is_internal,
            transactional_letters=is_transactional and is_internal,
            stateful=draft.frame.keyed, where=where,
            dead_letter_topic=dead,
            joined=draft.joined, join_places=draft.join_places, others=draft.others,
            keyed_by=draft.keyed_by, sharded_by=draft.sharded_by if draft.is_chain else (),
            longest_call_s=python_steps.longest_call_s(all_steps_of(draft.node), calls_udfs=bool(draft.called)),
            fingerprint=fingerprint(
                [each.topic.topic for each in draft.sources], output, released_to, dead, draft.node, draft.frame,
                self.app.state_partitions, keys=output.keys if hop is None else hop.keys, began=draft.began,
                decided=draft.decided, shards=draft.shards, called=draft.called,
                keeps_tracebacks=draft.keeps_tracebacks,
            ),
        )  # fmt: skip
        mechanisms.check_twins(region, self.session)
        self.regions.append(objective.chosen(region))
