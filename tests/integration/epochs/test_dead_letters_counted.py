"""Every record that does not fit is a dead letter, also if a batch function runs Spark jobs by itself.

Spark keeps the observation of the first job that reads a DataFrame. A job of the function's own may stop at the first
record.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.plan.planner import plan_application
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs.at_rest import epoch_log_of
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.runtime.spark.epochs.jobs import Shared
from falkirk.runtime.spark.epochs.log import Epoch
from falkirk.runtime.spark.epochs.region import BatchRegion
from falkirk.spark_setup.broker import Broker
from tests.integration.live import Wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id INT NOT NULL"
GOOD, BAD = 50, 7


def _guarded(orders: "DataFrame") -> "DataFrame":
    return orders.limit(0) if orders.isEmpty() else orders


def _stopped(orders: "DataFrame") -> "DataFrame":
    """Leave the input after its first part: the Python function takes an iterator."""

    def first(frames: Any) -> Any:
        yield next(frames)

    return orders.mapInPandas(first, "id INT")


def _plain(orders: "DataFrame") -> "DataFrame":
    return orders


def _grouped(orders: "DataFrame") -> "DataFrame":
    return orders.groupBy("id").count()


def _joined(orders: "DataFrame") -> "DataFrame":
    """Join with other rows behind a shuffle, as with those of a state."""
    others = orders.sparkSession.range(9).withColumn("id", F.col("id").cast("int"))
    return others.unionByName(orders).groupBy("id").count()


@pytest.mark.parametrize("source", ["topic", "files"])
@pytest.mark.parametrize("body", [_guarded, _stopped, _plain])
def test_a_count_of_a_part_is_not_trusted(
    source: str, body: "Callable[[DataFrame], DataFrame]", spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    values = [*(json.dumps({"id": n}).encode() for n in range(GOOD)), *[b"no json"] * BAD]
    assert _run(source, body, values, spark, broker, home, tag) == (10 if body is _stopped else GOOD, BAD)


@pytest.mark.parametrize("body", [_plain, _grouped, _joined])
def test_an_epoch_of_records_that_do_not_fit(
    body: "Callable[[DataFrame], DataFrame]", spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    """Once a shuffle has given no rows, Spark leaves out the rest of the plan, and the counts with it. Before, such an
    epoch failed at each try, so one bad record could stop a batch for good."""
    rows, dead = _run("topic", body, [b"no json"] * BAD, spark, broker, home, tag)
    assert (rows, dead) == (9 if body is _joined else 0, BAD)


def _run(
    source: str, body: "Callable[[DataFrame], DataFrame]", values: list[bytes], spark: "SparkSession", broker: Broker,
    home: Path, tag: str,
) -> tuple[int, int]:  # fmt: skip
    """Run an epoch with these records; return the number of results and of dead letters."""
    wire, connection = Wire(bootstrap=broker.bootstrap, tag=tag), Connection.of(broker.bootstrap)
    folder = home.with_name("read")
    folder.mkdir()
    (folder / "one.json").write_bytes(b"\n".join(values))
    topic = wire.topic("orders", 1)
    wire.send(topic, values)

    app = fk.App("counted")
    reads = fk.Kafka(topic, schema=SCHEMA) if source == "topic" else fk.Files(str(folder), "json", schema=SCHEMA)
    app.source("orders", reads)
    app.sink("out", app.stream(fk.Eager())(body), fk.Files(str(home.with_name("out"))))
    (batch,) = plan_application(app, spark, "deadbeef").batches
    with open_home(home, app.name) as opened:
        context = Context(session=spark, connection=connection, home=opened, state_partitions=2)
        (given,) = batch.inputs
        files = {given.log: FileLog("orders", reads, opened.store)} if isinstance(reads, fk.Files) else {}
        assert all(log.end() == 1 for log in files.values())
        logs = {batch.log: epoch_log_of(batch.logs(), context)}
        region = BatchRegion(batch, context, Shared(logs=logs, files=files, on_complete=lambda name: None))
        region.jobs.session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
        last = {given.log: {0: len(values) if source == "topic" else 1}}
        epoch = Epoch(number=0, first={given.log: {0: 0}}, last=last, then=last, views={}, cut_at_s=0.0)
        region.epochs.folder.make()
        computed = region.jobs.compute(epoch, {}, tag)
        written = region.jobs.write(epoch, "0-0", computed, direct=False)
    return written.rows, written.dead
