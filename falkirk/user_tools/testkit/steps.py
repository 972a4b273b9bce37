"""Steps: computes the results of a live region on records in memory, with the user's steps on Spark's DataFrames.

Rows are parsed, stamped, encoded and signed by the code of a real run. Only a keyed step differs: in a query, Spark
gives an updated result for each record. Here the Java module computes the same aggregate functions record by record,
in a window of time that never ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from falkirk.declare.nodes import SourceNode, Step
from falkirk.errors.conditions.testkit import APPLICATION_UNSUITABLE_AGGREGATE
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.kafka_client.header import split_header
from falkirk.plan.region import Region
from falkirk.runtime.spark import rows
from falkirk.runtime.spark.rows import IncarnationConstants, OutputTopic
from falkirk.steps.batch.in_epoch import empty
from falkirk.steps.batch.python import KIND
from falkirk.steps.dataframes.empty import no_rows_of
from falkirk.steps.dataframes.names import BAD, LEAST, STAMP
from falkirk.steps.differential.expressions import Unsuitable
from falkirk.steps.live import stamped as frames
from falkirk.steps.live import windows
from falkirk.steps.live.stamped import Frame, aggregates_of, key_column
from falkirk.steps.live.unions import after, number_source
from falkirk.steps.sources.topics import parse_records, parsing
from falkirk.theory.ids import Incarnation, Offset
from falkirk.user_tools.testkit.place import RECORD_BYTES_MAX, kafka_rows
from falkirk.user_tools.testkit.quick import QuickSteps
from falkirk.user_tools.testkit.world import MemoryRecord

#: The size of a window that holds all records, in microseconds.
_FOREVER = 1 << 60
_NEWEST = "__falkirk_newest"
_OPEN = StructType([
    StructField("start", LongType()), StructField("end", LongType()), StructField("buffers", BinaryType()),
])  # fmt: skip
#: The keyed steps that a live region can have here.
_KEYED = ("agg", "count")


Records = Sequence[tuple[Offset, MemoryRecord]]
"""Records of one source, with their offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionResult:
    """A result of a live region. Args: is_dead: a dead letter. stamp: the numbers of its stamp."""

    is_dead: bool
    stamp: tuple[int, ...]
    key: bytes | None
    value: bytes | None


