"""The steps of a batch change between two saves of its state: refused while the results of unsaved epochs count.

Their state would be computed again by other steps than those that their published results are from.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import HomeError
from falkirk.kafka_client.connection import Connection
from falkirk.plan.planner import plan_application
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.epochs import region
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.user_tools.commands.history.application import OfflineApplication
from tests.integration.epochs.test_batches import Table
from tests.integration.live import Wire, await_one

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def application(
    home: Path, database: str, events: str = "events", *, step: int = 1, shown: int = 1, policy: Any = None
) -> fk.App:
    """Return a batch that sums. Args: step: how much a record counts in its state. shown: in its results alone."""
    app = fk.App("sums", home=home, history=10)
    app.source("events", fk.Kafka(events, schema="word STRING NOT NULL, n INT"))

    @app.batch(rows=1, state="word STRING, total LONG", policy=policy or fk.Lazy(when=lambda epoch: False))
    def counted(events: "DataFrame", counted: "DataFrame") -> "tuple[DataFrame, DataFrame]":
        new = events.groupBy("word").agg(F.sum(F.lit(step)).alias("total"))
        after = counted.unionByName(new).groupBy("word").agg(F.sum("total").alias("total"))
        return after.select("word", (F.col("total") * shown).alias("total")), after

    app.sink("counted", counted, fk.Sql(database, "counted"))
    return app


def test_what_decides_the_state_is_known_by_its_digest(spark: "SparkSession", home: Path) -> None:
    """The steps of the results alone may change, and a batch that saves each state has no digest."""

    def of(app: fk.App) -> str:
        (batch,) = plan_application(app, spark, "deadbeef").batches
        return batch.program

    database = "sqlite:///none.db"
    program = of(application(home, database))
    assert program
    assert of(application(home, database)) == program, "it differs each time"
    assert of(application(home, database, shown=2)) == program
    assert of(application(home, database, step=2)) != program
    assert of(application(home, database, policy=fk.Lazy("1 hour"))) == program
    assert of(application(home, database, policy=fk.Eager())) == ""


def test_a_python_function_counts_by_its_code(spark: "SparkSession", home: Path) -> None:
    def of(by: int) -> str:
        app = fk.App("sums", home=home)
        app.source("events", fk.Kafka("events", schema="word STRING NOT NULL, n INT"))

        more = fk.deterministic(lambda n: n * by)

        @app.batch(rows=1, state="n LONG", policy=fk.Lazy("1 hour"))
        def counted(events: "DataFrame", counted: "DataFrame") -> "tuple[DataFrame, DataFrame]":
            times: Callable[[str], Column] = F.udf(more, "long")
            new = events.select(times("n").alias("n")).unionByName(counted).agg(F.sum("n").alias("n"))
            return new.select(F.col("n").alias("shown")), new

        app.sink("counted", counted, fk.Sql("sqlite:///none.db", "counted"))
        (batch,) = plan_application(app, spark, "deadbeef").batches
        assert batch.deterministic
        return batch.program

    assert of(2) == of(2)
    assert of(2) != of(3)


@pytest.mark.parametrize("is_off", [False, True])
def test_other_steps_are_refused_while_the_state_is_not_saved(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, is_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, connection, database = (
        Wire(bootstrap=broker.bootstrap, tag=tag), Connection.of(broker.bootstrap), f"sqlite:///{home}.db"
    )  # fmt: skip
    events, table = wire.topic("events", partitions=1), Table(database, "counted")
    if is_off:
        monkeypatch.setattr(region, "refuse_other_program", lambda *arguments: None)

    def run(records: int, **changed: Any) -> list[int]:
        """Run it until each record has given a result; return all results."""
        before = len(table.rows())
        query = run_here(application(home, database, events, **changed), connection)
        try:
            for _ in range(records):
                wire.send(events, [{"word": "a", "n": 1}])
            await_one(query, lambda: len(table.rows()) == before + records, "the results")
        finally:
            query.stop()
        return sorted(row["total"] for row in table.rows())

    assert run(2) == [1, 2]
    if is_off:
        assert run(1, step=10) == [1, 2, 30], "2 + 10 is 12: the state contradicts what is published"
        return
    with pytest.raises(HomeError) as refused:
        run(0, step=10)
    assert refused.value.condition == "APPLICATION_CHANGED"
    assert refused.value.parameters.items() >= {"region": "counted", "count": 2, "checkpoint": "start"}.items()
    with open_home(home, "sums") as opened:
        app = application(home, database, events, step=10)
        visit = OfflineApplication(app, opened, connection, runs=False, history=app.history)
        visit.roll_back(visit.asked("counted@start"), force=True)
    assert run(2, step=10) == [1, 2, 10, 20], "both epochs are computed again"


def test_a_stop_saves_the_state_so_that_the_steps_may_change(
    spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    """Under a policy that saves by the clock. Else hardly a change would be possible under steady input."""
    wire, connection, database = (
        Wire(bootstrap=broker.bootstrap, tag=tag), Connection.of(broker.bootstrap), f"sqlite:///{home}.db"
    )  # fmt: skip
    events, table = wire.topic("events", partitions=1), Table(database, "counted")
    for count, step, totals in ((1, 1, [1]), (2, 10, [1, 11])):
        query = run_here(application(home, database, events, step=step, policy=fk.Lazy("1 hour")), connection)
        try:
            wire.send(events, [{"word": "a", "n": 1}])
            await_one(query, lambda count=count: len(table.rows()) == count, "the result")
        finally:
            query.stop()
        assert sorted(row["total"] for row in table.rows()) == totals
