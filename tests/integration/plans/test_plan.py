"""Planning: the ends of regions with reasons, wrong graphs, and the base of a checkpoint. Needs no broker."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from tests.integration.planning import Body, hop, line_of, names, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_word_index_is_two_regions(spark: "SparkSession") -> None:
    app = fk.App("word-index")
    app.source("pages", fk.Kafka("pages", schema="page STRING NOT NULL, text STRING NOT NULL"))

    @app.stream(fk.Ephemeral())
    def words(pages: fk.Stream) -> fk.Stream:
        return pages.select("page", F.split(F.lower("text"), " ").alias("ws")).explode("ws", "word").drop("ws")

    @app.stream(fk.Lazy("3 seconds"))
    def index(words: fk.Stream) -> fk.Stream:
        return words.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("page"))

    app.sink("index", index, fk.Kafka("index", key="word"))
    planned = plan_application(app, spark, "deadbeef")
    first, second = planned.regions
    assert (first.name, second.name) == ("index-by-word", "index")
    assert hop(planned) == (
        "falkirk.word-index.deadbeef.index-by-word",
        ("word",),
        first.hop.reason if first.hop else "",
    )
    assert "in several partitions of the source pages" in hop(planned)[2]
    assert (first.stateful, second.stateful) == (False, True)
    assert (first.reads_hop, second.reads_hop) == (False, True)
    assert (first.processors, second.processors) == (("words", "index"), ("index",))
    assert (first.interval_s, second.interval_s) == (3, 3), "a hop cuts a processor in two, and both keep its interval"
    assert second.source.topic.topic == first.output.topic
    assert len({region.dead_letter_topic for region in planned.regions}) == 2


@pytest.mark.parametrize("grouping", ["s", F.col, "upper case"])
def test_a_topic_keyed_by_the_grouping_key_needs_no_hop(plan: Any, grouping: Any) -> None:
    key = grouping("s") if callable(grouping) else grouping
    if grouping == "upper case":
        assert names(plan(lambda s: s.groupBy(F.col("S")).count(), key="s")) == ["out"]
    else:
        assert names(plan(lambda s: s.groupBy(key).count(), key="s")) == ["out"]


def test_the_key_survives_what_passes_it_through(plan: Any) -> None:
    def body(stream: fk.Stream) -> fk.Stream:
        kept = stream.where("n > 1").select("s", "a").explode("a", "x").withColumn("y", F.length("x")).drop("a")
        return kept.groupBy("s", "x").count()

    assert names(plan(body, key="s")) == ["out"]


@pytest.mark.parametrize(
    ("body", "label"),
    [
        (lambda s: s.withColumn("s", F.upper("s")).groupBy("s").count(), "s"),
        (lambda s: s.select(F.col("n").cast("string").alias("s")).groupBy("s").count(), "s"),
        (lambda s: s.drop("s").groupBy("n").count(), "n"),
        (lambda s: s.withColumnRenamed("s", "old").withColumnRenamed("b", "s").groupBy("s").count(), "s"),
        (lambda s: s.groupBy(F.upper("s")).count(), "key"),
        (lambda s: s.groupBy("st.x").count(), "key"),
    ],
)
def test_another_key_needs_a_hop(plan: Any, body: Body, label: str) -> None:
    planned = plan(body, key="s")
    topic, _, reason = hop(planned)
    assert names(planned) == [f"counts-by-{label}", "out"]
    assert topic == f"falkirk.planned.deadbeef.counts-by-{label}"
    assert "source events is partitioned by `s`" in reason


def test_all_of_a_compound_key_must_be_grouped_by(plan: Any) -> None:
    assert names(plan(lambda s: s.groupBy("s", "n").count(), key=["s"])) == ["out"]
    assert names(plan(lambda s: s.groupBy("n", "s").count(), key=["s", "n"])) == ["out"]
    assert names(plan(lambda s: s.groupBy("s").count(), key=["s", "n"])) == ["counts-by-s", "out"]


def test_keyed_steps_of_other_keys_are_regions_with_topics_of_their_own(plan: Any) -> None:
    def body(stream: fk.Stream) -> fk.Stream:
        numbered = stream.groupBy("s").agg(F.max("n").alias("n"))
        return numbered.groupBy("n").agg(F.max("s").alias("s")).groupBy("s").count()

    planned = plan(body)
    assert names(planned) == ["counts-by-s", "counts-by-n", "counts-by-s-2", "out"]
    reads = [region.source.topic.topic for region in planned.regions]
    writes = [region.output.topic for region in planned.regions]
    assert reads[1:] == writes[:-1]
    assert len(set(writes)) == 4
    assert len({region.dead_letter_topic for region in planned.regions}) == 4
    assert hop(planned, 1)[2].startswith("the hop counts-by-s is partitioned by `s`")


@pytest.mark.parametrize("name", ["größe x", "a.b", "x/y", "ü"])
def test_any_column_can_be_a_key(plan: Any, name: str) -> None:
    planned = plan(lambda s: s.withColumnRenamed("s", name).groupBy(f"`{name}`").count(), sink_key=name)
    assert len(planned.regions) == 2
    assert planned.regions[1].source.topic.topic == planned.regions[0].output.topic


def test_a_shared_processor_is_a_log_and_a_sink_may_be_called_like_it(spark: "SparkSession") -> None:
    app = fk.App("shared")
    app.source("events", fk.Kafka("events", schema="s STRING, n INT"))
    app.add_processor("words", lambda s: s.where("n > 0"), reads=("events",), policy=fk.Lazy("7 seconds"))
    app.add_processor("counts", lambda s: s.groupBy("s").count(), reads=("words",), policy=fk.Lazy())
    app.sink("words", "words", fk.Kafka("words"))
    app.sink("counts", "counts", fk.Kafka("counts"))
    planned = plan_application(app, spark, "deadbeef")
    assert sorted(names(planned)) == ["counts", "counts-by-s", "words", "words-out"]
    assert len({region.output.topic for region in planned.regions}) == 4
    logged = next(region for region in planned.regions if region.name == "words-out")
    assert logged.interval_s == 7
    assert sum(region.source.topic.topic == logged.output.topic for region in planned.regions) == 2


def test_an_ephemeral_processor_is_fused_into_each_reader(spark: "SparkSession") -> None:
    app = fk.App("fused")
    app.source("events", fk.Kafka("events", schema="s STRING, n INT", key="s"))
    app.add_processor("words", lambda s: s.where("n > 0"), reads=("events",), policy=fk.Ephemeral())
    app.add_processor("counts", lambda s: s.groupBy("s").count(), reads=("words",), policy=fk.Lazy())
    app.sink("some", "words", fk.Kafka("some"))
    app.sink("counts", "counts", fk.Kafka("counts"))
    app.sink("copy", "events", fk.Kafka("copy"))
    planned = plan_application(app, spark, "deadbeef")
    assert [(r.name, r.processors) for r in planned.regions] == [
        ("some", ("words",)),
        ("counts", ("words", "counts")),
        ("copy", ()),
    ]


def graph(spark: "SparkSession", declare: Callable[[fk.App], None]) -> Plan:
    """Plan an application with one source, `events`, that `declare` adds to."""
    app = fk.App("graph")
    app.source("events", fk.Kafka("events", schema="s STRING, n INT"))
    declare(app)
    return plan_application(app, spark, "deadbeef")


def add(app: fk.App, name: str, *reads: str, policy: Any = None) -> None:
    """Declare a processor that passes its first stream through."""
    app.add_processor(name, lambda *streams: streams[0], reads=reads, policy=policy or fk.Ephemeral())


def test_wrong_graphs_are_named(spark: "SparkSession") -> None:
    def sinkless(app: fk.App) -> None:
        add(app, "a", "events")

    def unknown(app: fk.App) -> None:
        app.sink("out", "nobody", fk.Kafka("out"))  # unknown sink

    def unknown_inside(app: fk.App) -> None:
        add(app, "a", "nobody")
        app.sink("out", "a", fk.Kafka("out"))

    def itself(app: fk.App) -> None:
        add(app, "a", "a")
        app.sink("out", "a", fk.Kafka("out"))

    def circle(app: fk.App) -> None:
        add(app, "a", "c", policy=fk.Lazy())
        add(app, "b", "a")
        add(app, "c", "b", policy=fk.Lazy())
        app.sink("out", "b", fk.Kafka("out"))

    def two_writers(app: fk.App) -> None:
        app.sink("one", "events", fk.Kafka("out"))
        app.sink("two", "events", fk.Kafka("out"))  # second writer

    def back(app: fk.App) -> None:
        app.sink("out", "events", fk.Kafka("events"))

    def joined(app: fk.App) -> None:
        app.source("more", fk.Kafka("more", format="text"))
        add(app, "a", "events", "more")
        app.sink("out", "a", fk.Kafka("out"))

    def dead_is_output(app: fk.App) -> None:
        app.sink("out", "events", fk.Kafka("out", dead_letters="out"))

    def dead_is_source(app: fk.App) -> None:
        app.sink("out", "events", fk.Kafka("out", dead_letters="events"))

    def dead_twice(app: fk.App) -> None:
        app.sink("one", "events", fk.Kafka("one", dead_letters="dead"))
        app.sink("two", "events", fk.Kafka("two", dead_letters="dead"))

    expected = {
        sinkless: "SINK_MISSING", unknown: "UNKNOWN_UPSTREAM", unknown_inside: "UNKNOWN_UPSTREAM", itself: "CYCLE",
        circle: "CYCLE", two_writers: "TOPIC_SHARED", back: "TOPIC_SHARED", joined: "UNSUPPORTED_METHOD",
        dead_is_output: "TOPIC_SHARED", dead_is_source: "TOPIC_SHARED", dead_twice: "TOPIC_SHARED",
    }  # fmt: skip
    for declare, condition in expected.items():
        with pytest.raises(fk.DefinitionError) as caught:
            graph(spark, declare)
        assert caught.value.condition == condition, declare.__name__
    refused(
        lambda: graph(spark, unknown), "UNKNOWN_UPSTREAM", line=line_of(__file__, "unknown sink"), upstream="nobody"
    )
    refused(lambda: graph(spark, two_writers), "TOPIC_SHARED", line=line_of(__file__, "second writer"), topic="out")


def fingerprints(plan: Plan) -> list[dict[str, str]]:
    """Return the regions' fingerprints."""
    return [region.fingerprint for region in plan.regions]


