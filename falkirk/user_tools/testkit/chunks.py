"""Chunks: computes the results of a live region that has event time, or a state of the user's, on records in memory.

In a query, operators of the Java module keep the states of these steps. Here the operators of micro-batches compute
them, which mean the same, on one chunk of the input after another. The results of an operator have no stamps, so each
gets one of its chunk, with its place there. A replay has the same chunks. So the stamps are the same too, and the
barrier drops the published results.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, reduce
from typing import Any, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from falkirk.declare.nodes import UNIONS, Node, Step
from falkirk.declare.parts import DeclaredProcessor
from falkirk.plan.batch import STAMP_TYPE
from falkirk.plan.event_time import JOIN, TIMED
from falkirk.plan.region import Region
from falkirk.runtime.spark import rows
from falkirk.runtime.spark.rows import RAW_BYTES_MAX
from falkirk.steps.batch.call import EpochContext, calling, current
from falkirk.steps.batch.in_epoch import BatchState, StatefulCall
from falkirk.steps.batch.loop_files import LoopFiles
from falkirk.steps.batch.python import KIND
from falkirk.steps.batch.replay import Replay
from falkirk.steps.batch.running import RUNNING, updated
from falkirk.steps.dataframes.empty import known_empty
from falkirk.steps.dataframes.names import BAD, STAMP
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.stamped import Frame, good, is_good
from falkirk.steps.sources.topics import dead_letter, parse_records, parsing
from falkirk.theory.ids import Incarnation
from falkirk.user_tools.testkit.place import kafka_rows
from falkirk.user_tools.testkit.steps import Records, RegionResult, read_result, release_of
from falkirk.user_tools.testkit.world import Chunk

#: The steps that are computed so.
_STEPS = (*TIMED, JOIN, "stateful")
#: The steps that the operators of micro-batches compute, and unions. All others are those of a query.
_OF_BATCHES = (*_STEPS, "withWatermark", *UNIONS)
_PLACE = ("source", "partition", "offset")


def needs_chunks(region: Region) -> str:
    """Return the step because of which a region is computed in chunks; empty: it has none."""
    return next((step.operation for step in region.steps() if step.operation in _STEPS), "")


class ChunkSteps:
    """The steps of one live region, computed in chunks.

    Attributes: spark_reason: why Spark computes the results.
    """

    def __init__(self, region: Region, session: SparkSession, identity: str) -> None:
        self._region, self._session, self._identity = region, session, identity
        self.spark_reason = needs_chunks(region)
        operations = [step.operation for step in region.steps()]
        first = next(
            (place for place, each in enumerate(operations) if each in ("windows", "stateful")), len(operations)
        )
        self._has_order = not {*RUNNING, "stateful"}.isdisjoint(operations[first + 1 :])
        # The operators know only the name and the line.
        self._processor = cast(DeclaredProcessor, region)

    def compute(
        self, chunk: Chunk, records: Sequence[Records], state: BatchState | None, incarnation: Incarnation
    ) -> tuple[list[RegionResult], BatchState]:
        """Return the results of a chunk, with increasing stamps, and the state after it.

        Args: records: of each source. state: before the chunk, as a former call returned it; None: the initial state.
        """
        given, unfit = dict[str, DataFrame](), list[DataFrame]()
        for number, source in enumerate(self._region.sources):
            if not records[number]:
                given[source.name] = known_empty(self._session, self._schemas[number])
                continue
            frame, given[source.name] = self._read(number, records[number])
            unfit.append(self._unfit(frame, source.topic.topic))
        names = [source.name for source in self._region.sources]
        epoch = EpochContext(
            decided_at=datetime.fromtimestamp(chunk.at_s, UTC), partitions=dict.fromkeys(names, 1)
        )  # fmt: skip
        keys = {source.name: source.topic.keys for source in self._region.sources}
        at_us, arrivals = round(chunk.at_s * 1e6), list[tuple[str, int, int]]()
        for name, of_source in zip(names, records, strict=True):
            arrivals += [(name, at, r.timestamp_us) for at, r in of_source if r.timestamp_us != at_us]
        call = _InMemory(epoch, self._session, state or {}, arrivals)
        with calling(call):
            steps = _Steps(given=given, processor=self._processor, keys=keys, has_order=self._has_order)
            results = steps.after(self._region.node).own.localCheckpoint(eager=True)
        found = self._written(results, chunk, incarnation)
        letters = self._letters([*unfit, *call.letters], chunk, first=1 + max((r.stamp[-1] for r in found), default=-1))
        return [*found, *letters], {**call.settled(), **call.notes}

    @cached_property
    def _parsings(self) -> list[Any]:
        return [parsing(source.topic, self._session) for source in self._region.sources]

    def _read(self, number: int, records: Records) -> tuple[Frame, DataFrame]:
        """Return the records of a source, and those among them that fit, with their stamps."""
        source = self._region.sources[number]
        frame = parse_records(kafka_rows(self._session, source.topic.log, records), self._parsings[number])
        parts = F.lit(source.name), F.col(f"{STAMP}.partition"), F.col(f"{STAMP}.offset"), F.lit(0)
        stamp = F.struct(*parts).cast(STAMP_TYPE).alias(STAMP)
        users = [F.col(f"`{name}`") for name in frame.columns]
        return frame, frame.data.where(is_good()).select(*users, stamp)

    @cached_property
    def _schemas(self) -> list[StructType]:
        """The columns of each source's rows."""
        return [self._read(number, ())[1].schema for number in range(len(self._region.sources))]

    def _unfit(self, frame: Frame, topic: str) -> DataFrame:
        """Return the records that do not fit, as dead letters of a live region."""
        value = F.substring(F.col(f"{BAD}.value"), 1, RAW_BYTES_MAX).cast("string")
        told = dead_letter(F.col(f"{BAD}.reason"), self._region.name, topic, value)
        return frame.data.where(~is_good()).select(F.col(f"{BAD}.key").alias("key"), told.alias("value"))

    def _written(self, results: DataFrame, chunk: Chunk, incarnation: Incarnation) -> list[RegionResult]:
        release = release_of(self._region, self._identity, incarnation)
        one = good(results.coalesce(1), 1)
        numbers = F.lit(chunk.source), F.lit(0), F.lit(chunk.offset).cast("long"), F.monotonically_increasing_id()
        named = zip(numbers, ("source", "partition", "offset", "sub0"), strict=True)
        stamp = F.struct(*[number.alias(name) for number, name in named])
        data = one.data.withColumn(STAMP, stamp)
        written = rows.rows(Frame(data=data, depth=1, keyed=True), self._region, release)
        return [read_result(row, release) for row in written.collect()]

    def _letters(self, letters: Sequence[DataFrame], chunk: Chunk, first: int) -> list[RegionResult]:
        """Return the dead letters of records. Args: first: the place of the first one in its chunk."""
        all_ = reduce(DataFrame.union, [each.select(F.col("key").cast("binary"), "value") for each in letters])
        found = [(row["key"], self._as_live(row["value"])) for row in all_.collect()]
        found.sort(key=lambda each: [each[1].get(name, -1) for name in ("partition", "offset")])
        return [
            RegionResult(
                is_dead=True, stamp=(chunk.source, 0, chunk.offset, place), key=None if key is None else bytes(key),
                value=json.dumps(content).encode(),
            )
            for place, (key, content) in enumerate(found, first)
        ]  # fmt: skip

    def _as_live(self, letter: str) -> Mapping[str, Any]:
        """Return the content of a dead letter as a live region writes it."""
        content = json.loads(letter)
        topics = {source.name: source.topic.topic for source in self._region.sources}
        if "source" in content:
            content["topic"] = topics[content.pop("source")]
        content["region"] = self._region.name
        order = ("reason", "region", "topic", "partition", "offset", "value", "traceback")
        return {name: content[name] for name in order if name in content}


