"""Plans with windows of event time: the inference, their columns, and the mistakes that Falkirk reports."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from tests.integration.planning import line_of, names, refused

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

SCHEMA = "id STRING NOT NULL, at TIMESTAMP, other TIMESTAMP, n INT"
Planned = Callable[..., Plan]


def window() -> "Column":
    return F.window("at", "10 minutes", "5 minutes")


def timed(stream: fk.Stream) -> fk.Stream:
    return stream.withWatermark("at", "10 seconds")


@pytest.fixture
def planned(plan: Planned) -> Callable[[Callable[[fk.Stream], fk.Stream]], Plan]:
    """Plan a processor that reads a source with a key."""
    return lambda body: plan(body, key="id", schema=SCHEMA)


def test_results_leave_on_arrival_and_the_plan_says_why(planned: Planned) -> None:
    made = planned(lambda s: timed(s).where("n > 1").groupBy("id", window()).agg(F.sum("n").alias("n")))
    (region,) = made.regions
    logs = region.logs()
    assert (logs.keyed_step, logs.keyed_by, logs.filters) == ("windows", ("id",), True)
    (promise,) = promises_of(made)
    assert promise.release == "on arrival"
    assert region.stateful
    assert region.deterministic
    (reason,) = [each for each in promise.reasons if each.kind == "event-time"]
    assert "by 10 s" in reason.text
    assert "A window gives one result" in reason.text
    assert "append, at, 10 s, 60 s ahead" in region.fingerprint["keyed step"]
    assert "sub0" in region.fingerprint["stamp"]


def test_a_value_that_differs_in_the_buffers_makes_results_wait(planned: Planned) -> None:
    made = planned(lambda s: timed(s).withColumn("u", F.expr("uuid()")).groupBy(window(), "id").agg(F.max("u")))
    (promise,) = promises_of(made)
    assert promise.release == "behind a checkpoint"


def test_idle_partitions_need_micro_batches(planned: Planned) -> None:
    def idle(stream: fk.Stream) -> fk.Stream:
        return stream.withWatermark("at", "10 seconds", idle="1 minute").groupBy(window(), "id").agg(F.sum("n"))

    made = planned(idle)
    assert made.regions == ()
    (batch,) = made.batches
    assert "withWatermark(idle=)" in batch.reason
    assert "idle-partitions-1" in batch.slots


def test_a_keyed_step_after_windows_has_a_hop(planned: Planned) -> None:
    made = planned(lambda s: timed(s).groupBy(window(), "id").agg("count(1) AS n").groupBy("n").count())
    assert names(made) == ["counts-by-n", "out"]


@pytest.mark.parametrize("key", [None, "n"])
def test_without_all_records_of_a_key_in_a_partition_windows_run_in_micro_batches(
    spark: "SparkSession", key: str | None
) -> None:
    app = fk.App("windows")
    app.source("events", fk.Kafka("events", schema=SCHEMA, key=key))
    app.add_processor(
        "counts", lambda s: timed(s).groupBy(window(), F.upper("id").alias("up")).count(), reads=("events",),
        policy=fk.Lazy("5 seconds"),
    )  # fmt: skip
    app.sink("out", "counts", fk.Kafka("out"))
    made = plan_application(app, spark, "deadbeef")
    (batch,) = made.batches
    assert "a window runs live only if" in batch.reason
    assert batch.schema.names == ["window", "up", "count"]
    assert not made.properties["counts"].differs


def test_windows_of_other_columns_and_other_modes_are_refused(planned: Planned) -> None:
    def rejected(body: Callable[[fk.Stream], fk.Stream], condition: str, part: str) -> None:
        with pytest.raises(fk.DefinitionError) as caught:
            planned(body)
        assert caught.value.condition == condition
        assert part in str(caught.value)

    rejected(lambda s: timed(s).groupBy(F.window("other", "1 day"), "id").count(), "WINDOW_INVALID", "it is of other")
    rejected(
        lambda s: timed(s).withColumn("at", F.col("other")).groupBy(window(), "id").count(), "WINDOW_INVALID", "at"
    )
    rejected(
        lambda s: timed(s).groupBy(F.session_window("at", F.expr("make_dt_interval(n)")), "id").count(),
        "WINDOW_INVALID", "no constant",
    )  # fmt: skip
    rejected(lambda s: timed(s).groupBy(window(), F.window("at", "1 day")).count(), "WINDOW_INVALID", "two windows")
    rejected(lambda s: timed(s).groupBy("id").outputMode("complete").count(), "OUTPUT_MODE_INVALID", "complete")
    rejected(lambda s: s.groupBy("id").outputMode("append").count(), "OUTPUT_MODE_INVALID", "append")
    rejected(
        lambda s: timed(s).groupBy(window(), "id").agg(F.count_distinct("n").alias("n")), "STEP_INVALID", "distinct"
    )
    rejected(lambda s: timed(s).groupBy(F.window("at", "1 foo"), "id").count(), "STEP_INVALID", "foo")


@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.parametrize("random", ["uuid()", "concat(rand(), sum(n))"])
def test_windows_with_random_values_are_refused_on_both_engines(plan: Planned, key: str | None, random: str) -> None:
    def body(stream: fk.Stream) -> fk.Stream:
        return timed(stream).groupBy(window(), "id").agg(F.expr(random).alias("x"))  # refused

    error = refused(lambda: plan(body, key=key, schema=SCHEMA), "STEP_INVALID", line=line_of(__file__, "refused"))
    assert "() can't be among aggregates that are computed record by record. A later step can add it" in str(error)


@pytest.mark.parametrize("clock", [
    "current_timestamp()", "now()", "localtimestamp()", "current_date()", "curdate()", "current_time()",
    "unix_timestamp()", "CAST('now' AS TIMESTAMP)",
])  # fmt: skip
def test_no_name_of_the_current_time_is_part_of_an_aggregate(planned: Planned, clock: str) -> None:
    """Before, `now()` and `current_time()` were the time of the start in windows."""

    def body(stream: fk.Stream) -> fk.Stream:
        return timed(stream).groupBy(window(), "id").agg(F.max(F.expr(clock)).alias("now"))  # clock

    error = refused(lambda: planned(body), "STEP_INVALID", line=line_of(__file__, "clock"))
    assert "the current time can't stand inside an aggregate" in str(error)


def test_the_current_time_is_part_of_a_key(planned: Planned) -> None:
    planned(lambda s: timed(s).groupBy(window(), "id", F.current_date().alias("day")).agg(F.max("n").alias("m")))


def test_mistakes_are_reported_at_their_line(planned: Planned) -> None:
    refused(lambda: planned(lambda s: timed(s).groupBy(window(), "id").agg(F.sum("nope"))), "COLUMN_MISSING")


def test_a_window_without_an_event_time_is_a_key_like_any_other(planned: Planned) -> None:
    (region,) = planned(lambda s: s.groupBy(window(), "id").outputMode("update").count()).regions[-1:]
    assert region.fingerprint["keyed step"].startswith("count(")