def keyed(stream: fk.Stream) -> fk.Stream:
    """Count with a lambda in an aggregate, whose parameter gets another number from PySpark each time."""
    longest = F.max(F.size(F.filter("a", lambda x: F.length(x) > 1)))
    folded = F.sum(F.aggregate("b2", F.lit(0), lambda acc, x: acc + x)).alias("total")
    return stream.groupBy("s").agg(
        F.count("*").alias("version"), fk.latest_value("n"), longest.alias("longest"), folded
    )


def test_a_fingerprint_is_the_same_each_time(plan: Any) -> None:
    assert fingerprints(plan(keyed)) == fingerprints(plan(keyed))


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (lambda s: s.groupBy("n").agg(F.count("*").alias("version")), "reads"),
        (lambda s: s.groupBy("s").agg(F.count("*").alias("version"), F.max("n")), "keyed step"),
        (lambda s: s.groupBy("s").agg(F.sum("n").alias("version")), "keyed step"),
        (lambda s: s.groupBy("s").agg(F.count("*").alias("renamed")), "keyed step"),
        (lambda s: s.groupBy("s", "n").agg(F.count("*").alias("version")), "keyed step"),
        (lambda s: s.explode("a", "x").groupBy("s").agg(F.count("*").alias("version")), "stamp"),
        (lambda s: s.select("s"), "keyed step"),
    ],
)
def test_a_changed_keyed_step_has_another_fingerprint(plan: Any, changed: Body, what: str) -> None:
    key = None if what == "reads" else "s"
    before = plan(lambda s: s.groupBy("s").agg(F.count("*").alias("version")), key=key).regions[-1]
    after = plan(changed, key=key).regions[-1]
    assert what in {name for name in before.fingerprint if before.fingerprint[name] != after.fingerprint[name]}


