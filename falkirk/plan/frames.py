"""Frames: DataFrames that carry stamps and bad records through the steps that the user recorded.

A frame is a DataFrame with the user's columns and two of ours. `STAMP` is one struct (source, partition, offset,
sub-indexes) that is compared as a tuple. `BAD` is null for a good record; for one that does not fit it is a struct
with the reason and the raw record, which every step lets through untouched, so that a single query (Real-time Mode
can't split or union a source with itself) still delivers it to the dead letters.

A bad record has no key, so in a keyed step it is grouped by its source partition, apart from all good ones.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from falkirk.endpoints import Kafka
from falkirk.errors import DefinitionError
from falkirk.stream import Latest, Step

STAMP, BAD, LANE, SPREAD = "__falkirk_stamp", "__falkirk_bad", "__falkirk_lane", "__falkirk_spread"
OURS = (STAMP, BAD, SPREAD)

#: The columns of Spark's Kafka source, for analysis without a broker.
KAFKA_DDL = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A DataFrame with stamps. `depth`: how many sub-indexes a stamp has. `keyed`: a keyed step has been passed."""

    data: DataFrame
    depth: int = 0
    keyed: bool = False
    grouped_by: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The user's columns."""
        return [name for name in self.data.columns if name not in OURS]

    @property
    def carried(self) -> list[str]:
        """Our columns that are present."""
        return [name for name in self.data.columns if name in OURS]


def is_good() -> Column:
    """Return the condition that a record is not a bad one."""
    return F.col(BAD).isNull()


def parse(raw: DataFrame, topic: Kafka, source_index: int = 0) -> Frame:
    """Return the frame of a topic's raw Kafka records: its columns, a stamp each, and the bad ones marked.

    Bad is: no value, a value that does not parse as the schema or has a wrong type, a null in a NOT NULL column.
    """
    stamp = F.struct(F.lit(source_index).alias("source"), "partition", "offset").alias(STAMP)
    if topic.format == "binary":
        fields, columns = F.struct("value"), ["value"]
        reason = F.when(F.col("value").isNull(), F.lit("the value is null"))
    elif topic.format == "text":
        fields, columns = F.struct(F.col("value").cast("string").alias("value")), ["value"]
        reason = F.when(F.col("value").isNull(), F.lit("the value is null"))
    else:
        fields, columns, reason = _parse_json(topic, raw)
    origin = [F.col(name).alias(name) for name in ("topic", "partition", "offset", "key", "value")]
    data = raw.withColumn("__parsed", fields).withColumn("__reason", reason)
    bad = F.when(F.col("__reason").isNotNull(), F.struct(F.col("__reason").alias("reason"), *origin)).alias(BAD)
    kept = [F.when(F.col("__reason").isNull(), F.col("__parsed").getField(name)).alias(name) for name in columns]
    return Frame(data=data.select(*kept, stamp, bad))


def _parse_json(topic: Kafka, raw: DataFrame) -> tuple[Column, list[str], Column]:
    try:
        schema = raw.sparkSession.createDataFrame([], topic.ddl).schema
    except PySparkException as error:
        raise DefinitionError(
            "SCHEMA_INVALID",
            f"the schema of topic {topic.topic!r} is not Spark DDL: {first_line(error)}.",
            where=topic.where,
            hint='Write columns as "id STRING NOT NULL, n INT".',
            schema=topic.ddl,
        ) from error
    required = [field.name for field in schema.fields if not field.nullable]
    nullable = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in schema.fields)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "__corrupt"}
    fields = F.from_json(F.col("value").cast("string"), f"{nullable}, `__corrupt` STRING", options)
    parsed = F.col("__parsed")
    reason = (
        F.when(F.col("value").isNull(), F.lit("the value is null"))
        .when(parsed.isNull() | parsed.getField("__corrupt").isNotNull(), F.lit("does not fit the schema"))
    )  # fmt: skip
    for name in required:
        reason = reason.when(parsed.getField(name).isNull(), F.lit(f"column {name} is null"))
    return fields, [field.name for field in schema.fields], reason