class LiveSteps:
    """The steps of one live region.

    Attributes: spark_reason: why Spark computes the results; empty: this process does, as far as values allow.
    """

    def __init__(self, region: Region, session: SparkSession, identity: str) -> None:
        self._region, self._session, self._identity = region, session, identity
        self._quick: QuickSteps | None = None
        self.spark_reason = ""
        try:
            self._quick = QuickSteps(region, session)
        except Unsuitable as reason:
            self.spark_reason = str(reason)

    def compute(
        self, records: Records, state: Any, incarnation: Incarnation, others: Sequence[Records] = ()
    ) -> tuple[list[RegionResult], Any]:
        """Return the results of records, in the order of their stamps, and the state after them.

        Args: records: of the first source. state: before the records, as a former call returned it; None: the initial
            state. others: the records of the other sources.
        """
        if self._quick is not None and not isinstance(state, tuple):
            try:
                found, after = self._quick.compute(records, state)
                return [
                    RegionResult(is_dead=False, stamp=(0, 0, *stamp), key=k, value=v) for stamp, k, v in found
                ], after
            except Unsuitable:
                if state is not None and self._quick.keyed is not None and state.history:
                    _, state = self._by_spark(state.history, None, incarnation)
                else:
                    state = None
        return self._by_spark(records, state, incarnation, others)

    def _by_spark(
        self, records: Records, state: Any, incarnation: Incarnation, others: Sequence[Records] = ()
    ) -> tuple[list[RegionResult], Any]:
        given, before, states = (records, *others), iter(state or ()), list[DataFrame]()

        def begin(source: SourceNode) -> Frame:
            number = self._region.sources.index(source)
            raw = kafka_rows(self._session, source.topic.log, given[number])
            return replace(number_source(parse_records(raw, self._parsings[number]), number), is_run=True)

        def apply(frame: Frame, step: Step) -> Frame:
            if step.operation not in _KEYED:
                return frames.apply(frame, step)
            frame, left = self._aggregated(frame, step, next(before, None))
            states.append(left)
            return frame

        frame = after(self._region.node, begin, apply)
        ordered = Frame(
            data=frame.data.coalesce(1).sortWithinPartitions(STAMP), depth=frame.depth, keyed=frame.keyed,
            grouped_by=frame.grouped_by, several=frame.several,
        )  # fmt: skip
        release = release_of(self._region, self._identity, incarnation)
        found = rows.rows(ordered, self._region, release).collect()
        return [read_result(row, release) for row in found], tuple(states) or None

    @cached_property
    def _parsings(self) -> list[Any]:
        return [parsing(source.topic, self._session) for source in self._region.sources]

    def _aggregated(self, frame: Frame, step: Step, state: DataFrame | None) -> tuple[Frame, DataFrame]:
        planned = frames.apply(frame, step)  # report the user's mistakes, and name the columns
        keys = step.arguments[0]
        users = step.arguments[1] if step.operation == "agg" else [F.count("*").alias("count")]
        keyed, named = windows.with_key(frame.data.where(frames.is_good()), [key_column(key) for key in keys])
        columns = [F.col(f"`{c}`") for c in frame.data.columns]
        zero = F.lit(0).cast("long")
        new = keyed.select(
            F.struct(*named).alias("key"), F.lit(None).cast(_OPEN).alias("open"), zero.alias("time"),
            zero.alias("greatest"), zero.alias("after"), F.lit(None).cast("string").alias("origin"),
            F.struct(*columns).alias("row"),
        )  # fmt: skip
        kept = StructType([StructField("key", new.schema["key"].dataType), StructField("open", _OPEN)])
        before = empty(self._session, kept) if state is None else state
        old = before.select(
            "key", "open", *[F.lit(None).cast(new.schema[n].dataType).alias(n) for n in ("time", "greatest")],
            zero.alias("after"), *[F.lit(None).cast(new.schema[n].dataType).alias(n) for n in ("origin", "row")],
        )  # fmt: skip
        order = (F.col("key"), F.col("row").isNotNull(), F.col(f"row.{STAMP}"))
        ready = new.unionByName(old).coalesce(1).sortWithinPartitions(*order)
        made: Any = self._java.WindowsInEpoch.of(ready._jdf, KIND, self._spec(frame, step, users))
        done = DataFrame(made, self._session).localCheckpoint(eager=True)
        left = done.where(F.col(KIND) == "state").select("state.key", F.struct(*[
            F.col(f"state.{name}") for name in _OPEN.names
        ]).alias("open"))  # fmt: skip
        results = done.where(F.col(KIND) == "result").select("result.*")
        return self._with_bad(frame, planned, results, len(keys)), left

    def _with_bad(self, frame: Frame, planned: Frame, results: DataFrame, keys: int) -> Frame:
        names = planned.columns
        values = [F.col("key").getField(f"__falkirk_key{i}").alias(name) for i, name in enumerate(names[:keys])]
        values += [F.col("values").getField(name).alias(name) for name in names[keys:]]
        stamp = F.col("values").getField(_NEWEST)
        least = frame.place.alias(LEAST)
        bad_type = frame.data.schema[BAD].dataType
        good = results.select(*values, stamp.alias(STAMP), F.lit(None).cast(bad_type).alias(BAD)).select("*", least)
        nulls = [F.lit(None).cast(planned.data.schema[name].dataType).alias(name) for name in names]
        bad = frame.data.where(~frames.is_good()).select(*nulls, STAMP, BAD, least)
        return Frame(
            data=good.unionByName(bad), depth=frame.depth, keyed=True, grouped_by=planned.grouped_by, is_run=True,
            several=frame.several,
        )  # fmt: skip

    def _spec(self, frame: Frame, step: Step, users: Sequence[Any]) -> Any:
        """Return the aggregates for the Java module, and with them the stamp of the newest record."""
        session: Any = self._session
        aggregates: list[Column] = [*aggregates_of(users), F.max(F.col(STAMP)).alias(_NEWEST)]
        plan = no_rows_of(session, frame.data._jdf.schema()).agg(*aggregates)._jdf.queryExecution().optimizedPlan()
        try:
            made = self._java.Aggregates.of(plan)
        except SPARK_ERRORS as error:
            raise APPLICATION_UNSUITABLE_AGGREGATE.error(where=step.where, reason=first_line(error)) from error
        return self._java.WindowSpec(_FOREVER, _FOREVER, 0, 0, True, made)

    @property
    def _java(self) -> Any:
        session: Any = self._session
        return session._jvm.org.falkirk


def release_of(region: Region, identity: str, incarnation: Incarnation) -> IncarnationConstants:
    """Return the constants with which a region's results become records. Its output has one partition."""
    outputs = (region.output.log, region.dead_letter_topic)
    main, dead = (OutputTopic(name=n, partitions=1, size_limit_bytes=RECORD_BYTES_MAX) for n in outputs)
    return IncarnationConstants(
        application=identity, incarnation=incarnation, source_partitions=(1,) * len(region.sources),
        state_partitions=1, main=main, dead=dead, barrier=None, main_key=b"test", dead_key=b"test",
    )  # fmt: skip


def read_result(row: Any, release: IncarnationConstants) -> RegionResult:
    """Return the result in a row that `rows.rows` has made."""
    _, _, stamp, _, _ = split_header(bytes(row["header"]))
    key, value = (None if row[name] is None else bytes(row[name]) for name in ("key", "value"))
    return RegionResult(is_dead=row["topic"] == release.dead.name, stamp=stamp, key=key, value=value)
