"""A full disk under a running application: regions, epochs and folders wait, and then each result is published once."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from tests.disks import small_disk
from tests.integration.epochs.test_batches import Table
from tests.integration.live import Wire
from tests.postgres import Postgres
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 6


@pytest.mark.parametrize("of_all", [True, False], ids=["all of it", "a sink's alone"])
def test_an_application_waits_for_space_and_goes_on(
    of_all: bool, spark: "SparkSession", broker: Broker, postgres: Postgres, tmp_path: Path, tag: str
) -> None:
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{tmp_path}/out.db"
    events, passed = wire.topic("events"), wire.topic("passed")
    table = Table(database, "counted")
    with small_disk(tmp_path / "disk", "48m") as disk:
        out = disk.path / "out"
        # Decisions are elsewhere, so that it is Spark that meets the full disk.
        home = (disk.path if of_all else tmp_path) / "home"
        app = fk.App(f"full-{tag}", home=home, store=postgres.url())
        app.source("events", fk.Kafka(events, schema="id INT NOT NULL"))

        @app.stream(fk.Lazy("1 second"))
        def passing(events: fk.Stream) -> fk.Stream:
            return events

        @app.stream(fk.Eager())
        def counted(events: "DataFrame") -> "DataFrame":
            return events

        app.sink("passed", passing, fk.Kafka(passed))
        app.sink("folder", counted, fk.Files(str(out), "json"))
        app.sink("table", counted, fk.Sql(database, "counted"))
        query = run_here(app, Connection.of(broker.bootstrap))

        def there(count: int) -> bool:
            assert query.isActive, query.exception()
            written = sum(file.read_text().count("\n") for file in out.glob("epoch=*/*.json"))  # not by a job each time
            return len(table.rows()) == written == count and wire.count(passed) >= count

        def told(region: str) -> bool:
            assert query.isActive, query.exception()
            found = next(r for r in query.status if r.name == region)
            return "the disk is full" in found.detail or "No space left" in found.detail

        try:
            wire.send(events, [{"id": i} for i in range(ROWS)])
            wait_until(lambda: there(ROWS), 90, f"the first rows: {query.status}")
            disk.fill()
            wire.send(events, [{"id": ROWS + i} for i in range(ROWS)], partition=1)
            for region in ("counted", "passed") if of_all else ("counted",):
                wait_until(lambda region=region: told(region), 60, f"{region} to meet it: {query.status}")  # type: ignore[misc]
            if not of_all:
                wait_until(lambda: wire.count(passed) == 2 * ROWS, 60, f"the others to go on: {query.status}")
            disk.empty()
            wait_until(lambda: there(2 * ROWS), 120, f"all rows: {query.status}")
        finally:
            query.stop()
        everything = list(range(2 * ROWS))
        assert sorted(r["id"] for r in wire.rows(passed)) == everything
        assert sorted(r["id"] for r in table.rows()) == everything
        assert sorted(r.id for r in spark.read.json(f"{out}/epoch=*").collect()) == everything
