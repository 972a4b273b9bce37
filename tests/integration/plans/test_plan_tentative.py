"""Planning: results that may differ in a replay are held, with all results that are computed from them."""

import io
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from rich.console import Console

import falkirk as fk
from falkirk.plan.explain.screen import Shown
from falkirk.plan.explain.values import plan_values
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.region import Region
from falkirk.plan.slots import region_slots
from falkirk.plan.topics import prepare_topics
from falkirk.spark_setup.broker import Broker
from tests.integration.live import Wire
from tests.integration.planning import Body, line_of, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELD = "falkirk.planned.deadbeef.out-held"
#: All results of a record share the random value, so it matters.
drawn: Body = lambda s: s.withColumn("r", F.rand()).explode("a", "part")  # noqa: E731  # drawn


def by_name(plan: Plan) -> dict[str, Region]:
    """Return the regions by name."""
    return {region.name: region for region in plan.regions}


def test_a_region_of_its_own_is_held_back_with_the_sinks_keys(plan: Any) -> None:
    (region,) = plan(drawn, sink_key=["s", "n"]).regions
    assert (region.output.topic, region.output.keys, region.hop) == (HELD, ("s", "n"), None)
    assert (region.released_to, region.deterministic) == (fk.Kafka("out", key=["s", "n"]), False)
    assert region.undetermined is not None
    assert (region.undetermined.operations, region.undetermined.processor) == (("Rand",), "counts")
    assert region.undetermined.where.line == line_of(__file__, "drawn")
    assert region.dead_letter_topic == "out.dead-letters"


def test_dead_letters_are_named_as_without_holding_back(plan: Any) -> None:
    def hopped(stream: fk.Stream) -> fk.Stream:
        return drawn(stream).groupBy("s").count()

    plain = plan(lambda s: s.groupBy("s").count())
    assert [r.dead_letter_topic for r in plan(hopped).regions] == [r.dead_letter_topic for r in plain.regions]


def test_what_reads_a_tentative_hop_is_held_back_though_deterministic(plan: Any) -> None:
    def body(stream: fk.Stream) -> fk.Stream:
        timed = stream.withColumn("now", F.current_timestamp())  # the cause
        return timed.groupBy("s").agg(F.max("now").alias("now")).groupBy("now").count()

    first, last = plan(body, key="s").regions
    assert [r.deterministic for r in (first, last)] == [False, True]
    assert [r.released_to is not None for r in (first, last)] == [False, True]
    assert (last.output.topic, last.source.topic.topic) == (HELD, first.output.topic)
    assert {r.undetermined.where.line for r in (first, last)} == {line_of(__file__, "the cause")}
    line = line_of(__file__, "the cause")
    error = refused(lambda: plan(body, key="s", delivery="at-most-once"), "UNDETERMINED_OPERATION", line=line)
    assert error.parameters["operations"] == ("CurrentTimestamp",)
    repeated = plan(body, key="s", delivery="repeated").regions[-1]
    assert (repeated.output.topic, repeated.released_to, repeated.deterministic) == ("out", None, True)


def test_what_is_upstream_of_the_operation_is_not_tentative(plan: Any) -> None:
    body: Body = lambda s: s.groupBy("s").agg(F.max("n").alias("n"), F.max("a").alias("a"))  # noqa: E731
    first, second = plan(lambda s: drawn(body(s))).regions
    assert (first.deterministic, first.undetermined) == (True, None)
    assert (second.deterministic, second.output.topic) == (False, HELD)


def test_a_grouping_key_makes_the_hop_before_it_tentative(plan: Any) -> None:
    """The hop's writer computes the key to choose a partition, which on a replay may be another one."""
    first, second = plan(lambda s: s.groupBy((F.rand() < 0.5).alias("coin")).count()).regions
    assert (first.deterministic, second.deterministic, second.output.topic) == (False, False, HELD)


def shared(spark: "SparkSession", declare: Any, *, policy: Any = None, body: Body = drawn) -> Plan:
    """Plan an application with a processor `random`, which `declare` lets others read."""
    app = fk.App("shared")
    app.source("events", fk.Kafka("events", schema="s STRING, n INT, a ARRAY<STRING>", key="s"))
    app.add_processor("random", body, reads=("events",), policy=policy or fk.Lazy("7 seconds"))
    declare(app)
    return plan_application(app, spark, "deadbeef")


@pytest.mark.parametrize("order", [("repeated", "exactly-once"), ("exactly-once", "repeated")])
def test_each_sink_of_a_shared_log_is_promised_what_it_asked_for(spark: "SparkSession", order: tuple[str, str]) -> None:
    def declare(app: fk.App) -> None:
        for delivery in order:
            app.sink(delivery, "random", fk.Kafka(delivery), delivery=delivery)

    found = by_name(shared(spark, declare))
    log, held, direct = found["random-out"], found["exactly-once"], found["repeated"]
    assert (log.deterministic, held.deterministic, direct.deterministic) == (False, True, True)
    assert held.source.topic.topic == direct.source.topic.topic == log.output.topic
    assert (held.output.topic, held.released_to) == (
        "falkirk.shared.deadbeef.exactly-once-held",
        fk.Kafka("exactly-once"),
    )
    assert (direct.output.topic, direct.released_to) == ("repeated", None)
    assert log.undetermined == held.undetermined == direct.undetermined


