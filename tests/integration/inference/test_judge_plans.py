"""`falkirk verify outputs` plans an application once, also if it has live regions and batches."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.plan.planner import plan_application
from falkirk.recovery.ownership.folder import open_home
from falkirk.user_tools.commands.judge_outputs import OutputsJudge
from tests.integration.live import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_live_regions_and_batches_are_judged_by_one_plan(spark: "SparkSession", wire: Wire, home: Path) -> None:
    """A plan calls the user's functions, and takes most of the time of the command if there are few records.

    The home has recorded no epoch. The sink of the batch is a topic, so it is first taken for that of a live region.
    """
    events, live, batch = (wire.topic(name) for name in ("events", "live", "batch"))
    app, calls = fk.App("judged", home=home), dict[str, int]()
    app.source("events", fk.Kafka(events, schema="n LONG NOT NULL"))

    @app.stream(fk.Ephemeral())
    def odd(events: fk.Stream) -> fk.Stream:
        calls["odd"] = calls.get("odd", 0) + 1
        return events.where("n % 2 = 1")

    @app.batch(rows=2)
    def all_of_them(events: Any) -> Any:
        calls["all_of_them"] = calls.get("all_of_them", 0) + 1
        return events

    app.sink("live", odd, fk.Kafka(live))
    app.sink("batch", all_of_them, fk.Kafka(batch))
    open_home(home, "judged").close()
    with OutputsJudge(
        app, Connection.of(wire.bootstrap), home=None, memory_bytes=1 << 24, partial=False
    ) as judge:  # fmt: skip
        shown = {what.title: judge.judge(what).shown for what in judge.outputs(())}
    assert shown.keys() == {"sink live", "sink batch"}
    once = dict(calls)
    plan_application(app, spark, "deadbeef")
    assert {name: count - once[name] for name, count in calls.items()} == once
