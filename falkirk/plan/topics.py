"""Topics of a plan: creates Falkirk's own topics (hops, held logs, dead letters), and checks the user's topics."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from falkirk.declare.application import Application
from falkirk.declare.endpoints import EpochTopic, Files, Kafka
from falkirk.declare.lake import Delta
from falkirk.declare.nodes import SourceNode, steps_of
from falkirk.declare.parts import DeclaredSink
from falkirk.declare.sink import OwnSink
from falkirk.errors import LogError
from falkirk.errors.conditions.plan import (
    FOLDER_SHARED,
    INPUT_COMPACTED,
    INPUT_EXPIRED,
    INPUT_EXPIRES,
    PATTERN_MISPLACED_SINK,
    RANGE_NOT_THERE_INPUT,
    SINK_COMPACTED,
    SINK_SHARED,
    TOPIC_SHARED,
    TOPIC_SHARED_BY_SOURCE,
    TOPIC_SHARED_CLUSTER,
    TOPIC_SHARED_SINKS,
    TOPIC_SHARED_SOURCE,
)
from falkirk.kafka_client.internal import KEEP
from falkirk.kafka_client.topics import TopicFacts, Topics
from falkirk.plan.batch import Batch
from falkirk.plan.lake import check_package
from falkirk.plan.patterns import names_cluster, topic_of
from falkirk.plan.plan import Plan
from falkirk.plan.region import Region
from falkirk.theory.ids import LogId, Offset, cluster_of, topic_name

#: Processors whose topics are prepared at the same time. A broker takes some 50 ms for each new topic.
_AT_ONCE = 8
_CENTURY_MS = 100 * 365 * 86_400_000
#: A cluster that a sink names says within this time which one it is.
_CLUSTER_S = 3.0


def check_declared(app: Application) -> None:
    """Check that no two declared topics or folders conflict.

    Raises: DefinitionError: `TOPIC_SHARED`, `FOLDER_SHARED`, `SINK_SHARED`, `PACKAGE_MISSING`, `PATTERN_MISPLACED`.
    """
    written: dict[str, DeclaredSink] = {}
    own: dict[str, str] = {}
    folders = {Path(files.path).absolute(): name for name, files in app.folders.items()}
    for sink in app.sinks.values():
        check_package(sink)
        if sink.reads in app.patterns:
            raise PATTERN_MISPLACED_SINK.error(where=sink.where, sink=sink.name, source=sink.reads)
        if isinstance(sink.to, Files | Delta) and (reader := folders.get(Path(sink.to.path).absolute())):
            raise FOLDER_SHARED.error(where=sink.where, folder=sink.to.path, sink=sink.name, reader=reader)
        if (
            isinstance(sink.to, OwnSink | EpochTopic)
            and (other := own.setdefault(sink.to.address, sink.name)) != sink.name
        ):
            raise SINK_SHARED.error(where=sink.where, address=sink.to.address, other=other, sink=sink.name)
        to = topic_of(sink.to, app)
        if to is None:
            continue
        if to.topic in written:
            raise TOPIC_SHARED_SINKS.error(
                where=sink.where, topic=to.topic, name=written[to.topic].name, sink=sink.name
            )
        written[to.topic] = sink
    for source in app.sources.values():
        if source.topic.topic in written:
            raise TOPIC_SHARED_SOURCE.error(
                where=source.topic.where,
                topic=source.topic.topic,
                source=source.name,
                name=written[source.topic.topic].name,
            )


def dead_letter_topic(
    app: Application, reads: SourceNode, output: Kafka, taken: set[str], *, reads_hop: bool, writes_hop: bool
) -> LogId:
    """Return a free dead-letter topic for a live region, and mark it as taken.

    Each live region needs its own, because recovery reads the topic's tail. Its name contains a topic that users know.

    Raises: DefinitionError: `TOPIC_SHARED`.
    """
    source = reads.topic
    named = output.dead_letters or (None if reads_hop else source.dead_letters)
    familiar = source.name if writes_hop and not reads_hop else output.topic
    declared = {source.topic.topic for source in app.sources.values()}
    declared |= {to.topic for sink in app.sinks.values() if (to := topic_of(sink.to, app)) is not None}
    others: tuple[str, ...] = (f"{familiar}.dead-letters", f"{output.topic}.dead-letters")
    if output.dead_letters is not None or named in declared:  # the user named it, so no other topic fits
        others = ()
    for topic in (named, *others):
        if topic is not None and topic not in taken | declared:
            taken.add(topic)
            return LogId(topic)
    raise TOPIC_SHARED.error(where=output.where, topic=named)


def prepare_topics(plan: Plan, topics: Topics, *, create_missing: bool = False, partitions: int = 2) -> None:
    """Create hops, held logs and dead-letter topics; check, or with `create_missing` create, sources and sinks.

    Raises: LogError: `TOPIC_MISSING` with the user's line; `PARTITION_COUNT_DIFFERS` for a hop or a held log;
        `SINK_COMPACTED` for a sink with a held log; `BROKER_AWAY`.
    """
    for push in plan.push:
        topics.create(push.topic.topic, plan.state_partitions, KEEP)
    for clock in plan.clocks:
        topics.create(clock.topic, 1, KEEP)
    outside = _Outside(topics=topics, create_missing=create_missing, partitions=partitions)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        begun = [pool.submit(_prepare_region, region, outside, plan.state_partitions) for region in plan.regions]
        begun += [pool.submit(_prepare_batch, batch, outside) for batch in plan.batches]
    for each in begun:
        each.result()


def refuse_shared_on_same_cluster(plan: Plan, topics: Topics) -> None:
    """Check that a sink or a source which names a cluster shares no topic with another part of the application.

    A cluster may have several names, so `check_declared` does not see it. Two clusters may have the same id, which
    examples of Kafka's image fix, so the ids of the topic are compared as well. A cluster that does not answer is left
    out: that of the application answers.
    Raises: DefinitionError: `TOPIC_SHARED`.
    """
    sources = [each.topic for batch in plan.batches for each in batch.inputs if each.topic is not None]
    sources += [source.topic for region in plan.regions for source in region.sources]
    used: set[str | None] = {batch.dead_letter_topic for batch in plan.batches} | {each.topic for each in sources}
    used |= {sink.to.topic for batch in plan.batches for sink in batch.sinks if isinstance(sink.to, Kafka)}
    for region in plan.regions:
        used |= {(region.released_to or region.output).topic, region.dead_letter_topic}
    for sink in [sink for batch in plan.batches for sink in batch.sinks]:
        if not names_cluster(to := sink.to):
            continue
        for topic in sorted(t for t in used if t is not None and topic_name(t) == to.topic):
            if _are_one(Topics(to.cluster, timeout_s=_CLUSTER_S), to.topic, topics, topic):
                raise TOPIC_SHARED_CLUSTER.error(where=sink.where, topic=to.address, sink=sink.name)
    for each in sources:
        if each.cluster and each.name in used and _are_one(topics, each.topic, topics, each.name):
            raise TOPIC_SHARED_BY_SOURCE.error(where=each.where, topic=each.name, cluster=each.cluster)


def _are_one(there: Topics, its: str, topics: Topics, topic: str) -> bool:
    """Return whether two ids mean one topic. Args: there, its: one of them. topics, topic: the other one."""
    with suppress(LogError):
        return there.cluster(its) == topics.cluster(topic) and _id(there, its) == _id(topics, topic)
    return False


def _id(topics: Topics, topic: str) -> str | None:
    return topics.identity(topic) if topics.exists(topic) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outside:
    """The user's topics. Args: create_missing, partitions: create those that are missing, with this many partitions."""

    topics: Topics
    create_missing: bool
    partitions: int

    def require(self, topic: str, where: object) -> None:
        """Check that a topic exists, or create it. Raises: LogError: `TOPIC_MISSING`."""
        if self.create_missing and not cluster_of(topic) and not self.topics.exists(topic):
            self.topics.create(topic, self.partitions, {})
            return
        try:
            self.topics.facts(topic)
        except LogError as error:
            if error.condition == "TOPIC_MISSING":
                cluster = cluster_of(topic)
                error.where = f"{where}, on cluster {cluster}" if cluster else where
                if not cluster:
                    error.hint = f"{error.hint} Create it, or add --create-topics (in Python: create_topics=True)."
            raise