def test_at_most_once_is_refused_behind_a_shared_log_that_was_planned_before(spark: "SparkSession") -> None:
    def declare(app: fk.App) -> None:
        app.sink("first", "random", fk.Kafka("first"))
        app.sink("second", "random", fk.Kafka("second"), delivery="at-most-once")

    newest: Body = lambda s: s.withColumn("now", F.now()).groupBy("s").agg(F.max("now"))  # noqa: E731
    line = newest.__code__.co_firstlineno
    act = lambda: shared(spark, declare, body=newest)  # noqa: E731
    refused(act, "UNDETERMINED_OPERATION", line=line, processor="random", sink="second")


def test_a_sink_beside_a_tentative_one_is_written_on_arrival(spark: "SparkSession") -> None:
    def declare(app: fk.App) -> None:
        app.add_processor("plain", lambda s: s.where("n > 1"), reads=("events",), policy=fk.Lazy())
        app.sink("tentative", "random", fk.Kafka("tentative"))
        app.sink("plain", "plain", fk.Kafka("plain"))

    found = by_name(shared(spark, declare, policy=fk.Ephemeral()))
    assert found["tentative"].released_to is not None
    assert (found["plain"].released_to, found["plain"].output.topic) == (None, "plain")


def test_no_two_regions_write_one_internal_log(spark: "SparkSession") -> None:
    def declare(app: fk.App) -> None:
        app.sink("x-by-a", "random", fk.Kafka("one"))
        grouped: Body = lambda s: s.selectExpr("s AS a", "n AS held").groupBy("a", "held").count()  # noqa: E731
        app.add_processor("x", grouped, reads=("events",), policy=fk.Lazy())
        app.sink("two", "x", fk.Kafka("two"))

    with pytest.raises(fk.DefinitionError) as caught:
        shared(spark, declare)
    assert caught.value.condition == "NAME_TAKEN"


def test_a_sink_that_is_held_back_from_now_on_is_a_change(plan: Any) -> None:
    body: Body = lambda s: s.explode("a", "part")  # noqa: E731
    before, after = (plan(b).regions[0].fingerprint for b in (body, drawn))
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed == {"writes", "releases to", "steps", "decided by"}
    assert (after["writes"], after["releases to"]) == (HELD, "out")


@pytest.mark.parametrize(
    "draw",
    [
        lambda: F.rand() < 0.5, lambda: F.element_at(F.shuffle("a"), 1), lambda: F.randstr(5), lambda: F.expr("uuid()"),
        lambda: F.expr("rand() < 0.5"), lambda: F.randn() < 0,
    ],
)  # fmt: skip
def test_a_fingerprint_is_the_same_each_time_though_seeds_differ(plan: Any, draw: Any) -> None:
    body: Body = lambda s: s.groupBy("s", draw().alias("key")).count()  # noqa: E731
    before, after = (plan(body, key="s").regions[0].fingerprint for _ in range(2))
    assert before == after


def explained(plan: Plan) -> str:
    """Return the details of each output, one line each."""
    out, shown = io.StringIO(), Shown(plan=plan, slots=(), available=0)
    for promise in promises_of(plan):
        Console(file=out).print(shown.why(promise.sink), soft_wrap=True)
    return out.getvalue()


def test_the_plan_says_when_a_held_sink_is_released_and_why(plan: Any) -> None:
    held = plan(drawn)
    (promise,) = promises_of(held)
    assert (promise.promise, promise.when) == ("exactly once", "after a checkpoint, ≤ 5 s")
    assert (promise.release, promise.awaits, promise.within_s) == ("behind a checkpoint", ("out",), 5)
    assert (promise.held, promise.to) == (HELD, "topic out")
    line = line_of(__file__, "drawn")
    (reason,) = promise.reasons
    assert (reason.kind, reason.operations, reason.processor) == ("waits", ("Rand",), "counts")
    assert reason.where is not None
    assert reason.where.place == f"test_plan_tentative.py:{line}"
    assert promise.why == f"rand() in counts, line {line}: differs in a replay"
    assert "results wait for a checkpoint of out" in explained(held)
    assert HELD in explained(held)

    chain = plan(lambda s: drawn(s).groupBy("s").count())
    (promise,) = promises_of(chain)
    assert (promise.awaits, promise.within_s) == (("counts-by-s", "out"), 10)
    assert promise.when == "after 2 checkpoints, ≤ 10 s"
    text = explained(chain)
    assert "after a checkpoint of counts-by-s and a checkpoint of out, at most about 10 s later" in text
    assert "runs       counts-by-s (counts before groupBy): live, reads topic" in text
    assert "If counts-by-s fails, counts-by-s and out restart from a checkpoint." in text
    assert "If out fails, only that region restarts, from its last checkpoint." in text

    plain = plan(lambda s: s)
    (promise,) = promises_of(plain)
    assert (promise.release, promise.why, promise.held) == ("on arrival", "deterministic", None)
    assert "held log" not in explained(plain)


