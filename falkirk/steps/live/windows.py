"""Windows: aggregations by windows of event time, by classes of the Java module.

Spark's analysis of the same aggregation says which columns the result has. The Java module gets the optimised plan of
the aggregates over a relation with the record's columns, and computes them record by record (Aggregates.java).
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from falkirk.declare.watermark import Watermark
from falkirk.declare.windows import Window, window_of
from falkirk.steps.dataframes.empty import no_rows_of
from falkirk.steps.dataframes.names import BAD, STAMP
from falkirk.steps.live.event_time import KEY, LATE, Chain, as_key, bad, by_key, column_names

#: The names of columns that the Java module adds begin with this; those of a key's columns before it sees them.
_ADDED, _KEY = "__falkirk_of_", "__falkirk_key"


def spec_of(data: DataFrame, window: Window, watermark: Watermark, aggregates: Sequence[Column], mode: str) -> Any:
    """Return windows and their aggregates for the Java module.

    Args: data: the records. Raises: PySparkException: an aggregate can't be computed record by record.
    """
    session: Any = data.sparkSession
    return session._jvm.org.falkirk.WindowSpec.of(
        window.size, window.slide, window.offset, watermark.delay_us, mode == "update",
        aggregates_for_java(data, aggregates),
    )  # fmt: skip


def with_key(data: DataFrame, keys: Sequence[Column]) -> tuple[DataFrame, list[Column]]:
    """Return records with the columns of a key added, and these. Without any, all records have the same key.

    Each column may be null, as in a state that is read again.
    """
    is_there = F.col(STAMP).isNotNull()
    added = {f"{_KEY}{i}": F.when(is_there, key) for i, key in enumerate(keys or [F.lit(0)])}
    keyed = data.withColumns(added)
    return keyed, [as_key(keyed, name) for name in added]


def result(
    columns: Sequence[str], keys: Sequence[Any], key: Column, bounds: Sequence[Column], values: Column
) -> list[Column]:
    """Return the columns of a result, under the names that Spark gave them.

    Args: columns: their names: those of the keys, and those of the aggregates. keys: as the user wrote them. bounds:
        the start and the end of the window in microseconds.
    """
    start, end = (F.timestamp_micros(each) for each in bounds)
    window, found, others = F.struct(start.alias("start"), end.alias("end")), [], 0
    for name, each in zip(columns, keys, strict=False):
        if window_of(each) is not None:
            found.append(window.alias(name))
        else:
            found.append(key.getField(f"{_KEY}{others}").alias(name))
            others += 1
    return [*found, *(values.getField(name).alias(name) for name in columns[len(keys) :])]


def running_aggregates(
    data: DataFrame, keys: Sequence[Column], aggregates: Sequence[Column], results: Sequence[str], chain: Chain
) -> DataFrame:
    """Return the updated result of its key for each record, in a query with several keyed steps.

    Args: keys: as columns. results: the names of the columns after it. chain: of the frame.
    Raises: PySparkException: an aggregate can't be computed record by record.
    """
    session: Any = data.sparkSession
    keyed, named = with_key(data, keys)
    values = f"{_ADDED}values"
    operator = session._jvm.org.falkirk.RunningAggregates(
        column_names(data), KEY, values, aggregates_for_java(data, aggregates)
    )
    made = by_key(keyed, named, operator, chain)
    found = [F.col(KEY).getField(f"{_KEY}{i}") for i in range(len(keys))]
    found += [F.col(values).getField(name) for name in results[len(keys) :]]
    is_result = F.col(values).isNotNull()
    return made.select(
        *[F.when(is_result, each).alias(name) for each, name in zip(found, results, strict=True)],
        STAMP, BAD,
    )  # fmt: skip


def aggregates_for_java(data: DataFrame, aggregates: Sequence[Column]) -> Any:
    """Return aggregates of records for the Java module. Raises: as `spec_of`."""
    session: Any = data.sparkSession
    plan = no_rows_of(session, data._jdf.schema()).agg(*aggregates)._jdf.queryExecution().optimizedPlan()
    return session._jvm.org.falkirk.Aggregates.of(plan)


def aggregated(
    data: DataFrame,
    columns: Sequence[str],
    keys: Sequence[Any],
    others: Sequence[Column],
    spec: Any,
    results: Sequence[str],
    depth: int,
    *,
    is_alone: bool,
    chain: Chain,
) -> DataFrame:
    """Return the results of windows in a query. Late records are bad.

    Args: columns: the user's columns before it. keys: as the user wrote them. others: those besides the window.
        results: the names of the columns after it. depth: how many sub-indexes a stamp has. is_alone: see
        `effects.mark`. chain: of the frame.
    """
    session: Any = data.sparkSession
    keyed, named = with_key(data, others)
    made = by_key(keyed, named, session._jvm.org.falkirk.Windows(column_names(data), KEY, _ADDED, spec), chain)
    start, end, place, late = (F.col(f"{_ADDED}{name}") for name in ("start", "end", "place", "late"))
    found = result(results, keys, F.col(KEY), (start, end), F.col(f"{_ADDED}values"))
    stamp = F.struct(F.col(f"{STAMP}.*"), place.alias(f"sub{depth}")).alias(STAMP)
    is_result = start.isNotNull()
    return made.select(
        *[F.when(is_result, each).alias(name) for each, name in zip(found, results, strict=True)],
        stamp, bad(made, late, F.lit(LATE), columns, is_alone=is_alone),
    )  # fmt: skip
