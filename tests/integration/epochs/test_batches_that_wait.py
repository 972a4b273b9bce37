"""The status names the reason for which a batch waits, nothing is lost, and it resumes when the reason ends: a view
without an epoch, an epoch without results, a database that refuses."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sql
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from tests.integration.batches import ROWS, application
from tests.integration.epochs.test_batches import WORDS, Table
from tests.integration.live import Wire, await_one
from tests.postgres import Postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def detail(query: Query, region: str) -> str:
    return next(r.detail for r in query.status if r.name == region)


def events_of(epoch: int) -> list[dict[str, Any]]:
    return [{"word": WORDS[n % 3], "n": n} for n in range(epoch * ROWS, (epoch + 1) * ROWS)]


def test_what_is_asked_of_a_view_that_is_not_there_yet_is_answered_once_it_is(
    spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    events, queries, _, answers = (wire.topic(name) for name in ("events", "queries", "weights", "answers"))
    answered, connection = Table(database, f"answered_{tag}"), Connection.of(broker.bootstrap)
    waits = "waiting for the first epoch of totals"

    def ask(first: int) -> None:
        wire.send(queries, [{"id": i, "word": WORDS[i % 3]} for i in range(first, first + 5)])

    for first in (0, 5):  # it is stopped while it waits, and waits again
        query = run_here(application(tag, home, database), connection)
        try:
            ask(first)
            await_one(query, lambda query=query: detail(query, "answers") == waits, waits)
            assert [r.detail for r in query.status if r.name != "answers"] == [""] * 3, "nothing else waits"
            assert (wire.count(answers), answered.rows()) == (0, [])
            if first:
                wire.send(events, events_of(0))
                await_one(query, lambda query=query: detail(query, "answers") == "", "it goes on")
                ask(10)
                await_one(query, lambda: len(answered.rows()) >= 15 and len(wire.rows(answers)) >= 15, "15 answers")
        finally:
            query.stop()
    total = {word: sum(r["word"] == word for r in events_of(0)) for word in WORDS}
    expected = [{"id": i, "word": WORDS[i % 3], "total": total[WORDS[i % 3]]} for i in range(15)]
    for found in (answered.rows(), wire.rows(answers)):
        assert sorted(found, key=lambda r: int(r["id"])) == expected, (
            "each is answered once, by the first epoch there is"
        )


@cache
def _gaps(tag: str, home: Path, database: str) -> fk.App:
    """An application that drops every other epoch, with any sink for the others."""
    app = fk.App("gaps", home=home)
    app.source("events", fk.Kafka(f"events-{tag}", schema="word STRING NOT NULL, n INT"))

    @app.batch(rows=ROWS)
    def odd(events: "DataFrame") -> "DataFrame":
        return events.where(F.floor(F.col("n") / ROWS) % 2 == 1).select("word", "n")

    @app.batch(rows=ROWS, policy=fk.Eager())
    def straight(events: "DataFrame") -> "DataFrame":
        return events.where(F.floor(F.col("n") / ROWS) % 2 == 1).select("n", "word").distinct()  # in no order

    app.sink("table", odd, fk.Sql(database, f"odd_{tag}"))
    app.sink("topic", odd, fk.Kafka(f"odd-{tag}"))
    app.sink("lines", odd, fk.Files(str(home.parent / "json"), "json"))
    app.sink("columns", odd, fk.Files(str(home.parent / "parquet")))
    app.sink("straight", straight, fk.Kafka(f"straight-{tag}"))
    return app


def test_an_epoch_without_results_is_passed_wherever_they_would_go(
    spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    events = wire.topic("events", partitions=1)
    odd, straight = wire.topic("odd", partitions=1), wire.topic("straight", partitions=1)
    table, folders = Table(database, f"odd_{tag}"), {kind: home.parent / kind for kind in ("json", "parquet")}
    epochs = 0

    def files(kind: str) -> list[int]:
        """Return the rows in the folders of a sink, in their order."""
        found = []
        for folder in sorted(folders[kind].glob("epoch=*")):
            read = spark.read.schema("word STRING, n INT").format(kind).load(str(folder))
            found += sorted(r["n"] for r in read.collect())
        return found

    def run(upto: int) -> None:
        nonlocal epochs
        query = run_here(_gaps(tag, home, database), Connection.of(broker.bootstrap))
        try:
            while epochs < upto:
                wire.send(events, events_of(epochs))
                epochs += 1
            await_one(query, lambda: [r.last_commit for r in query.status] == [epochs - 1] * 2, f"{epochs} epochs")
            rows = epochs // 2 * ROWS
            await_one(query, lambda: min(wire.count(odd), wire.count(straight)) >= rows, f"{rows} rows")
            await_one(query, lambda: len(table.rows()) >= rows, f"{rows} rows in the table")
            for kind, folder in folders.items():
                await_one(query, lambda folder=folder: len(list(folder.glob("epoch=*"))) == epochs, kind)
            assert [r.detail for r in query.status] == ["", ""]
        finally:
            query.stop()

    for upto in (1, 3, 4):  # nothing at first; nothing at last when it is started again
        run(upto)
    expected = [r["n"] for epoch in (1, 3) for r in events_of(epoch)]
    assert [r["n"] for r in table.rows()] == expected
    for topic in (odd, straight):
        assert [r["n"] for r in wire.rows(topic)] == expected
    for kind in folders:
        assert files(kind) == expected


class Refusing:
    """A role that lacks a right that it needs, in a separate schema.

    Attributes: url: the database's, as this role. table: the table to write.
    """

    def __init__(self, postgres: Postgres, tag: str) -> None:
        self._postgres, self._role = postgres, f"writer_{tag}"
        self.table = f"out_{tag}"
        for statement in (
            f"CREATE ROLE {self._role} LOGIN PASSWORD 'secret'",
            f"CREATE SCHEMA {self._role}",
            f"ALTER ROLE {self._role} SET search_path = {self._role}",
            f"GRANT USAGE ON SCHEMA {self._role} TO {self._role}",
        ):
            postgres.execute(statement)
        self.url = postgres.url(user=self._role, password="secret")
        self._engine = sql.create_engine(postgres.url().replace("postgresql:", "postgresql+psycopg:", 1))

    def allow(self, what: str) -> None:
        self._postgres.execute(f"GRANT {self._right(what)} TO {self._role}")

    def refuse(self, what: str) -> None:
        self._postgres.execute(f"REVOKE {self._right(what)} FROM {self._role}")

    def _right(self, what: str) -> str:
        return f"CREATE ON SCHEMA {self._role}" if what == "schema" else f"INSERT ON {self._role}.{self.table}"

    def rows(self) -> list[int]:
        """Return the rows of the table, in the order of their arrival."""
        with self._engine.begin() as db:
            if not sql.inspect(db).has_table(self.table, schema=self._role):
                return []
            return list(db.execute(sql.text(f"SELECT n FROM {self._role}.{self.table} ORDER BY ctid")).scalars())


@pytest.mark.parametrize("what", ["table", "schema"])
def test_a_database_that_refuses_keeps_its_own_epochs_waiting_and_loses_none(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, postgres: Postgres, what: str
) -> None:
    wire, refusing = Wire(bootstrap=broker.bootstrap, tag=tag), Refusing(postgres, tag)
    events, beside = wire.topic("events", partitions=1), wire.topic("beside", partitions=1)
    app = fk.App("refused", home=home)
    app.source("events", fk.Kafka(events, schema="word STRING NOT NULL, n INT"))

    @app.batch(rows=ROWS)
    def kept(events: "DataFrame") -> "DataFrame":
        return events.select("word", "n")

    @app.batch(rows=ROWS)
    def others(events: "DataFrame") -> "DataFrame":
        return events.select("n")

    app.sink("kept", kept, fk.Sql(refusing.url, refusing.table))
    app.sink("others", others, fk.Kafka(beside))
    says = f"permission denied for {what} {refusing.table if what == 'table' else f'writer_{tag}'}"
    allowed = 0

    def await_refusal(query: Query, epochs: int) -> None:
        await_one(query, lambda: says in detail(query, "kept"), says)
        await_one(query, lambda: wire.count(beside) >= epochs * ROWS, "those beside it go on")
        assert detail(query, "others") == ""
        assert "could not be written" in detail(query, "kept")
        assert refusing.table in detail(query, "kept"), "it names where"
        assert "secret" not in detail(query, "kept")
        assert refusing.rows() == list(range(allowed * ROWS))

    if what == "table":
        refusing.allow("schema")
    query = run_here(app, Connection.of(broker.bootstrap))
    try:
        wire.send(events, events_of(0))
        if what == "table":
            await_one(query, lambda: len(refusing.rows()) == ROWS, "the first epoch")
            refusing.refuse(what)
            allowed = 1
        wire.send(events, [*events_of(1), *events_of(2)])
        await_refusal(query, 3)
    finally:
        query.stop()
    query = run_here(app, Connection.of(broker.bootstrap))  # it waits for the same thing when it is started again
    try:
        wire.send(events, events_of(3))
        await_refusal(query, 4)
        refusing.allow(what)
        await_one(query, lambda: len(refusing.rows()) >= 4 * ROWS, "what has waited")
        wire.send(events, events_of(4))
        await_one(query, lambda: len(refusing.rows()) >= 5 * ROWS, "what has come since")
        await_one(query, lambda: detail(query, "kept") == "", "nothing is in its way")
        await_one(query, lambda: wire.count(beside) >= 5 * ROWS, "those beside it")
    finally:
        query.stop()
    assert refusing.rows() == list(range(5 * ROWS)), "each row once, in order"
    assert [r["n"] for r in wire.rows(beside)] == list(range(5 * ROWS))
