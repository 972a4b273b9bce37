"""Batches on real Spark and Kafka: epochs, state, views, sinks of several kinds."""

import copy
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sql

from falkirk.runtime.supervision.query import Query
from falkirk.spark_setup.broker import Broker
from falkirk.testing import run
from tests.integration.batches import ROWS, application
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS = ("ash", "birch", "cedar")


class Table:
    """A table that the application writes."""

    def __init__(self, database: str, name: str) -> None:
        self._engine, self._name = sql.create_engine(database), name

    def rows(self) -> list[dict[str, Any]]:
        """Return its rows, none while there is no such table."""
        if not sql.inspect(self._engine).has_table(self._name):
            return []
        with self._engine.begin() as db:
            return [dict(row) for row in db.execute(sql.text(f"SELECT * FROM {self._name}")).mappings()]


@pytest.mark.quick
def test_epochs_state_and_views_reach_their_sinks_once(
    spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    events, queries = wire.topic("events"), wire.topic("queries")
    weights, answers = wire.topic("weights"), wire.topic("answers")
    totals, answered = Table(database, f"totals_{tag}"), Table(database, f"answered_{tag}")
    sent: Counter[str] = Counter()

    def send(count: int) -> None:
        words = [WORDS[i % len(WORDS)] for i in range(count)]
        sent.update(words)
        wire.send(events, [{"word": w, "n": i} for i, w in enumerate(words)], partition=count % 2)

    def await_totals(query: Query) -> None:
        def there() -> bool:
            assert query.isActive, query.exception()
            return {r["word"]: r["total"] for r in totals.rows()} == dict(sent)

        wait_until(there, 120, f"totals of {dict(sent)}; there is {totals.rows()}, {query.status}")

    app = application(tag, home.with_name("unused"), database)
    declared = copy.deepcopy(vars(app))
    query = app.start(kafka=broker.bootstrap, home=home)
    assert repr(query) == f"<Query {app.name}: running, {len(query.status)} regions and batches>"
    try:
        assert vars(app) == declared, "a start changes no declaration"
        wire.send(events, [b"no json", {"n": 1}])
        send(ROWS - 2)
        send(3 * ROWS)
        await_totals(query)
        wire.send(queries, [{"id": i, "word": WORDS[i % 3]} for i in range(10)])
        wire.await_count(answers, 10, query)
        send(2 * ROWS)
        await_totals(query)
        wire.send(queries, [{"id": 10, "word": "ash"}])
        wire.await_count(answers, 11, query)
        wait_until(lambda: len(answered.rows()) == 11, 60, "answers in the table")
        wait_until(lambda: sum(r["weight"] for r in wire.rows(weights)) >= sent.total(), 60, "weights in the topic")
        wait_until(lambda: wire.count("search-weights.dead-letters") >= 2, 60, "dead letters")

        def counted_out() -> dict[str, Any]:
            (figures,) = (f for f in query._host.figures() if f["name"] == "answers")
            return figures

        def all_count() -> bool:
            return [o["records"] for o in counted_out()["sinks"].values()] == [11, 11]

        wait_until(all_count, 60, lambda: f"11 answers in each sink: {counted_out()}")
        assert counted_out()["sources"][queries] == {"records": 11, "lag": 0}
        assert sum(counted_out()["epochs"]["duration"]["counts"]) >= 2
    finally:
        query.stop()
    found = {r["id"]: r for r in wire.rows(answers)}
    assert found == {r["id"]: r for r in answered.rows()}, "the sinks of one processor contradict each other"
    assert found[10]["total"] == sent["ash"]
    counted: Counter[str] = Counter()
    for row in wire.rows(weights):
        counted[row["word"]] += row["weight"]
    assert counted == sent
    with run(app) as t:  # the test kit gives the same
        records = [record.value for record in wire.records(events)]
        t.feed("events", records)
        t.advance("1 second")
        t.feed("queries", [{"id": 10, "word": "ash"}])
        assert {r["word"]: r["total"] for r in t.read("totals")} == dict(sent)
        assert t.read("answers") == t.read("answered") == [found[10]]
        assert sum(letter["region"] == "weights" for letter in t.dead_letters()) == 2