@dataclass(kw_only=True)
class _Steps(Replay):
    """The steps of one chunk. Functions and UDFs that fail on a record make a dead letter of it, as in a query."""

    def after(self, node: Node) -> Frame:
        """See Replay."""
        if not isinstance(node, Step) or node.operation in _OF_BATCHES:
            return super().after(node)
        before = self.after(node.parent)
        if node.operation in RUNNING:
            self._require_stamps(before, node)
            return _running(before, node)
        if STAMP not in before.data.columns:  # after a step with a state
            return self.plain(before, node)
        made = frames.apply(replace(before, is_run=True), node)
        known = made.data.schema[BAD].dataType
        if "traceback" not in cast(StructType, known).names:
            return made
        data, place = made.data.localCheckpoint(eager=True), [F.col(f"{STAMP}.{name}") for name in _PLACE]
        fields = [F.col(f"{BAD}.{name}").cast("string").alias(name) for name in ("reason", "value", "traceback")]
        letter = F.to_json(F.struct(*fields, *place)).alias("value")
        current(node.operation).reject(data.where(~is_good()).select(F.lit(None).alias("key"), letter))
        return replace(good(data.where(is_good()).drop(BAD), made.depth), several=made.several)


def _running(frame: Frame, step: Step) -> Frame:
    """Return the frame after a `groupBy` that comes before or after a step with event time."""
    call = current(step.operation)
    slot = call.slot(step.operation)
    made, left = updated(replace(frame, is_run=True), step, lambda schema: call.before(slot, schema))
    call.keep(slot, left)
    return good(made.data.drop(BAD), frame.depth)


class _InMemory(StatefulCall):
    """A call whose operators find the state in Spark's memory.

    Args: arrivals: the records with another time than the epoch: their source, their offset, and the time.
    """

    def __init__(
        self, epoch: EpochContext, session: SparkSession, state: BatchState, arrivals: Sequence[tuple[str, int, int]]
    ) -> None:
        super().__init__(epoch, session, state)
        self._arrivals = arrivals

    def arrived(self, rows: DataFrame) -> tuple[DataFrame, Column]:
        """See Call. A live region compares with the timestamp of the record, which may be that of its producer."""
        given, at_us = super().arrived(rows)
        if not self._arrivals:
            return given, at_us
        names = [f"__falkirk_arrival_{name}" for name in ("source", "offset", "us")]
        kinds = ("STRING", "BIGINT", "BIGINT")
        schema = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
        own = F.broadcast(self._session.createDataFrame([*self._arrivals], schema))
        same = (F.col(f"{STAMP}.source") == F.col(names[0])) & (F.col(f"{STAMP}.offset") == F.col(names[1]))
        return given.join(own, same, "left"), F.coalesce(F.col(names[2]), at_us)

    def files(self, slot: str) -> LoopFiles | None:
        """See Call. Only loops have files, and they run in batches."""
        return None

    def once(self, rows: DataFrame) -> DataFrame:
        """See Call."""
        return rows.localCheckpoint(eager=True)

    def split(
        self, rows: DataFrame, kinds: Mapping[str, StructType], *, determined_by: DataFrame | None = None
    ) -> dict[str, DataFrame]:
        """See Call."""
        done = rows.localCheckpoint(eager=True)
        return {kind: done.where(F.col(KIND) == kind).select(f"{kind}.*") for kind in kinds}

    def settled(self) -> dict[str, DataFrame]:
        """Return the states for the next chunk, computed."""
        return {slot: state.localCheckpoint(eager=True) for slot, state in self.kept.items()}
