"""Spans of a real application with a batch and a live region, at a collector: an epoch fails once, and a query ends."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import SparkError
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark.epochs.jobs import EpochJobs
from falkirk.runtime.supervision.query import run_here
from falkirk.runtime.supervision.spans import ENDPOINTS
from falkirk.spark_setup.broker import Broker
from tests.collector import attributes, collecting
from tests.integration.live import Wire, await_one

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, SECRET = 10, "confidential"


def application(tag: str, home: Path, database: str) -> fk.App:
    app = fk.App("spans", home=home)
    app.source("events", fk.Kafka(f"events-{tag}", schema="word STRING, n INT"))

    @app.stream(fk.Lazy("2 seconds"))
    def live(events: fk.Stream) -> fk.Stream:
        return events.where("n >= 0")

    @app.batch(rows=ROWS)
    def counts(events: "DataFrame") -> "DataFrame":
        return events.groupBy("word").agg(F.count("*").alias("n"))

    app.sink("out", live, fk.Kafka(f"out-{tag}"))
    app.sink("table", counts, fk.Sql(database, "counts"))
    return app


def test_a_collector_has_the_spans_of_an_application(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, failures = Wire(bootstrap=broker.bootstrap, tag=tag), [f"a function failed on {SECRET!r}."]
    events, out = wire.topic("events"), wire.topic("out")
    compute = EpochJobs.compute

    def failing(jobs: EpochJobs, epoch: Any, *arguments: Any) -> Any:
        if epoch.number == 1 and failures:
            raise SparkError("JOB_FAILED", failures.pop())
        return compute(jobs, epoch, *arguments)

    monkeypatch.setattr(EpochJobs, "compute", failing)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINTS[1], collector.endpoint)
        app = application(tag, home, f"sqlite:///{home}.db")
        query = run_here(app, Connection.of(broker.bootstrap))
        try:
            wire.send(events, [{"word": SECRET, "n": n} for n in range(3 * ROWS)])
            await_one(query, lambda: len(collector.spans("falkirk.release")) == 3, "three released epochs")
            await_one(query, lambda: collector.spans("falkirk.checkpoint"), "a checkpoint")
            (running,) = query.queries
            running.stop()
            await_one(query, lambda: collector.spans("falkirk.outage"), "the end of the outage")
            wire.send(events, [{"word": SECRET, "n": 0}])
            await_one(query, lambda: wire.count(out) >= 3 * ROWS + 1, "all results")
        finally:
            query.stop()
    assert collector.services() == {"spans"}
    assert not [request for request in collector.requests if SECRET.encode() in request.SerializeToString()]

    (start,) = collector.spans("falkirk.start")
    assert collector.steps(start) == ["recovery"]
    by_try = {(a["epoch"], a["try"]): span for span in collector.spans("falkirk.epoch") for a in [attributes(span)]}
    # Two epochs are computed at once.
    tries = sorted((*key, attributes(span)["outcome"]) for key, span in by_try.items())
    assert tries == [(0, 1, "complete"), (1, 1, "failed"), (1, 2, "complete"), (2, 1, "complete")]
    first, failed = by_try[0, 1], by_try[1, 1]
    expected = {"application": "spans", "processor": "counts", "records": ROWS, "results": 1, "dead_letters": 0}
    assert attributes(first).items() >= expected.items()
    assert collector.steps(first) == ["compute", "write", "save", "record", "release"]
    assert (failed.status.code, failed.status.message) == (failed.status.STATUS_CODE_ERROR, "JOB_FAILED")
    assert collector.steps(failed) == ["compute"]
    (recovery,) = [s for s in collector.spans("falkirk.recovery") if not s.parent_span_id]
    assert (attributes(recovery)["reason"], attributes(recovery)["processors"]) == ("out is dead", "out")
    steps = collector.steps(recovery)
    assert steps[0] == "decision"
    assert steps[-2:] == ["rewind", "processor.start"]
    (started,) = [s for s in collector.spans("falkirk.processor.start") if s.parent_span_id == recovery.span_id]
    assert attributes(started)["incarnation"] == 2
    assert collector.steps(started) == ["tail", "tail"]
    (outage,) = collector.spans("falkirk.outage")
    assert attributes(outage).items() >= {"processor": "out", "error.type": "QUERY_ENDED", "incarnation": 2}.items()
    assert outage.start_time_unix_nano <= recovery.start_time_unix_nano < outage.end_time_unix_nano
    checkpoints = [attributes(span) for span in collector.spans("falkirk.checkpoint")]
    assert {a["processor"] for a in checkpoints} == {"out"}
    assert sum(a["records"] for a in checkpoints) >= 3 * ROWS