def test_the_texts_of_a_repeated_output_do_not_contradict_its_promise(plan: Any) -> None:
    """A hop divides `counts`. Its first region differs on replay, and its second region does not."""
    repeated = plan(lambda s: drawn(s).groupBy("s").count(), delivery="repeated")
    (promise,) = promises_of(repeated)
    assert "deterministic" not in {reason.kind for reason in promise.reasons}
    text = explained(repeated)
    assert "a result is published when a checkpoint covers it" not in text
    assert "exactly-once results that depend on them wait for a checkpoint of counts-by-s" in text
    assert "counts is deterministic" not in text


def test_the_plan_as_json_says_it_too(plan: Any) -> None:
    planned = plan(lambda s: drawn(s).groupBy("s").count())
    slots = tuple(region_slots(region, 2, 2) for region in planned.regions)
    hop, out = plan_values(planned, slots, 100)["regions"]  # type: ignore[misc]
    assert (hop["deterministic"], hop["released_to"], hop["released_within_s"]) == (False, None, None)
    assert (out["deterministic"], out["released_to"], out["released_within_s"]) == (True, "out", 10)
    (sink,) = plan_values(planned, slots, 100)["sinks"]  # type: ignore[misc]
    assert (sink["sink"], sink["release"], sink["within_s"]) == ("out", "behind a checkpoint", 10)
    assert sink["awaits"] == ["counts-by-s", "out"]
    assert [text.partition(",")[0] for text in sink["durable"]] == [
        "input: topic events", "counts-by-s: offsets in the home",
        f"hop {planned.regions[0].output.topic}: each record",
        "out: state and offsets in the home",
    ]  # fmt: skip
    assert sink["goes_back"] == {"counts-by-s": ["counts-by-s", "out"], "out": ["out"]}
    assert sink["processors"] == {"counts-by-s": ["counts"], "out": ["counts"]}
    assert out["writes"] == HELD
    assert hop["undetermined"] == out["undetermined"]
    assert out["undetermined"]["operations"] == ["Rand"]


def app_between(wire: Wire, events: str, out: str, spark: "SparkSession") -> Plan:
    """Plan a held sink between two topics of the broker's."""
    app = fk.App(f"held-{wire.tag}")
    app.source("events", fk.Kafka(events, schema="s STRING, a ARRAY<STRING>"))
    app.add_processor("random", drawn, reads=("events",), policy=fk.Lazy())
    app.sink("out", "random", fk.Kafka(out, key="s"))
    return plan_application(app, spark, "deadbeef")


def test_a_held_log_is_made_like_its_sinks_topic(spark: "SparkSession", broker: Broker, tag: str) -> None:
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, out = wire.topic("events", 2), wire.topic("out", 5, max_message_bytes="123456")
    planned = app_between(wire, events, out, spark)
    prepare_topics(planned, wire.topics)
    prepare_topics(planned, wire.topics)
    held = wire.topics.facts(planned.regions[0].output.topic)
    assert (held.partitions, held.cleanup_policy, held.retention_ms) == (5, "delete", -1)
    assert held.max_message_bytes == 123_456
    assert wire.topics.exists(f"{out}.dead-letters")
    assert not wire.topics.exists(f"{held.topic}.dead-letters")
    assert wire.topics.facts(out).retention_ms != -1

    wire.widen(out, 6)
    with pytest.raises(fk.LogError) as caught:
        prepare_topics(planned, wire.topics)
    assert caught.value.condition == "PARTITION_COUNT_DIFFERS"
    assert caught.value.parameters["topic"] == held.topic


def test_the_sinks_topic_must_be_there_or_is_made(spark: "SparkSession", broker: Broker, tag: str) -> None:
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    planned = app_between(wire, wire.topic("events"), f"absent-{tag}", spark)
    with pytest.raises(fk.LogError) as caught:
        prepare_topics(planned, wire.topics)
    assert (caught.value.condition, caught.value.parameters["topic"]) == ("TOPIC_MISSING", f"absent-{tag}")
    assert not wire.topics.exists(planned.regions[0].output.topic)
    prepare_topics(planned, wire.topics, create_missing=True, partitions=3)
    assert wire.topics.facts(f"absent-{tag}").partitions == 3
    assert wire.topics.facts(planned.regions[0].output.topic).partitions == 3


def test_a_compacted_sink_can_not_be_released_to(spark: "SparkSession", broker: Broker, tag: str) -> None:
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    planned = app_between(wire, wire.topic("events"), wire.topic("out", cleanup_policy="compact"), spark)
    with pytest.raises(fk.LogError) as caught:
        prepare_topics(planned, wire.topics)
    assert caught.value.condition == "SINK_COMPACTED"
