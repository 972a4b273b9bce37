"""Plans with joins of two sources: the inference, their columns, and the mistakes that Falkirk reports."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.joins import declared_join
from falkirk.declare.policy import Policy
from falkirk.declare.watermark import Watermark
from falkirk.errors.location import caller
from falkirk.plan.fingerprint import places_of_keyed_step
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.steps.live.joins import Matching, matching

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT"
SAME = "clicks.id = shown.id"
WITHIN = f"{SAME} AND clicks.at BETWEEN shown.at AND shown.at + INTERVAL 10 MINUTES"
Body = Callable[[fk.Stream, fk.Stream], fk.Stream]


def timed(stream: fk.Stream) -> fk.Stream:
    return stream.withWatermark("at", "10 seconds")


def joined(condition: str = WITHIN, how: str = "inner", **options: Any) -> Body:
    return lambda shown, clicks: timed(shown).join(timed(clicks), F.expr(condition), how, **options)


def planned(spark: "SparkSession", body: Body, policy: Policy | None = None, **sink: Any) -> Plan:
    app = fk.App("joins")
    for name in ("shown", "clicks"):
        app.source(name, fk.Kafka(name, schema=SCHEMA))
    app.add_processor("seen", body, reads=("shown", "clicks"), policy=policy or fk.Lazy("5 seconds"))
    app.sink("out", "seen", fk.Kafka("out"), **sink)
    return plan_application(app, spark, "deadbeef")


def refused(spark: "SparkSession", condition: str, part: str, body: Body, **options: Any) -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        planned(spark, body, **options)
    assert caught.value.condition == condition, caught.value
    assert part in str(caught.value)


def test_results_leave_on_arrival_and_the_plan_says_why(spark: "SparkSession") -> None:
    made = planned(spark, joined(how="left"))
    (region,) = made.regions
    (promise,) = promises_of(made)
    assert promise.release == "on arrival"
    assert (region.stateful, region.deterministic, region.reads) == (True, True, ("shown", "clicks"))
    (reason,) = [each for each in promise.reasons if each.kind == "event-time"]
    assert "A record of shown without a partner" in reason.text
    assert "A record of clicks without a partner" not in reason.text
    assert any("500 bytes each" in cost for cost in promise.costs)
    assert "left join of shown and clicks" in region.fingerprint["keyed step"]
    assert region.fingerprint["reads"] == "shown, clicks"
    assert "sub1: bigint" in region.fingerprint["stamp"].replace("sub1:bigint", "sub1: bigint")


def test_the_columns_are_those_of_both_and_a_shared_key_is_there_once(spark: "SparkSession") -> None:
    def columns(body: Body) -> list[str]:
        return spark.createDataFrame([], _schema(planned(spark, body))).columns

    def _schema(made: Plan) -> str:
        (hop, *_) = made.regions
        return made.regions[-1].source.topic.ddl if hop.hop is not None else ""

    by_condition = lambda s, c: joined()(s, c).groupBy("id", "right_id", "right_n").count()  # noqa: E731
    by_name = lambda s, c: timed(c).join(timed(s), "ID", "full", within="1 hour").groupBy("id", "right_n").count()  # noqa: E731
    assert columns(by_condition) == ["id", "at", "n", "right_id", "right_at", "right_n"]
    assert columns(by_name) == ["id", "at", "n", "right_at", "right_n"]


def test_a_changed_condition_or_step_of_either_side_changes_the_fingerprint(spark: "SparkSession") -> None:
    def prints(body: Body) -> dict[str, str]:
        return planned(spark, body).regions[0].fingerprint

    first = prints(joined())
    assert prints(joined()) == first
    assert prints(joined(WITHIN.replace("10", "11")))["keyed step"] != first["keyed step"]
    other = prints(lambda s, c: timed(s).join(timed(c).where("n > 3"), F.expr(WITHIN)))
    assert other["decided by"] != first["decided by"]


def test_joins_that_can_not_run_live_are_micro_batches_of_the_same_columns(spark: "SparkSession") -> None:
    def python(shown: fk.Stream, clicks: fk.Stream) -> fk.Stream:
        return joined(how="full")(shown, clicks).map_rows(dict, returns="id STRING")

    for body, reason in (
        (python, "map_rows() calls Python"),
        (
            lambda s, c: timed(s).join(timed(s).where("n > 1").alias("b"), F.expr("shown.id = b.id"), within="1 hour"),
            "two sources",
        ),
    ):
        (batch,) = planned(spark, body).batches
        assert reason in batch.reason
    (batch,) = planned(spark, joined(how="full"), policy=fk.LogSends()).batches
    assert "runs live only under fk.Lazy()" in batch.reason
    assert batch.schema.names == ["id", "at", "n", "right_id", "right_at", "right_n"]


def test_a_join_of_three_streams_is_one_live_join_and_one_in_micro_batches(spark: "SparkSession") -> None:
    app = fk.App("joins")
    for name in ("shown", "clicks", "sold"):
        app.source(name, fk.Kafka(name, schema=SCHEMA))

    @app.stream()
    def clicked(shown: fk.Stream, clicks: fk.Stream) -> fk.Stream:
        return timed(shown).join(timed(clicks), "id", within="1 hour").select("id", "at", "n")

    @app.stream()
    def bought(clicked: fk.Stream, sold: fk.Stream) -> fk.Stream:
        return timed(clicked).join(timed(sold), "id", within="1 hour")

    app.sink("out", bought, fk.Kafka("out"))
    made = plan_application(app, spark, "deadbeef")
    assert [region.name for region in made.regions] == ["clicked-out"]
    (batch,) = made.batches
    assert "join() runs live only on two sources" in batch.reason


def test_mistakes_are_reported(spark: "SparkSession") -> None:
    refused(spark, "JOIN_UNBOUNDED", "keep records of shown for ever", joined(SAME))
    refused(spark, "JOIN_UNBOUNDED", "keep records of clicks for ever", joined(f"{SAME} AND shown.at >= clicks.at"))
    refused(spark, "JOIN_INVALID", "no column of one stream equals", joined("shown.id > clicks.id"))
    refused(spark, "COLUMN_MISSING", "nothing", joined("shown.nothing = clicks.id"))
    refused(spark, "COLUMN_TWICE", "id", joined(f"{WITHIN} AND id = 'a'"))
    refused(spark, "WATERMARK_UNUSED", "seen", lambda s, c: timed(s).select("id"))
    assert planned(spark, joined(SAME, within="1 hour")).regions[0].stateful


def two(
    spark: "SparkSession", condition: Any, types: tuple[str, str] = ("STRING", "STRING"), **options: Any
) -> Matching:
    """Return the analysis of a join of two streams with a time. Args: types: those of their columns `id`."""
    sides = [spark.createDataFrame([], f"id {kind}, at TIMESTAMP") for kind in types]
    found = declared_join(
        condition, "inner", options.get("within"), ("a", "b"),
        (Watermark(column="at", delay_us=0, ahead_us=0), Watermark(column="at", delay_us=0, ahead_us=0)), caller(),
    )  # fmt: skip
    return matching(sides[0], sides[1], found, caller())


@pytest.mark.parametrize(
    ("upper", "reach_s"),
    [
        ("b.at <= a.at + INTERVAL 10 MINUTES", 600),
        ("b.at < a.at + INTERVAL 5 MINUTES + INTERVAL 5 MINUTES", 600),
        ("b.at - INTERVAL 5 MINUTES < a.at + INTERVAL 5 MINUTES", 600),
        ("a.at + INTERVAL 5 MINUTES > b.at + INTERVAL 5 MINUTES", 0),
        ("CAST(b.at AS DOUBLE) <= CAST(a.at AS DOUBLE) + 600", 600),
        ("CAST(b.at AS DOUBLE) <= CAST(a.at AS DOUBLE) + 300 + 300", 600),
        ("b.at <= a.at + INTERVAL 1 DAY", 86_400),
        ("b.at <= a.at + INTERVAL 1 DAY AND b.at <= a.at + INTERVAL 1 MINUTE", 60),
        ("b.at <= a.at + make_interval(0, 0, 0, 1)", 86_400),
    ],
)
def test_the_condition_says_how_long_a_record_waits(spark: "SparkSession", upper: str, reach_s: int) -> None:
    found = two(spark, F.expr(f"a.id = b.id AND {upper} AND b.at >= a.at")).reach_us
    assert [round(each / 1e6, 1) for each in found] == [reach_s, 0]


@pytest.mark.parametrize(
    "upper",
    [
        "CAST(b.at AS BIGINT) <= CAST(a.at AS BIGINT) + 600",
        "CAST(b.at AS DECIMAL(20, 0)) <= CAST(a.at AS DECIMAL(20, 0)) + 600",
        "CAST(b.at AS DOUBLE) < CAST(a.at AS DOUBLE) + CAST(a.at AS DOUBLE)",
        "b.at <= a.at + make_interval(0, -1)",
    ],
)
def test_what_is_no_exact_sum_of_times_limits_nothing(spark: "SparkSession", upper: str) -> None:
    """Times in whole seconds can be apart by almost a second more than the condition says."""
    condition = F.expr(f"a.id = b.id AND {upper} AND b.at >= a.at - INTERVAL 1 DAY")
    with pytest.raises(fk.DefinitionError) as caught:
        two(spark, condition)
    assert caught.value.condition == "JOIN_UNBOUNDED"
    assert two(spark, condition, within="2 days").reach_us[0] == 2 * 86_400_000_000


def test_a_day_may_have_more_hours_in_a_time_zone_with_summer_time(spark: "SparkSession") -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    for upper, reach_s in (("25 HOURS", 49 * 3600), ("23 HOURS", 23 * 3600), ("1 DAY", 48 * 3600)):
        condition = F.expr(f"a.id = b.id AND b.at <= a.at + INTERVAL {upper} AND b.at >= a.at")
        assert round(two(session, condition).reach_us[0] / 1e6) == reach_s


def test_keys_that_have_no_one_form_are_refused(spark: "SparkSession") -> None:
    for types, on, part in (
        (("INT", "BIGINT"), "id", "column id is int in one stream and bigint in the other"),
        (("DECIMAL(9, 2)", "DECIMAL(8, 2)"), "ID", "column ID is decimal(9,2)"),
    ):
        with pytest.raises(fk.DefinitionError) as caught:
            two(spark, on, types, within="1 hour")
        assert caught.value.condition == "JOIN_INVALID"
        assert part in str(caught.value)
    assert two(spark, F.expr("a.id = b.id"), ("INT", "BIGINT"), within="1 hour").keys
    for key in ("struct(clicks.n / 2) = struct(shown.n / 2)", "clicks.id = shown.id COLLATE UTF8_LCASE"):
        refused(spark, "JOIN_INVALID", "may have different bytes", joined(key, within="1 hour"))


def test_what_a_replay_may_change_is_refused(spark: "SparkSession") -> None:
    def drawn(shown: fk.Stream, clicks: fk.Stream) -> fk.Stream:
        return timed(shown).withColumn("u", F.expr("uuid()")).join(timed(clicks), F.expr(WITHIN))

    refused(spark, "JOIN_UNDETERMINED", "uuid()", drawn)
    refused(spark, "JOIN_UNDETERMINED", "at-most-once", joined(), delivery="at-most-once")
    refused(
        spark, "JOIN_UNDETERMINED", "uuid()",
        lambda s, c: joined()(s, c).withColumn("u", F.expr("uuid()")).explode(F.array("u", "u"), "each"),
    )  # fmt: skip
    assert planned(spark, lambda s, c: joined()(s, c).withColumn("u", F.expr("uuid()"))).regions[0].deterministic


def planned_three(spark: "SparkSession", body: Any, **options: Any) -> Plan:
    app = fk.App("joins")
    for name in ("shown", "clicks", "sold"):
        app.source(name, fk.Kafka(name, schema=SCHEMA))
    app.add_processor("seen", body, reads=("shown", "clicks", "sold"), policy=fk.Lazy("5 seconds"), **options)
    app.sink("out", "seen", fk.Kafka("out"))
    return plan_application(app, spark, "deadbeef")


def thrice(between: Callable[[fk.Stream], fk.Stream], on: str = "shown.id = sold.id", how: str = "full") -> Any:
    """Return the steps of two joins. Args: between: the steps between them. on: the condition of the second one."""

    def body(shown: fk.Stream, clicks: fk.Stream, sold: fk.Stream) -> fk.Stream:
        both = timed(shown).join(timed(clicks), F.expr(WITHIN), "left")
        named = both.withColumnRenamed("right_n", "clicked").drop("right_id", "right_at")
        return between(named).join(timed(sold), F.expr(on), how, within="1 minute")

    return body


def test_joins_of_three_streams_by_one_key_are_one_live_region(spark: "SparkSession") -> None:
    made = planned_three(spark, thrice(lambda both: both.where("n > 1").withColumn("m", F.col("n") + 1)))
    (region,) = made.regions
    assert region.reads == ("shown", "clicks", "sold")
    assert [each.name for each in region.joined] == ["clicks", "sold"]
    assert region.join_places == ((0,),)
    assert region.reorders
    (promise,) = promises_of(made)
    assert promise.release == "on arrival"
    (reason,) = [each for each in promise.reasons if each.kind == "chain"]
    assert "are in one live query, because the key of each has that of the first one" in reason.text
    assert region.fingerprint["keyed step"].startswith("chain of timedJoin, timedJoin: ")
    assert region.fingerprint["keyed step"].endswith("in partitions by id")
    names = [part.split(":")[0] for part in region.fingerprint["stamp"].split("<")[1].split(",")]
    assert names == ["source", "partition", "offset", "sub0", "sub1", "sub2", "sub3"]
    assert "sub3:bigint" in region.fingerprint["stamp"]
    assert places_of_keyed_step(region.fingerprint) == 4
    other = planned_three(spark, thrice(lambda both: both.where("n > 2").withColumn("m", F.col("n") + 1)))
    assert other.regions[0].fingerprint["decided by"] != region.fingerprint["decided by"]


def test_the_second_key_may_have_more_columns_in_another_order(spark: "SparkSession") -> None:
    more = thrice(lambda both: both, "sold.n = clicked AND sold.id = shown.id")
    (region,) = planned_three(spark, more).regions
    assert region.join_places == ((1,),)


def test_an_as_of_join_can_be_the_first_or_the_second_one(spark: "SparkSession") -> None:
    def first(shown: fk.Stream, clicks: fk.Stream, sold: fk.Stream) -> fk.Stream:
        both = timed(shown).join_asof(timed(clicks), "id").select("id", "at", "n")
        return both.join(timed(sold), "id", within="1 minute")

    def second(shown: fk.Stream, clicks: fk.Stream, sold: fk.Stream) -> fk.Stream:
        both = timed(shown).join(timed(clicks), "id", within="1 minute").select("id", "at", "n")
        return both.join_asof(timed(sold), "id", "left")

    for body in (first, second):
        assert len(planned_three(spark, body).regions[0].joined) == 2


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (thrice(lambda both: both.withColumn("id", F.upper("id"))), "needs the key of the join before it, unchanged"),
        (thrice(lambda both: both, "sold.n = clicked"), "needs the key of the join before it, unchanged"),
        (
            lambda shown, clicks, sold: timed(shown).join(
                timed(clicks).join(timed(sold), "id", within="1 minute").select("id", "at", "right_n"), "id",
                within="1 minute",
            ),
            "has a right stream that is a join",
        ),
        (
            lambda shown, clicks, sold: timed(shown)
            .join(timed(clicks), "id", within="1 minute")
            .drop("right_at", "right_n")
            .join_asof(sold.withWatermark("at", "1 second", idle="1 minute"), "id"),
            "withWatermark(idle=)",
        ),
    ],
)  # fmt: skip
def test_joins_that_can_not_be_in_one_query_are_micro_batches(spark: "SparkSession", body: Any, reason: str) -> None:
    made = planned_three(spark, body)
    assert not made.regions
    (batch,) = made.batches
    assert reason in batch.reason
    with pytest.raises(fk.DefinitionError) as caught:
        planned_three(spark, body, engine="live")
    assert caught.value.condition == "ENGINE_UNSUITABLE"


def test_an_aggregation_after_a_join_has_a_hop_that_records_the_order(spark: "SparkSession") -> None:
    made = planned(spark, lambda s, c: joined()(s, c).groupBy("id").agg(F.sum("n")))
    first, second = made.regions
    assert (bool(first.joined), bool(second.joined)) == (True, False)
    assert first.hop is not None
    assert "a join gives its results in another order in each replay" in first.hop.reason


@pytest.mark.parametrize("text", ["uuid()", "current_timestamp()"])
def test_what_a_replay_may_change_is_refused_between_joins(spark: "SparkSession", text: str) -> None:
    def drawn(both: fk.Stream) -> fk.Stream:
        return both.withColumn("u", F.expr(text))

    with pytest.raises(fk.DefinitionError) as caught:
        planned_three(spark, thrice(drawn))
    assert caught.value.condition == "JOIN_UNDETERMINED"
