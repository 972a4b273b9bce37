"""Under `fk.FullHistory()` all that a batch has read is kept: it can go back to any epoch, however long ago, also when
what can go was collected at rest."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import falkirk as fk
from falkirk.declare.policy import Policy
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.user_tools.commands.history.application import OfflineApplication
from tests.integration.epochs.test_batches import Table
from tests.integration.live import Wire, await_one

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, EPOCHS = 5, 6


def application(tag: str, home: Path, database: str, policy: Policy) -> fk.App:
    """Return a batch that reads another one, from whose log its epochs would be gone."""
    app = fk.App("kept", home=home, history=0)
    app.source("events", fk.Kafka(f"events-{tag}", schema="n INT NOT NULL"))

    @app.batch(rows=ROWS)
    def first(events: "DataFrame") -> "DataFrame":
        return events.select("n")

    @app.batch(rows=1, policy=policy)  # one epoch of the other
    def second(first: "DataFrame") -> "DataFrame":
        return first.select("n")

    app.sink("second", second, fk.Sql(database, f"second_{tag}"))
    return app


@pytest.mark.parametrize(("policy", "kept"), [(fk.FullHistory(), EPOCHS + 1), (fk.LogSends(), 1)], ids=["full", "not"])
def test_all_of_it_is_kept(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, policy: Policy, kept: int
) -> None:
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    events, table, connection = (
        wire.topic("events", 1),
        Table(database, f"second_{tag}"),
        Connection.of(broker.bootstrap),
    )
    app = application(tag, home, database, policy)
    query = run_here(app, connection)
    try:
        for epoch in range(EPOCHS):
            wire.send(events, [{"n": epoch * ROWS + i} for i in range(ROWS)])
            await_one(query, lambda epoch=epoch: len(table.rows()) == (epoch + 1) * ROWS, f"epoch {epoch}")
    finally:
        query.stop()
    with open_home(home, app.name) as opened:
        visit = OfflineApplication(app, opened, connection, runs=False, history=app.history)
        visit.garbage()
        visit.recovery.collect()
    with open_home(home, app.name) as opened:
        visit = OfflineApplication(app, opened, connection, runs=False, history=app.history)
        assert len([p for p in visit.history() if p.region == "second"]) == kept
        folders = [e for e in visit.regions["first"].epochs.epochs() if visit.regions["first"].epochs.is_there(e)]
        assert len(folders) == kept - 1, "of what it reads as much is there"
    if kept == 1:
        return
    with open_home(home, app.name) as opened:
        OfflineApplication(app, opened, connection, runs=False).roll_back({"second": -1}, force=True)
    query = run_here(app, connection)
    try:
        await_one(query, lambda: len(table.rows()) == 2 * EPOCHS * ROWS, "all of it done once more")
    finally:
        query.stop()