def changed_parts(plan: Any, before: Body, after: Body) -> set[str]:
    """Return the parts of the last region's fingerprint that differ."""
    one, other = (plan(body, key="s").regions[-1].fingerprint for body in (before, after))
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def counted(stream: fk.Stream) -> fk.Stream:
    return stream.groupBy("s").agg(F.count("*").alias("version"), F.max("n").alias("most"))


def spread(stream: fk.Stream) -> fk.Stream:
    return stream.explode("a", "x")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (counted, lambda s: counted(s).withColumn("more", F.lit(1)).where("version > 1")),
        (counted, lambda s: counted(s.withColumn("unused", F.lit(1)))),
        (spread, lambda s: spread(s).where("x > 'a'").withColumn("more", F.lit(1))),
        (lambda s: s.where("n > 5"), lambda s: s.where("n > 6").withColumn("run", F.lit("second"))),
    ],
)
def test_what_the_checkpoint_does_not_rest_on_may_change_and_is_told(plan: Any, before: Body, after: Body) -> None:
    assert changed_parts(plan, before, after) == {"steps"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (counted, lambda s: counted(s.where("n > 5"))),
        (lambda s: counted(s.where("n > 5")), lambda s: counted(s.where("n > 6"))),
        (counted, lambda s: counted(s.withColumn("n", F.col("n") + F.lit(7)))),
        (lambda s: spread(s.withColumn("run", F.lit("1"))), lambda s: spread(s.withColumn("run", F.lit("2")))),
        (spread, lambda s: s.explode(F.reverse("a"), "x")),
        (spread, lambda s: spread(s.where("n > 5"))),
        (lambda s: counted(spread(s).where("x > 'a'")), lambda s: counted(spread(s).where("x > 'b'"))),
    ],
)
def test_what_decides_a_state_or_several_results_is_compared(plan: Any, before: Body, after: Body) -> None:
    assert changed_parts(plan, before, after) == {"steps", "decided by"}
    assert changed_parts(plan, before, before) == set()