def apply(frame: Frame, step: Step) -> Frame:
    """Return the frame after one recorded step.

    Raises: DefinitionError: `COLUMN_MISSING`, `STEP_INVALID`, `GENERATOR_IN_SELECT`; `where` is the step's line.
    """
    try:
        with _quiet():
            return _OPERATIONS[step.operation](frame, *step.arguments)
    except (PySparkException, Py4JJavaError) as error:
        raise _explain(error, frame, step) from error
    except TypeError as error:
        raise DefinitionError(
            "STEP_INVALID", f"{step.operation}(): {error}.", where=step.where, operation=step.operation
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep PySpark from logging as JSON the mistakes that are about to be raised as a `DefinitionError`."""
    loggers = [logging.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _explain(error: Exception, frame: Frame, step: Step) -> DefinitionError:
    condition = getattr(error, "getCondition", lambda: None)() or ""
    if condition.startswith(("UNRESOLVED_COLUMN", "FIELD_NOT_FOUND")):
        missing = (error.getMessageParameters() or {}).get("objectName", "?") if hasattr(
            error, "getMessageParameters") else "?"  # fmt: skip
        return DefinitionError(
            "COLUMN_MISSING",
            f"{step.operation}(): there is no column {missing}.",
            where=step.where,
            hint=f"Columns here: {', '.join(frame.columns)}.",
            column=missing.strip("`"),
            columns=tuple(frame.columns),
        )
    return DefinitionError(
        "STEP_INVALID",
        f"{step.operation}(): {first_line(error)}",
        where=step.where,
        operation=step.operation,
        spark_condition=condition,
    )


def first_line(error: Exception) -> str:
    """Return the first line of Spark's message, without its error class and trailing dot."""
    return str(error).split("\n")[0].removesuffix(".")


def _carry(frame: Frame) -> list[Column]:
    return [F.col(name) for name in frame.carried]


def _require(frame: Frame, *names: str) -> None:
    frame.data.select(*[F.col(f"`{name}`") for name in names])  # Spark ignores unknown names in drop and rename


def _select(frame: Frame, *columns: Any) -> Frame:
    plain = [c for entry in columns for c in (entry if isinstance(entry, list | tuple) else (entry,))]
    expanded = [F.col(c) for name in plain for c in (frame.columns if isinstance(name, str) and name == "*" else [name])
                ] if all(isinstance(c, str) for c in plain) else plain  # fmt: skip
    return replace(frame, data=frame.data.select(*expanded, *_carry(frame)))


def _select_expr(frame: Frame, *expressions: str) -> Frame:
    return _select(frame, *[F.expr(text) for text in expressions])


def _where(frame: Frame, condition: Any) -> Frame:
    holds = F.expr(condition) if isinstance(condition, str) else condition
    return replace(frame, data=frame.data.where(~is_good() | holds))


def _with_columns(frame: Frame, columns: dict[str, Column]) -> Frame:
    return replace(frame, data=frame.data.withColumns(columns))


def _rename(frame: Frame, existing: str, new: str) -> Frame:
    _require(frame, existing)
    return replace(frame, data=frame.data.withColumnRenamed(existing, new))


def _drop(frame: Frame, *names: str) -> Frame:
    _require(frame, *names)
    return replace(frame, data=frame.data.drop(*names))


def _explode(frame: Frame, column: Any, name: str) -> Frame:
    array = F.col(column) if isinstance(column, str) else column
    kept = [F.col(c) for c in frame.columns if c != name]
    data = frame.data.select(*kept, F.posexplode_outer(F.when(is_good(), array)).alias("__place", name), *_carry(frame))
    data = data.where(~is_good() | F.col("__place").isNotNull())
    place = F.coalesce(F.col("__place"), F.lit(0)).alias(f"sub{frame.depth}")
    data = data.withColumn(STAMP, F.struct(F.col(f"{STAMP}.*"), place)).drop("__place")
    return replace(frame, data=data, depth=frame.depth + 1)


def key_column(key: Any) -> Column:
    """Return a grouping expression that the user gave as a column name or a Column."""
    return F.col(key) if isinstance(key, str) else key


def _agg(frame: Frame, keys: Sequence[Any], aggregates: Sequence[Any]) -> Frame:
    partition = F.col(f"{STAMP}.partition")
    lane = F.when(is_good(), F.lit(-1)).otherwise(partition).alias(LANE)
    newest = [F.max_by(c, F.col(STAMP)).alias(n) for c, n in (_latest(a) for a in aggregates if isinstance(a, Latest))]
    plain = {id(a): F.expr(a) if isinstance(a, str) else a for a in aggregates if not isinstance(a, Latest)}
    ordered = [newest.pop(0) if isinstance(a, Latest) else plain[id(a)] for a in aggregates]
    grouped = frame.data.groupBy(*[key_column(k) for k in keys], lane)
    data = grouped.agg(
        *ordered,
        F.max(STAMP).alias(STAMP),
        F.max_by(BAD, F.col(STAMP)).alias(BAD),
        F.struct(F.min(partition).alias("least"), F.max(partition).alias("greatest")).alias(SPREAD),
    ).drop(LANE)
    names = [name for name in data.columns if name not in OURS][: len(keys)]
    return replace(frame, data=data, keyed=True, grouped_by=tuple(names))


def _latest(aggregate: Latest) -> tuple[Column, str]:
    column = F.col(aggregate.column) if isinstance(aggregate.column, str) else aggregate.column
    return column, aggregate.name


def _count(frame: Frame, keys: Sequence[Any]) -> Frame:
    return _agg(frame, keys, [F.count("*").alias("count")])


_OPERATIONS: dict[str, Callable[..., Frame]] = {
    "select": _select,
    "selectExpr": _select_expr,
    "where": _where,
    "withColumns": _with_columns,
    "withColumnRenamed": _rename,
    "drop": _drop,
    "explode": _explode,
    "agg": _agg,
    "count": _count,
}
