"""A recovery objective in a running application: one start measures, and the next one chooses its interval."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.supervision.query import Query
from falkirk.theory.objective import GUESSES, Measurements, choose_interval
from tests.integration.live import Wire, await_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOAL_S = 20.0


def measured(query: Query) -> Measurements:
    return query._home.store.measurements("out")


def interval_of(query: Query) -> float:
    """Return the batch duration of the query that Spark runs, in seconds."""
    inner: Any = query.queries[0]._jsq
    return float(inner.streamingQuery().trigger().batchDurationMs()) / 1000


def test_a_measured_restart_changes_the_interval_at_the_next_start(
    spark: "SparkSession", wire: Wire, home: Path
) -> None:
    events, out = wire.topic("events"), wire.topic("out")
    app = fk.App("recovers", home=home)
    app.source("events", fk.Kafka(events, schema="word STRING NOT NULL", key="word"))

    @app.stream(fk.Lazy(recover_within=GOAL_S))
    def counts(events: fk.Stream) -> fk.Stream:
        return events.groupBy("word").agg(F.count("*").alias("n"))

    app.sink("out", counts, fk.Kafka(out, key="word"))
    wire.send(events, [{"word": "a"}] * 3)

    def begin(expected: Measurements) -> Query:
        query = app.start(kafka=wire.bootstrap)
        try:
            choice = choose_interval(GOAL_S, expected, standby=False)
            assert query.status[0].objective is not None
            assert query.status[0].objective["interval_s"] == choice.interval_s == interval_of(query)
            for name, rate in query.status[0].objective["rates"].items():
                assert rate == {"value": getattr(choice.rates, name), "measured": name in choice.measured}, name
        except BaseException:
            query.stop()
            raise
        return query

    query = begin(Measurements())
    try:
        wire.await_count(out, 3, query)
        await_one(query, lambda: measured(query).restart_s is not None, "the time of its start")
        found = measured(query)
        assert found.restart_s is not None
        assert 0.1 < found.restart_s < 120
        assert found.standby_restart_s is None
        slow = dataclasses.replace(found, restart_s=16.1, replay_per_s=4500.0, input_per_s=500.0, checkpoint_s=0.4)
    finally:
        query.stop()
    with open_home(home, app.name) as opened:  # a host that runs adds what it measures
        opened.store.record_measurements("out", slow)
    assert choose_interval(GOAL_S, slow, standby=False).interval_s == 14.7, "3.9 s × 9 − 20 s − 0.4 s"
    assert choose_interval(GOAL_S, Measurements(), standby=False).rates == GUESSES
    wire.send(events, [{"word": "b"}] * 2)
    query = begin(slow)
    try:
        wire.await_count(out, 5, query)
        await_one(query, lambda: measured(query) != slow, "what the second start measures")
    finally:
        query.stop()
    published = sorted((row["word"], row["n"]) for row in wire.rows(out))
    assert published == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)], "each result came once"
