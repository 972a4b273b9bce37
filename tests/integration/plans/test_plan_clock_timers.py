"""Plans of timers by the clock: they run live, results wait for a checkpoint, and the plan names the timer."""

from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.declare.clock import ClockTopic
from falkirk.plan.fingerprint import places_of_keyed_step
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.reasons import IN_STATE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@fk.deterministic
def added(row: Any, state: Any) -> Any:
    return row, {"n": row.n}, None


@fk.deterministic
def reminded(key: Any, time: Any, state: Any) -> Any:
    return {"s": key.s, "n": state.n}, None


def undeclared(row: Any, state: Any) -> Any:
    return row, {"n": row.n}


def timed(function: Any = added) -> Any:
    def body(events: fk.Stream, clock: fk.Stream) -> fk.Stream:
        clocked = events.withClock(clock).where("n > 0")
        return clocked.stateful(function, key="s", state="n INT", returns="s STRING, n INT", on_timer=reminded)

    return body


def planned(spark: "SparkSession", body: Any, *, delivery: str = "exactly-once", **options: Any) -> Plan:
    app = fk.App("shop")
    app.source("events", fk.Kafka("events", schema="s STRING, n INT", key="s"))
    app.source("clock", fk.Clock("2 seconds"))
    app.add_processor("timed", body, reads=("events", "clock"), policy=fk.Lazy("5 seconds"), **options)
    app.sink("out", "timed", fk.Kafka("out", key="s"), delivery=delivery)
    return plan_application(app, spark, "deadbeef")


@pytest.mark.parametrize("function", [added, undeclared])
def test_results_wait_because_of_the_timer_whatever_is_declared(spark: "SparkSession", function: Any) -> None:
    plan = planned(spark, timed(function))
    (region,) = plan.regions
    assert region.reads == ("events", "falkirk.shop.deadbeef.clock"), "the clock comes last"
    assert (region.stateful, region.deterministic, region.released_to is not None) == (True, False, True)
    assert region.undetermined is not None
    names = ("ClockTimer",) if function is added else ("ClockTimer", "PythonUDF")
    assert (region.undetermined.operations, region.undetermined.why) == (names, IN_STATE)
    assert places_of_keyed_step(region.fingerprint) == 2
    (promise,) = promises_of(plan)
    assert "a timer by the clock" in str(promise).lower()
    assert not any("LogSends" in text for text in region.advice())
    assert plan.clocks == (ClockTopic("falkirk.shop.deadbeef.clock", schema="at TIMESTAMP NOT NULL", every_s=2.0),)
    assert plan.properties["timed"].differs


def test_repeated_delivery_does_not_wait(spark: "SparkSession") -> None:
    (region,) = planned(spark, timed(), delivery="repeated").regions
    assert region.released_to is None


def test_what_has_no_timers_by_the_clock_is_refused(spark: "SparkSession") -> None:
    def unused(events: fk.Stream, clock: fk.Stream) -> fk.Stream:
        return events.withClock(clock)

    def replaced(events: fk.Stream, clock: fk.Stream) -> fk.Stream:
        return unused(events, clock).union(events).where("n > 0")

    def of_no_clock(events: fk.Stream, clock: fk.Stream) -> fk.Stream:
        return timed()(events, events.where("n > 1"))  # type: ignore[no-any-return]

    for body, options in (
        (unused, {}), (replaced, {}), (of_no_clock, {}), (timed(), {"engine": "micro-batch"}),
    ):  # fmt: skip
        with pytest.raises(fk.DefinitionError) as caught:
            planned(spark, body, **options)
        assert caught.value.condition == "CLOCK_UNSUITABLE", body


def test_the_keys_must_be_in_one_partition(spark: "SparkSession") -> None:
    def by_number(events: fk.Stream, clock: fk.Stream) -> fk.Stream:
        return events.withClock(clock).stateful(
            added, key="n", state="m INT", returns="s STRING, n INT", on_timer=reminded
        )

    with pytest.raises(fk.DefinitionError) as caught:
        planned(spark, by_number)
    assert caught.value.condition == "EXPIRY_UNSUITABLE"


def test_states_do_not_expire_by_the_clock(spark: "SparkSession") -> None:
    def expiring(events: fk.Stream, clock: fk.Stream) -> fk.Stream:
        return events.withClock(clock).stateful(
            added, key="s", state="n INT", returns="s STRING, n INT", expires="1 hour"
        )

    with pytest.raises(fk.DefinitionError) as caught:
        planned(spark, expiring)
    assert caught.value.condition == "WATERMARK_MISSING"
