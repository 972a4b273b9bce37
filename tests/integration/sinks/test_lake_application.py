"""An application with two lake tables of one batch: other programs change the tables, and the application rolls back.

A table of a database beside them has the rows that they must have. The test takes minutes of CPU time, so it runs with
FALKIRK_STRIKES alone.
"""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sql
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.user_tools.commands.history.application import OfflineApplication
from tests.integration.live import Wire, await_one

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)
ROWS = 10


class Shop:
    """The application and its tables."""

    def __init__(self, wire: Wire, home: Path, folder: Path) -> None:
        self.wire, self.home, self.folder, self.sent = wire, home, folder, 0
        self.events = wire.topic("events")
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder)}
        self.database = f"sqlite:///{folder}/reference.db"
        self.app = fk.App("shop", home=home, history=50)
        self.app.source("events", fk.Kafka(self.events, schema="id INT, n INT"))

        @self.app.batch(rows=ROWS)
        def sales(events: "DataFrame") -> "DataFrame":
            return events.select("id", "n")

        self.app.sink("delta", sales, fk.Delta(str(folder / "delta"), partition_by="n"))
        self.app.sink("iceberg", sales, fk.Iceberg("shop.sales", "lake", self.properties, partition_by="n"))
        self.app.sink("reference", sales, fk.Sql(self.database, "sales"))

    def run(self) -> Query:
        return run_here(self.app, Connection.of(self.wire.bootstrap))

    def send(self, epochs: int) -> None:
        ids = range(self.sent, self.sent + epochs * ROWS)
        self.wire.send(self.events, [{"id": i, "n": i % 3} for i in ids])
        self.sent += epochs * ROWS

    def delta(self) -> Counter[int]:
        there = DeltaTable.is_deltatable(str(self.folder / "delta"))
        return Counter(DeltaTable(self.folder / "delta").to_pyarrow_table()["id"].to_pylist() if there else [])

    def iceberg(self) -> Counter[int]:
        catalog = load_catalog("lake", **self.properties)
        there = catalog.table_exists("shop.sales")
        return Counter(catalog.load_table("shop.sales").scan().to_arrow()["id"].to_pylist() if there else [])

    def reference(self) -> Counter[int]:
        with sql.create_engine(self.database).begin() as db:
            there = sql.inspect(db).has_table("sales")
            return Counter(db.execute(sql.text("SELECT id FROM sales")).scalars() if there else [])

    def all(self, expected: Callable[[], Counter[int]]) -> bool:
        return self.delta() == self.iceberg() == self.reference() == expected()

    def once(self) -> Counter[int]:
        return Counter(range(self.sent))


def is_behind(query: Query) -> bool:
    return any("SINK_BEHIND" in region.detail for region in query.status)


def test_strangers_and_a_rollback(spark: "SparkSession", wire: Wire, home: Path, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    shop = Shop(wire, home, tmp_path / "lake")
    query = shop.run()
    shop.send(3)
    await_one(query, lambda: shop.all(shop.once), "three epochs")
    print("== others clean up")
    table = DeltaTable(shop.folder / "delta")
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.create_checkpoint()
    iceberg = load_catalog("lake", **shop.properties).load_table("shop.sales")
    old = [s.snapshot_id for s in iceberg.snapshots() if s != iceberg.current_snapshot()]
    iceberg.maintenance.expire_snapshots().by_ids(old).commit()
    shop.send(2)
    await_one(query, lambda: shop.all(shop.once), "five epochs")
    print("== a table is restored while it runs")
    before = DeltaTable(shop.folder / "delta")
    before.restore(before.version() - 1)
    lost = shop.delta()
    assert lost.total() == 4 * ROWS
    shop.send(1)
    await_one(query, lambda: is_behind(query), "SINK_BEHIND")
    assert shop.delta() == lost
    query.stop()
    query = shop.run()
    await_one(query, lambda: shop.all(shop.once), "six epochs")
    print("== a table is dropped while it runs")
    load_catalog("lake", **shop.properties).drop_table("shop.sales")
    shop.send(1)
    await_one(query, lambda: is_behind(query), "SINK_BEHIND")
    assert not shop.iceberg()
    query.stop()
    query = shop.run()
    await_one(query, lambda: shop.all(shop.once), "seven epochs")
    query.stop()
    print("== rollback")
    with open_home(home, shop.app.name) as opened:
        visit = OfflineApplication(shop.app, opened, Connection.of(wire.bootstrap), runs=False, history=50)
        points = [p.checkpoint.number for p in visit.history() if p.region == "sales"]
        asked = visit.asked(f"sales@{sorted(points)[-3]}")
        visit.roll_back(asked, force=True)
        void = opened.store.voided_ranges("epochs:sales")
    shop.send(1)
    query = shop.run()
    twice = {i for v in void for n in range(v.first, v.last_exclusive) for i in range(n * ROWS, (n + 1) * ROWS)}

    def expected() -> Counter[int]:
        return shop.once() + Counter(twice)

    await_one(query, lambda: shop.all(expected), "eight epochs, of which some are there twice")
    query.stop()
