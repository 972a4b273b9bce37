"""Figures: the counts and measurements of the host for its status, from which the coordinator makes metrics.

They cost no request to Kafka: positions are those that each poll reads anyway. Java's `Figures` counts the records that
lanes have published, and measures their latency. Executors in other JVMs report theirs to the driver's each second
(`FiguresReporter`), so this JVM has the figures of all.
"""

import json
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from falkirk.errors.spark import JVM_ERRORS
from falkirk.runtime.spark import lanes
from falkirk.runtime.spark.context import Context
from falkirk.spark_setup.cluster_plugin import reaches_driver
from falkirk.theory.delivery import SourcePartition
from falkirk.theory.ids import Offset, Offsets


class Histogram:
    """Counts of values in buckets. Args: bounds: their upper bounds, in order; a last bucket has larger values."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def describe(self) -> dict[str, Any]:
        """Return the counts of the buckets and the sum of all values, as plain values."""
        return {"counts": list(self._counts), "sum": self._sum}


class HeldAge:
    """The age of the oldest held result of a live region, to the interval between two polls.

    No time of a result is known, only where the log ended at each poll. A new host begins at 0.

    Args: kept: so many ends of the log are kept at most, so that a release that waits for hours costs no memory.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, kept: int = 1000) -> None:
        self._clock, self._kept = clock, kept
        #: When a poll saw new results first, and where the log ended then.
        self._seen: deque[tuple[float, Offsets]] = deque()

    def age_s(self, ends: Offsets, released: Mapping[int, float]) -> float:
        """Return the age of the oldest result between the released ones and the ends of the log; 0: there is none."""
        if not self._seen or self._seen[-1][1] != ends:
            if len(self._seen) >= self._kept:  # the oldest one stays, and of the others every second one
                kept = list(self._seen)
                self._seen = deque([kept[0], *kept[2::2]])
            self._seen.append((self._clock(), dict(ends)))
        while self._seen and all(end <= released.get(p, 0) for p, end in self._seen[0][1].items()):
            if len(self._seen) == 1:
                return 0.0
            self._seen.popleft()
        return self._clock() - self._seen[0][0]


def note_timestamps(raw: DataFrame, context: Context, region: str, source: int, *, crosses: bool) -> DataFrame:
    """Return Kafka records of a region's source; when one is read, Java's `Figures` notes its timestamp.

    Args: source: its number, as in a stamp. crosses: one task may read a record, and another one write its result.
    """
    if not reaches_driver(context.session):  # no figures leave the executors
        return raw
    jvm: Any = context.session._jvm
    catalyst, types = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.sql.types
    bridge = jvm.org.apache.spark.sql.classic.ExpressionUtils
    name, read = F.lit(lanes.lanes_key(context.home.identity, region)), ("partition", "offset", "timestamp")
    arguments = [bridge.expression(_java(c)) for c in (name, F.lit(source), *map(F.col, read), F.lit(crosses))]
    figures = jvm.org.apache.spark.util.Utils.classForName("org.falkirk.Figures", True, False)  # also of spark.jars
    sequence, nothing = jvm.PythonUtils.toSeq(arguments), jvm.PythonUtils.toSeq([])
    call = catalyst.objects.StaticInvoke(
        figures, types.DataTypes.LongType, "note", sequence, nothing, True, True, True, jvm.scala.Option.empty()
    )
    return raw.withColumn("offset", ClassicColumn(bridge.column(call)))


def read_ends(context: Context, region: str) -> dict[SourcePartition, Offset]:
    """Return the end of the records that a region has read since its query began, of each partition with any.

    It is empty on a cluster: executors do not report it.
    """
    try:
        name = lanes.lanes_key(context.home.identity, region)
        found = json.loads(str(context.session._jvm.org.falkirk.Figures.reached(name)))  # type: ignore[union-attr]
    except JVM_ERRORS:  # the JVM is dead, and the next poll reports it
        return {}
    return {(source, partition): Offset(offset + 1) for source, partition, offset in found}


def _java(column: Column) -> Any:
    return column._jc


def published(context: Context) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the counts of results that the lanes of this home have published, as far as this JVM knows: by region and
    topic, in one call of the JVM.

    Each has `records`, and as `Histogram.describe` the latencies of those whose source record is known.
    """
    prefix = lanes.lanes_key(context.home.identity, "")
    try:
        found = json.loads(str(context.session._jvm.org.falkirk.Figures.describe(prefix)))  # type: ignore[union-attr]
    except JVM_ERRORS:  # the JVM is dead, and the next poll reports it
        return {}
    return {
        region.removeprefix(prefix): {
            topic: {"records": f["records"], "counts": f["counts"], "sum": f["sum_ms"] / 1000}
            for topic, f in topics.items()
        }
        for region, topics in found.items()
    }
