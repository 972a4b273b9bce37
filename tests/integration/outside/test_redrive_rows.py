"""Rows on which a Python function failed, sent again once the function is mended: each counts once, and those that
counted at first are not sent."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.plan.shape import read_shape
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.user_tools.commands.redrive import send_again
from tests.integration.epochs.test_batches import Table
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def application(tag: str, home: Path, events: str, database: str, kind: str, *, mended: bool) -> fk.App:
    app = fk.App(f"poisoned-{tag}", home=home)  # its dead letters have a separate topic
    app.source("clicks", fk.Kafka(events, schema="word STRING NOT NULL, n INT", key="word"))

    def halved(row: Any, state: Any) -> Any:
        half = row.n // 2 if mended else 10 // (row.n % 5) and row.n // 2
        return {"word": row.word, "half": half}, {"seen": 1 if state is None else state.seen + 1}

    options = {"key": "word", "state": "seen INT", "returns": "word STRING, half INT"}
    if kind == "stream":

        @app.stream(fk.Lazy("1 second"))
        def halves(clicks: fk.Stream) -> fk.Stream:
            return clicks.stateful(halved, **options)
    else:

        @app.stream(fk.Eager())
        def halves(clicks: fk.Stamped) -> Any:
            return fk.map_rows(clicks, lambda row: halved(row, None)[0], returns="word STRING, half INT")

    app.sink("halves", halves, fk.Sql(database, "halves"))
    return app


@pytest.mark.parametrize("kind", ["stream", "batch"])
def test_a_row_counts_once_its_function_is_mended(
    kind: str, spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    events, table, connection = wire.topic("events"), Table(database, "halves"), Connection.of(broker.bootstrap)

    def run(rows: int, *, mended: bool) -> fk.App:
        app = application(tag, home, events, database, kind, mended=mended)
        query = run_here(app, connection)
        try:
            wait_until(lambda: len(table.rows()) == rows or not query.isActive, 120, f"{rows} rows: {query.status}")
            if not mended:
                wait_until(lambda: query.status[0].dead_letters == 2 or not query.isActive, 60, "dead letters")
            assert query.isActive, query.exception()
        finally:
            query.stop()
        return app

    wire.send(events, [{"word": f"w{n % 2}", "n": n} for n in range(10)], partition=1)
    app = run(8, mended=False)  # it fails on 0 and 5
    with open_home(home, app.name) as opened:
        shape = read_shape(opened.path)
        assert shape is not None
        for sent in (2, 0):
            assert send_again(app, opened, shape, connection)["sent"] == sent
    run(10, mended=True)
    assert sorted(row["half"] for row in table.rows()) == sorted(n // 2 for n in range(10))