def _prepare_region(region: Region, outside: _Outside, state_partitions: int) -> None:
    topics, output = outside.topics, region.released_to or region.output
    for topic, where, internal in (
        *((each.topic.topic, each.topic.where, each.is_hop) for each in region.sources),
        (output.topic, region.where, region.hop is not None),
    ):
        if internal:
            topics.create(topic, state_partitions, KEEP)
        else:
            outside.require(topic, where)
    if region.released_to is not None:
        facts = topics.facts(output.topic)
        refuse_compacted(facts, region.where)
        # Records of the held log must also fit into the sink's topic.
        limit = {"max.message.bytes": str(facts.max_message_bytes)}
        topics.create(region.output.topic, facts.partitions, KEEP | limit)
    if not topics.exists(region.dead_letter_topic):
        topics.create(region.dead_letter_topic, 1, KEEP)


def _prepare_batch(batch: Batch, outside: _Outside) -> None:
    named = [(i.topic.topic, batch.where) for i in batch.inputs if i.topic is not None and not i.reads_hop]
    named += [(sink.to.topic, sink.where) for sink in batch.sinks if isinstance(sink.to, Kafka)]
    for topic, where in named:
        outside.require(topic, where)
    if batch.dead_letter_topic is not None and not outside.topics.exists(batch.dead_letter_topic):
        outside.topics.create(batch.dead_letter_topic, 1, KEEP)


