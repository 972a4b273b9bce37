"""A rollback invalidates the epochs that have read an invalid record, and no other epoch, wherever the last
checkpoint of their batch is: the solver counts a batch in epochs and knows where each was cut."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import open_home
from falkirk.recovery.protocol.layout import Stage, TimeDomain
from falkirk.recovery.protocol.ports import LogRange
from falkirk.runtime.spark.epochs.at_rest import BatchAtRest
from falkirk.runtime.spark.epochs.log import Epoch
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.theory.frontier import Frontier
from falkirk.user_tools.commands.history.application import OfflineApplication
from tests.integration.epochs.test_batches import WORDS, Table
from tests.integration.live import Wire, await_one

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 12
EPOCHS = 4
#: The newest epoch of `drawn` that stays.
STAYS = 2


def application(tag: str, home: Path, database: str) -> fk.App:
    """Return a batch that makes random values, and one that counts them and never saves its state."""
    app = fk.App("stays", home=home, history=10)
    app.source("events", fk.Kafka(f"events-{tag}", schema="word STRING NOT NULL, n INT"))

    @app.batch(rows=ROWS)
    def drawn(events: "DataFrame") -> "DataFrame":
        return events.select("word", "n", F.rand().alias("x"))

    never = fk.Lazy(when=lambda epoch: False)

    @app.batch(every="0.1 seconds", state="word STRING, total LONG", policy=never)
    def counted(drawn: "DataFrame", counted: "DataFrame") -> "tuple[DataFrame, DataFrame]":
        new = drawn.groupBy("word").agg(F.count("*").alias("total"))
        after = counted.unionByName(new).groupBy("word").agg(F.sum("total").alias("total"))
        return drawn.select("word", "x").join(after, "word"), after

    app.sink("counted", counted, fk.Sql(database, f"counted_{tag}"))
    return app


def as_offsets(patch: pytest.MonkeyPatch) -> None:
    """The mechanism switched off: a batch counts in the offsets of its input, and goes back to its checkpoint whole."""
    patch.setattr(Stage, "is_cut", property(lambda stage: False))
    patch.setattr(TimeDomain, "nothing", TimeDomain.OFFSETS.nothing)

    def beyond(batch: BatchAtRest, number: int, upto: Frontier) -> tuple[LogRange, ...]:
        later = [e.number for e in batch.epochs.epochs() if e.number > number]
        return ((batch.logs.log, 0, later[0], later[-1] + 1),) if later else ()

    patch.setattr(BatchAtRest, "beyond", beyond)


@pytest.mark.parametrize("counts", ["epochs", "offsets"])
def test_only_epochs_that_have_read_what_is_taken_back_are_computed_again(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, counts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if counts == "offsets":
        as_offsets(monkeypatch)
    wire, table = Wire(bootstrap=broker.bootstrap, tag=tag), Table(f"sqlite:///{home}.db", f"counted_{tag}")
    events = wire.topic("events", partitions=1)
    app, connection = application(tag, home, f"sqlite:///{home}.db"), Connection.of(broker.bootstrap)
    sent: Counter[str] = Counter()

    def run(epochs: int, doubled: int) -> None:
        query = run_here(app, connection)
        try:
            for _ in range(epochs):
                words = [WORDS[i % len(WORDS)] for i in range(ROWS)]
                sent.update(words)
                wire.send(events, [{"word": w, "n": i} for i, w in enumerate(words)])
                await_one(query, lambda: len(table.rows()) == sent.total() + doubled, f"{sent} and {doubled} again")
        finally:
            query.stop()

    def counted() -> dict[int, Epoch]:
        return {e.number: e for e in batches["counted"].epochs.epochs()}

    run(EPOCHS, 0)
    with open_home(home, app.name) as opened:
        visit = OfflineApplication(app, opened, connection, runs=False, history=app.history)
        batches = {name: r for name, r in visit.regions.items() if isinstance(r, BatchAtRest)}
        before, stay = counted(), STAYS + 1 if counts == "epochs" else 0
        assert sorted(before) == list(range(EPOCHS))
        assert not any(e.saved for e in before.values()), "its only checkpoint is the start"
        moved = {m.region: m for m in visit.preview(visit.asked(f"drawn@{STAYS}")).moves}
        assert (moved["drawn"].taken_back, moved["counted"].taken_back) == (EPOCHS - STAYS - 1, EPOCHS - stay)
        assert moved["counted"].why == "it has read results of drawn that become invalid"
        visit.roll_back(visit.asked(f"drawn@{STAYS}"), force=True)
        assert [(v.first, v.last_exclusive) for v in opened.store.voided_ranges("epochs:counted")] == [(stay, EPOCHS)]
        assert sorted(counted()) == list(range(stay))
    run(1, doubled=(EPOCHS - stay) * ROWS)
    with open_home(home, app.name) as opened:
        visit = OfflineApplication(app, opened, connection, runs=False, history=app.history)
        batches = {name: r for name, r in visit.regions.items() if isinstance(r, BatchAtRest)}
        after = counted()
        assert {n: after[n] for n in range(stay)} == {n: before[n] for n in range(stay)}, "they were computed again"
    last = {word: max(r["total"] for r in table.rows() if r["word"] == word) for word in sent}
    assert last == dict(sent), "the state was lost or counted twice"
