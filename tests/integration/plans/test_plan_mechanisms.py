"""Planning: the regions under each policy of a live processor, and the promises that the policy can't keep."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.policy import Policy
from falkirk.plan import mechanisms
from falkirk.plan.explain.values import plan_values
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.slots import region_slots
from tests.integration.planning import Body, line_of, names, refused
from tests.integration.plans.test_plan_tentative import explained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

passed: Body = lambda s: s.withColumn("m", F.col("n") + 1)  # noqa: E731
counted: Body = lambda s: s.groupBy("s").count()  # noqa: E731
drawn: Body = lambda s: s.withColumn("lot", F.expr("uuid()"))  # noqa: E731
kept: Body = lambda s: drawn(s).groupBy("s").agg(F.max("lot").alias("lot"))  # noqa: E731
parted: Body = lambda s: drawn(s).explode("a", "e")  # noqa: E731


def planned(spark: "SparkSession", *steps: tuple[Body, Policy], key: str | None = "s", **sink: Any) -> Plan:
    """Plan processors in a row, p0 first, between a source and a sink."""
    app, read = fk.App("planned"), "events"
    app.source("events", fk.Kafka("events", schema="s STRING, n INT, a ARRAY<STRING>", key=key))
    for number, (body, policy) in enumerate(steps):
        app.add_processor(f"p{number}", body, reads=(read,), policy=policy)
        read = f"p{number}"
    app.sink("out", read, fk.Kafka("out", key=sink.pop("sink_key", None)), **sink)  # the sink
    return plan_application(app, spark, "deadbeef")


# -- snapshots ---------------------------------------------------------------------------------------------------------


def test_snapshots_are_held_though_they_would_come_out_the_same(spark: "SparkSession") -> None:
    (region,) = planned(spark, (counted, fk.Snapshots("4 seconds"))).regions
    assert (region.interval_s, region.deterministic) == (4, False)
    assert region.released_to is not None
    assert (region.output.topic, region.released_to.topic) == ("falkirk.planned.deadbeef.out-held", "out")
    assert region.undetermined is not None
    assert (region.undetermined.operations, region.undetermined.policy) == ((), "fk.Snapshots")
    plan = planned(spark, (counted, fk.Snapshots("4 seconds")))
    (promise,) = promises_of(plan)
    assert (promise.release, promise.within_s, promise.when) == ("behind a checkpoint", 4, "after a checkpoint, ≤ 4 s")
    (reason,) = promise.reasons
    assert (reason.kind, reason.processor, reason.operations) == ("policy", "p0", ())
    assert promise.why.startswith("fk.Snapshots() in p0, line ")
    assert "differ" not in explained(plan)
    (described,) = plan_values(plan, (region_slots(region, 2, 2),), 9)["regions"]  # type: ignore[misc]
    assert (described["policy"], described["released_within_s"]) == ("Snapshots", 4)
    assert described["undetermined"]["policy"] == "fk.Snapshots"


def test_what_reads_snapshots_waits_for_them(spark: "SparkSession") -> None:
    first, last = planned(spark, (passed, fk.Snapshots(3)), (passed, fk.Lazy(5))).regions
    assert (first.deterministic, last.deterministic) == (False, True)
    assert last.released_to is not None
    assert first.undetermined == last.undetermined


def test_both_halves_of_a_processor_are_snapshots(spark: "SparkSession") -> None:
    assert [r.deterministic for r in planned(spark, (counted, fk.Snapshots()), key=None).regions] == [False, False]


def test_who_asks_for_repetitions_waits_for_nothing(spark: "SparkSession") -> None:
    plan = planned(spark, (counted, fk.Snapshots()), delivery="repeated")
    (region,) = plan.regions
    assert (region.released_to, region.repeats) == (None, True)
    (promise,) = promises_of(plan)
    assert (promise.release, promise.may_vary) == ("on arrival", False)
    assert promise.promise == "repeated after a failure"
    (reason,) = promise.reasons
    assert (reason.kind, reason.processor, reason.operations) == ("repeated", "p0", ())


def logged_and_counted(stream: fk.Stream) -> fk.Stream:
    return drawn(stream).groupBy("s").agg(F.max("lot").alias("lot")).groupBy("lot").count()


@pytest.mark.parametrize(
    ("body", "policy"),
    [
        (drawn, fk.Lazy()),
        (kept, fk.Lazy()),
        (parted, fk.Lazy()),
        (kept, fk.Snapshots()),
        (logged_and_counted, fk.Lazy()),
        (logged_and_counted, fk.Snapshots()),
    ],
)
def test_what_is_drawn_and_repeated_is_not_called_exact(spark: "SparkSession", body: Body, policy: Policy) -> None:
    """Nothing waits for it. After a failure it has another value, also in a state on which published results depend."""
    (promise,) = promises_of(planned(spark, (body, policy), delivery="repeated"))
    assert (promise.delivery, promise.release, promise.awaits) == (fk.Delivery.REPEATED, "on arrival", ())
    assert promise.may_vary
    assert promise.as_json()["may_vary"] is True
    assert "exact" not in promise.promise + promise.meaning
    assert promise.promise.endswith("may differ")
    (reason,) = [each for each in promise.reasons if each.operations]
    assert (reason.kind, reason.operations, reason.processor) == ("repeated", ("Uuid",), "p0")
    assert {"waits", "independent"}.isdisjoint(each.kind for each in promise.reasons)


def test_what_was_drawn_before_a_log_is_repeated_as_it_was(spark: "SparkSession") -> None:
    plan = planned(spark, (drawn, fk.Lazy()), (counted, fk.Lazy()), key=None, delivery="repeated")
    (promise,) = promises_of(plan)
    assert not promise.may_vary
    assert promise.promise == "repeated after a failure"
    assert "counts once in the state" in promise.meaning
    assert [each.operations for each in promise.reasons if each.kind == "independent"] == [("Uuid",)]


def test_what_is_sent_again_is_drawn_anew(spark: "SparkSession") -> None:
    (promise,) = promises_of(planned(spark, (drawn, fk.Acknowledged()), delivery="at-least-once"))
    assert [each.operations for each in promise.reasons if each.kind == "repeated"] == [("Uuid",)]
    assert not any(each.kind == "independent" for each in promise.reasons)


def test_snapshots_tell_of_what_is_drawn_as_well(spark: "SparkSession") -> None:
    (region,) = planned(spark, (kept, fk.Snapshots())).regions
    assert region.undetermined is not None
    assert (region.undetermined.operations, region.undetermined.policy) == (("Uuid",), "fk.Snapshots")
    assert str(region.undetermined).startswith("uuid(), fk.Snapshots in 'p0'")


def test_snapshots_can_not_be_at_most_once(spark: "SparkSession") -> None:
    line = line_of(__file__, "the sink")
    error = refused(
        lambda: planned(spark, (counted, fk.Snapshots()), delivery="at-most-once"),
        "POLICY_CONTRADICTS_DELIVERY", line=line, processor="p0", sink="out",
    )  # fmt: skip
    assert isinstance(error, fk.GuaranteeError)


# -- strong productions ------------------------------------------------------------------------------------------------


def test_all_that_is_sent_is_logged_before_a_sink_sees_it(spark: "SparkSession") -> None:
    first, out = planned(spark, (passed, fk.LogSends("3 seconds"))).regions
    assert first.hop is not None
    assert (first.hop.keys, first.interval_s, out.processors) == ((), 3, ())
    assert (out.source.topic.topic, out.output.topic, out.released_to) == (first.output.topic, "out", None)
    assert "in a log before any reader gets them" in mechanisms.consequence(first)
    assert names(planned(spark, (passed, fk.Lazy()))) == ["out"], "which the hop is due to the policy alone"


def test_what_a_keyed_step_reads_is_logged_unless_it_is_a_log(spark: "SparkSession") -> None:
    def both(stream: fk.Stream) -> fk.Stream:
        return counted(passed(stream))

    assert names(planned(spark, (both, fk.LogSends()))) == ["p0-by-s", "p0-out", "out"]
    assert names(planned(spark, (counted, fk.LogSends()))) == ["p0-out", "out"]
    assert names(planned(spark, (both, fk.Lazy()))) == ["out"]


def test_what_is_logged_once_may_be_drawn(spark: "SparkSession") -> None:
    """A state keeps the value from a log, which has the same value in a replay."""
    *before, out = planned(spark, (kept, fk.LogSends())).regions
    assert [r.deterministic for r in before] == [True, True]
    assert (out.released_to, out.undetermined) == (None, None)
    (alone,) = planned(spark, (kept, fk.Lazy())).regions
    assert alone.released_to is not None


@pytest.mark.parametrize("mixes", [parted, lambda s: drawn(s).groupBy("lot").count()])
def test_what_could_be_mixed_of_two_outcomes_is_held(spark: "SparkSession", mixes: Body) -> None:
    regions = planned(spark, (mixes, fk.LogSends())).regions
    assert regions[-1].released_to is not None
    assert not all(r.deterministic for r in regions)


# -- acknowledgements --------------------------------------------------------------------------------------------------


def test_what_is_acknowledged_is_at_least_once(spark: "SparkSession") -> None:
    (region,) = planned(spark, (passed, fk.Acknowledged("3 seconds")), delivery="at-least-once").regions
    assert (region.repeats, region.repeated_by, region.interval_s) == (True, "p0", 3)
    assert (region.delivery, region.released_to) == (fk.Delivery.AT_LEAST_ONCE, None)
    assert region.logs().repeats
    assert "results of the last 3 s may be published again" in mechanisms.consequence(region)
    (promise,) = promises_of(planned(spark, (passed, fk.Acknowledged("3 seconds")), delivery="at-least-once"))
    assert [each.kind for each in promise.reasons if each.processor == "p0"] == ["deterministic", "repeated"]
    assert promise.why == "fk.Acknowledged() on p0"


@pytest.mark.parametrize("delivery", ["exactly-once", "repeated", "at-most-once"])
@pytest.mark.parametrize("reader", [(), ((counted, fk.Lazy()),)])
def test_no_more_is_promised_behind_it(spark: "SparkSession", delivery: str, reader: Any) -> None:
    line = line_of(__file__, "the sink")
    refused(
        lambda: planned(spark, (passed, fk.Acknowledged()), *reader, delivery=delivery),
        "POLICY_CONTRADICTS_DELIVERY", line=line, processor="p0", sink="out",
    )  # fmt: skip


def test_a_count_behind_it_has_a_barrier_of_its_own(spark: "SparkSession") -> None:
    plan = planned(spark, (passed, fk.Acknowledged()), (counted, fk.Lazy()), delivery="at-least-once")
    first, *others = plan.regions
    assert [r.repeats for r in plan.regions] == [True, *[False for _ in others]]
    assert {r.repeated_by for r in plan.regions} == {"p0"}
    assert first.delivery is fk.Delivery.AT_LEAST_ONCE
    assert "If p0 sends a record twice" in mechanisms.consequence(others[-1])


def test_it_has_no_state(spark: "SparkSession") -> None:
    with pytest.raises(fk.GuaranteeError) as caught:
        planned(spark, (counted, fk.Acknowledged()), delivery="at-least-once")
    assert (caught.value.condition, caught.value.parameters["processor"]) == ("STATE_UNSAVED", "p0")


def test_a_batch_does_not_read_what_is_repeated(spark: "SparkSession") -> None:
    app = fk.App("planned")
    app.source("events", fk.Kafka("events", schema="s STRING, n INT"))
    app.add_processor("passed", passed, reads=("events",), policy=fk.Acknowledged())

    @app.batch(rows=10)
    def summed(passed: Any) -> Any:
        return passed

    app.sink("out", "summed", fk.Kafka("out"))
    with pytest.raises(fk.GuaranteeError) as caught:
        plan_application(app, spark, "deadbeef")
    assert (caught.value.condition, caught.value.parameters["processor"]) == ("POLICY_CONTRADICTS_DELIVERY", "passed")


def test_at_least_once_elsewhere_is_kept_by_what_keeps_exactly_once(spark: "SparkSession") -> None:
    (region,) = planned(spark, (counted, fk.Lazy()), delivery="at-least-once").regions
    assert (region.repeats, region.repeated_by) == (False, None)
    (held,) = planned(spark, (parted, fk.Lazy()), delivery="at-least-once").regions
    assert held.released_to is not None


# -- texts -------------------------------------------------------------------------------------------------------------


def test_the_texts_of_at_most_once_name_every_restart(spark: "SparkSession") -> None:
    plan = planned(spark, (passed, fk.Lazy()), delivery="at-most-once")
    (promise,), (region,) = promises_of(plan), plan.regions
    assert "after any restart, also a planned one, waiting input is skipped" in promise.meaning
    assert mechanisms.consequence(region) == "After any restart, also a planned one, the region skips waiting input."


def test_a_terminal_may_show_the_last_epochs_twice(spark: "SparkSession") -> None:
    app = fk.App("planned")
    app.source("events", fk.Kafka("events", schema="s STRING, n INT"))

    @app.batch(rows=10)
    def told(events: Any) -> Any:
        return events

    app.sink("out", "told", fk.Console(), delivery="repeated")
    (promise,) = promises_of(plan_application(app, spark, "deadbeef"))
    assert promise.meaning == "each epoch is printed; after a failure, the last epochs may be printed twice"


def test_the_texts_of_a_hop_and_of_an_order_say_what_follows(spark: "SparkSession") -> None:
    def latest(stream: fk.Stream) -> fk.Stream:
        return stream.groupBy("s").agg(fk.latest_value("n"))

    text = explained(planned(spark, (latest, fk.Lazy("1 minute")), key=None))
    assert "hop X: an internal topic that query X writes, and that each replay reads in the same order" in text
    assert "each record, until all readers of the hop have saved a checkpoint after it" in text
    assert "Falkirk keeps the order of each key's records in a replay" in text
    assert "p0-by-s: offsets in the home, every 1 min" in text


# -- elsewhere ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [fk.Snapshots(), fk.Acknowledged()])
def test_a_policy_of_live_processors_is_of_no_other(spark: "SparkSession", policy: Policy) -> None:
    def mapped(stream: fk.Stream) -> fk.Stream:
        return stream.join(stream.select("s"), "s")

    with pytest.raises(fk.DefinitionError) as caught:
        planned(spark, (mapped, policy), delivery="at-least-once")
    assert (caught.value.condition, caught.value.parameters["policy"]) == ("POLICY_MISPLACED", policy)


# -- twins -------------------------------------------------------------------------------------------------------------


def twins(interval: str = "10 seconds") -> fk.Lazy:
    return fk.Lazy(interval, twins=True)


def test_twins_take_twice_the_slots_on_both_sides_of_a_hop(spark: "SparkSession") -> None:
    plan = planned(spark, (counted, twins()), key=None)
    assert [(r.twins, r.deterministic) for r in plan.regions] == [(True, True), (True, True)]
    first, last = (region_slots(region, 3, 2) for region in plan.regions)
    assert ((first.source, first.state), (last.source, last.state)) == ((6, 0), (6, 4))
    (promise,) = promises_of(plan)
    assert promise.release == "on arrival"
    assert sum("twice the slots" in cost for cost in promise.costs) == 2
    described: Any = plan_values(plan, (first, last), 9)["regions"]
    assert [region["twins"] for region in described] == [True, True]
    assert not any(region.twins for region in planned(spark, (counted, fk.Lazy())).regions)


@pytest.mark.parametrize(
    ("body", "interval", "delivery", "reason"),
    [
        (parted, "10 seconds", "exactly-once", "its results wait for a checkpoint"),
        (counted, "10 seconds", "repeated", "its output is repeated"),
        (counted, "10 seconds", "at-most-once", "its output is at-most-once"),
        (counted, "4 seconds", "exactly-once", "the least is 5 s"),
    ],
)
def test_twins_are_refused(spark: "SparkSession", body: Body, interval: str, delivery: str, reason: str) -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        planned(spark, (body, twins(interval)), delivery=delivery)
    assert (caught.value.condition, caught.value.parameters["name"]) == ("TWINS_REFUSED", "out")
    assert reason in str(caught.value.parameters["reason"])


def test_twins_are_refused_where_nothing_runs_live(spark: "SparkSession") -> None:
    app = fk.App("planned")
    app.source("events", fk.Kafka("events", schema="s STRING, n INT"))
    app.add_processor("p0", passed, reads=("events",), policy=twins(), engine="micro-batch")
    app.sink("out", "p0", fk.Kafka("out"))
    with pytest.raises(fk.DefinitionError) as caught:
        plan_application(app, spark, "deadbeef")
    assert (caught.value.condition, caught.value.parameters["name"]) == ("TWINS_REFUSED", "p0")


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("key", ["s", None])
def test_twins_are_refused_where_lanes_are_not_shared(
    spark: "SparkSession", key: str | None, transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks on a cluster run in several JVMs."""
    monkeypatch.setattr(mechanisms, "writes_elsewhere", lambda session: True)
    app = fk.App("planned", transactional=transactional)
    app.source("events", fk.Kafka("events", schema="s STRING, n INT", key=key))
    app.add_processor("p0", counted, reads=("events",), policy=twins())
    app.sink("out", "p0", fk.Kafka("out"))
    with pytest.raises(fk.DefinitionError) as caught:
        plan_application(app, spark, "deadbeef")
    assert caught.value.condition == "TWINS_REFUSED"
    assert "one JVM" in caught.value.parameters["reason"]
