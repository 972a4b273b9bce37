"""Keyed operators of the Java module on Spark: every type of column passes unchanged, and checkpoints are restored."""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.steps.dataframes.names import BAD, STAMP, TIME
from falkirk.steps.live import event_time
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.times import TopicPartition
from falkirk.user_tools.commands.history.application import OfflineApplication
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: For each column, an expression. The last digits of times, and dates before 1582, are easily lost.
COLUMNS = {
    "text": "'äöü \\u0000'", "number": "7L", "small": "CAST(3 AS TINYINT)", "real": "CAST('NaN' AS DOUBLE)",
    "exact": "CAST('123456789012345678901234567890.12345678' AS DECIMAL(38, 8))", "flag": "true", "raw": "X'00FF'",
    "time": "TIMESTAMP'1234-05-06 07:08:09.123456'", "later": "TIMESTAMP'8999-12-31 23:59:59.999999'",
    "local": "TIMESTAMP_NTZ'0999-01-01 00:00:00.000001'", "day": "DATE'0999-02-28'",
    "span": "INTERVAL '3 04:05:06.000007' DAY TO SECOND", "months": "INTERVAL '1-2' YEAR TO MONTH",
    "several": "array(1, null, 3)", "map": "map('a', struct(1 AS x, 'b' AS y))",
    "nested": "struct(TIMESTAMP'0999-01-01 00:00:00' AS t, array(DATE'1500-01-01') AS d)",
    "variant": "parse_json('{\"a\": [1, 2.50]}')", "nothing": "CAST(NULL AS STRING)",
}  # fmt: skip


def test_every_type_passes_unchanged(spark: "SparkSession") -> None:
    stamp = F.struct(F.lit(0).alias("source"), F.lit(0).alias("partition"), F.col("id").alias("offset")).alias(STAMP)
    bad = F.lit(None).cast("struct<reason: string, key: binary, value: binary>").alias(BAD)
    nullable = F.col("id") >= 0  # a time row has nulls
    columns = [F.when(nullable, F.expr(text)).alias(name) for name, text in COLUMNS.items()]
    number = F.when(nullable, F.col("id")).alias("id")
    rows = spark.range(0, 3, 1, 1).select(number, *columns, stamp, bad, F.lit(5).cast("long").alias(TIME))
    timed = event_time._with_time_rows(rows)
    key, shard = F.struct("id").alias("key"), F.lit(1).alias("shard")
    keyed = timed.select("*", key, shard)
    jvm: Any = spark._jvm
    operator = jvm.org.falkirk.FirstOfKey(event_time.column_names(rows), "key", "late", 10)
    made = DataFrame(jvm.org.falkirk.Keyed.apply(keyed._jdf, "shard", 2, operator), spark)

    def shown(data: DataFrame) -> list[str]:
        shapes = [F.to_json(F.struct(*[c for c in COLUMNS if c not in ("span", "months", "raw")])).alias("json")]
        plain = [F.col(c).cast("string") for c in ("span", "months")]
        return sorted(map(str, data.select("id", *shapes, *plain, F.hex("raw"), *_micros()).collect()))

    between = made.drop("key", "shard", "late").where("id >= 0 OR id IS NULL").withColumn("key", F.struct("id"))
    chained = DataFrame(jvm.org.falkirk.Keyed.then(between._jdf, operator), spark)
    assert shown(made) == shown(chained) == shown(rows)
    assert [f.dataType for f in made.schema.fields][: len(rows.columns)] == [f.dataType for f in rows.schema.fields]


def _micros() -> list[Any]:
    return [F.unix_micros("time"), F.unix_micros("later"), F.unix_micros("nested.t"), F.col("local").cast("string")]


@cache
def application(wire: Wire, home: Path) -> fk.App:
    """Return an application that keeps the first record of each id."""
    app = fk.App("kept", home=home, history=5)
    app.source("clicks", fk.Kafka(f"clicks-{wire.tag}", schema="id STRING NOT NULL, at TIMESTAMP", key="id"))
    app.add_processor(
        "first",
        lambda clicks: clicks.withWatermark("at", "10 seconds").dropDuplicates(["id"]),
        reads=("clicks",),
        policy=fk.Lazy("1 second"),
    )
    app.sink("out", "first", fk.Kafka(f"out-{wire.tag}", key="id"))
    return app


def test_a_region_goes_back_to_an_older_checkpoint(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
    wire, connection = Wire(bootstrap=broker.bootstrap, tag=tag), Connection.of(broker.bootstrap)
    clicks, out = wire.topic("clicks"), wire.topic("out")
    query = run_here(application(wire, home), connection)
    for n, names in enumerate(("ab", "bc", "cd")):
        wire.send(clicks, [{"id": name, "at": "2026-03-01T00:00:00Z"} for name in names])
        wire.await_count(out, n + 2, query)
        before = query.status[0].last_commit
        wait_until(lambda b=before: query.status[0].last_commit > b + 1, 120, "two commits")  # type: ignore[misc]
    query.stop()
    with open_home(home, "kept") as opened:
        opened.take_charge()
        visit = OfflineApplication(
            application(wire, home), opened, connection, runs=False, history=fk.App("kept", history=5).history
        )
        covers = OffsetFrontier.of({TopicPartition(topic=clicks, partition=0): 2})  # a and b
        old = next(p for p in visit.history() if p.region == "out" and p.checkpoint.read == covers)
        assert visit.roll_back({"out": old.checkpoint.number}, force=True).goes == {"out": old.checkpoint.number}
    query = run_here(application(wire, home), connection)
    wire.await_count(out, 4 + 2, query)
    query.stop()
    found = Counter(row["id"] for row in wire.rows(out))
    assert found == Counter("abcdcd"), "it knows a and b, and c and d no more"


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_number_leads_to_its_state_partition(spark: "SparkSession", partitions: int) -> None:
    """Spark's hash partitioning sends the number of a state partition there."""
    numbers = list(spark._jvm.org.falkirk.Keyed.numbers(partitions))  # type: ignore[union-attr]
    rows = spark.createDataFrame([(i, n) for i, n in enumerate(numbers)], "shard INT, number INT")
    found = rows.repartition(partitions, "number").select("shard", F.spark_partition_id()).collect()
    assert all(shard == partition for shard, partition in found)
