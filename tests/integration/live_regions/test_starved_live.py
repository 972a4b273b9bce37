"""A live region whose batches are too short to read a record: it reads on with longer ones."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan.plan import Plan
from falkirk.runtime.supervision import start as hosted
from tests.integration.live import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST = "spark.sql.streaming.realTimeMode.minBatchDuration"


@pytest.fixture
def hasty(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Checkpoints each 5 ms: no task starts within that, as on a machine that is too busy for a second."""
    least = spark.conf.get(LEAST)
    spark.conf.set(LEAST, "1ms")
    chosen_for = hosted.chosen_for

    def short(plan: Plan, *given: Any, **named: Any) -> Plan:
        plan = chosen_for(plan, *given, **named)
        return replace(plan, regions=tuple(replace(region, interval_s=0.005) for region in plan.regions))

    monkeypatch.setattr(hosted, "chosen_for", short)
    yield
    spark.conf.set(LEAST, str(least))


@pytest.mark.usefixtures("hasty")
def test_a_region_whose_batches_read_nothing_gets_longer_ones(wire: Wire, home: Path) -> None:
    events, out = wire.topic("events", partitions=1), wire.topic("out")
    app = fk.App("hasty", home=home)
    app.source("events", fk.Kafka(events, schema="n BIGINT NOT NULL"))

    @app.stream(fk.Lazy("1 second"))
    def doubled(events: fk.Stream) -> fk.Stream:
        return events.select((F.col("n") * 2).alias("n"))

    app.sink("out", doubled, fk.Kafka(out))
    wire.send(events, [{"n": n} for n in range(3)])
    query = app.start(kafka=wire.bootstrap)
    try:
        wire.await_count(out, 3, query)
        assert query.status[0].restarts >= 1  # on a busy machine, the longer batches may be too short as well
        assert query.status[0].incarnation == query.status[0].restarts + 1
    finally:
        query.stop()
    assert [row["n"] for row in wire.rows(out)] == [0, 2, 4]