def notes_on_clocks(plan: Plan, topics: Topics) -> tuple[str, ...]:
    """Return a note for each topic whose producers choose the clock by which a live region refuses future times.

    A replay must refuse the same records, so the clock is the timestamp of each record: it is in the log, and so is
    nothing else that was known when the record arrived.
    Raises: LogError.
    """
    requests = {push.topic.topic for push in plan.push}  # the gateway is their producer
    notes: dict[str, str] = {}
    for region in plan.regions:
        sides = [region.steps(), *(steps_of(s.arguments[0].node) for s in region.steps() if s.operation == "timedJoin")]
        ahead_us = [s.arguments[0].ahead_us for steps in sides for s in steps if s.operation == "withWatermark"]
        if not ahead_us:
            continue
        ahead_s = max(ahead_us) / 1_000_000
        for topic in {source.topic.topic for source in region.sources} - requests:
            facts = topics.facts(topic)
            if facts.message_timestamp_type != "LogAppendTime":
                notes[topic] = _note_on_clock(facts, ahead_s)
    return tuple(notes[topic] for topic in sorted(notes))


def _note_on_clock(facts: TopicFacts, ahead_s: float) -> str:
    after_ms = facts.timestamp_after_max_ms
    is_any = after_ms is None or after_ms > _CENTURY_MS
    far = "any length of time" if is_any or after_ms is None else f"{ahead_s + after_ms / 1000:g} s"
    return (
        f"topic {facts.topic}: its producers choose the timestamps from which ahead= counts. Whoever may write it can "
        f"make later records of a partition late by {far}. With message.timestamp.type=LogAppendTime it is "
        f"{ahead_s:g} s."
    )


def refuse_compacted(facts: TopicFacts, where: object) -> None:
    """Check that an output topic keeps every record, because the stamps show which results are published.

    Raises: LogError: `SINK_COMPACTED`.
    """
    if "compact" in facts.cleanup_policy:
        raise SINK_COMPACTED.error(where=where, topic=facts.topic)


def refuse_forgetful(facts: TopicFacts, where: object, interval_s: float) -> None:
    """Check that an input topic keeps the records that a replay reads again.

    Args: interval_s: the time between checkpoints or saved states. A replay may read at least this much input.
    Raises: LogError: `INPUT_COMPACTED`, `INPUT_EXPIRES`.
    """
    if "compact" in facts.cleanup_policy:
        raise INPUT_COMPACTED.error(where=where, topic=facts.topic)
    if 0 <= facts.retention_ms < 1000 * interval_s:
        raise INPUT_EXPIRES.error(
            where=where, topic=facts.topic, retention_s=facts.retention_ms / 1000, interval_s=interval_s
        )


def refuse_shorter(topic: Kafka, needed: Mapping[int, Offset], ends: Mapping[int, Offset]) -> None:
    """Check that an input topic still reaches the position up to which it was read.

    Args: needed: the position from which to read, per partition. ends: the topic's ends.
    Raises: LogError: `RANGE_NOT_THERE`.
    """
    for partition, end in ends.items():
        if end < needed.get(partition, 0):
            raise RANGE_NOT_THERE_INPUT.error(
                where=topic.where, topic=topic.topic, partition=partition, end=end, needed=needed[partition]
            )


def refuse_expired(
    topic: Kafka, first: Mapping[int, Offset], last: Mapping[int, Offset], oldest: Mapping[int, Offset]
) -> None:
    """Check that an input topic still has the records [first, last). Raises: LogError: `INPUT_EXPIRED`."""
    for partition, end in last.items():
        if first.get(partition, 0) < min(end, oldest.get(partition, 0)):
            raise INPUT_EXPIRED.error(where=topic.where, topic=topic.topic, partition=partition)
