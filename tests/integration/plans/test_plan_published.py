"""The home's record of the place and the form of results: a restart that would change either is refused.

A live region finds a released result on its channel, and an epoch's by its place in its partition. Under another key
the same result is on another channel, so a replay would release it again.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import HomeError
from falkirk.plan.batch import Batch
from falkirk.plan.fingerprint import DECIDED_BY
from falkirk.plan.planner import plan_application
from falkirk.plan.published import form
from falkirk.plan.region import Region
from falkirk.recovery.decision_store import RegionRecord
from falkirk.runtime.spark.record import compare
from tests.integration.planning import Body

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONED, WRITTEN = "partitioned by", "written as"
AVRO = '{"type": "record", "name": "r", "fields": [{"name": "s", "type": "string"}%s]}'


def regions(session: "SparkSession", body: Body, sink: Any, *, key: str | None = None) -> list[Region]:
    """Plan a live application with one sink."""
    app = fk.App("planned")
    app.source("events", fk.Kafka("events", schema="s STRING, n INT, st STRUCT<x: STRING, y: STRING>", key=key))
    app.add_processor("p", body, reads=("events",), policy=fk.Lazy())
    app.sink("out", "p", sink)
    return list(plan_application(app, session, "deadbeef").regions)


def batch(session: "SparkSession", sink: Any) -> Batch:
    """Plan a batch with one sink."""
    app = fk.App("planned")
    app.source("events", fk.Kafka("events", schema="s STRING, n INT"))

    @app.batch(rows=10)
    def p(events: Any) -> Any:
        return events.select("s", "n")

    app.sink("out", p, sink)
    return plan_application(app, session, "deadbeef").batches[0]


def changed(before: Region | Batch, after: Region | Batch) -> set[str]:
    """Return the reason for which a restart is refused."""
    try:
        compare(after, RegionRecord(fingerprint=before.fingerprint, start_offsets={}, partitions={}), {})
    except HomeError as error:
        found: dict[str, Any] = error.parameters["changed"] if error.condition == "APPLICATION_CHANGED" else {}
        return set(found)
    return set()


def upper(stream: fk.Stream) -> fk.Stream:
    return stream.withColumn("s", F.upper("s"))


@pytest.mark.parametrize(
    ("after", "key", "what"),
    [
        (upper, "s", set()),
        (lambda s: s.withColumn("k", F.upper("s")).withColumn("s", F.col("k")).drop("k"), "s", set()),
        (lambda s: upper(s).withColumn("n", F.col("n") + 1).where("n > 3"), "s", set()),
        (upper, "n", {PARTITIONED, WRITTEN}),
        (upper, ["s", "n"], {PARTITIONED, WRITTEN}),
        (upper, None, {PARTITIONED, WRITTEN}),
        (lambda s: s.withColumn("s", F.lower("s")), "s", {PARTITIONED}),
        (lambda s: s.withColumn("s", F.substring(F.upper("s"), 1, 2)), "s", {PARTITIONED}),
        (lambda s: s.withColumn("s", F.concat(F.upper("s"), F.lit("x"))), "s", {PARTITIONED}),
        (lambda s: s.withColumn("s", F.upper("st.x")), "s", {PARTITIONED}),
        (lambda s: s.withColumn("u", F.upper("s")).select(F.col("n").alias("s"), "u"), "s", {PARTITIONED}),
    ],
)
def test_another_key_of_a_sink_is_refused(spark: "SparkSession", after: Body, key: Any, what: set[str]) -> None:
    (was,), (now,) = regions(spark, upper, fk.Kafka("out", key="s")), regions(spark, after, fk.Kafka("out", key=key))
    assert changed(was, now) == what


def test_a_field_of_a_struct_is_told_from_another(spark: "SparkSession") -> None:
    def of(name: str) -> Region:
        return regions(spark, lambda s: s.withColumn("s", F.col(f"st.{name}")), fk.Kafka("out", key="s"))[0]

    assert (changed(of("x"), of("x")), changed(of("x"), of("y"))) == (set(), {PARTITIONED})


def test_what_computes_the_key_of_a_hop_is_recorded_with_its_writer(spark: "SparkSession") -> None:
    """The reader's step has not changed, but a replay of its writer would put a record into another partition."""

    def counted(how: Callable[[Any], Any]) -> list[Region]:
        return regions(spark, lambda s: s.withColumn("s", how("s")).groupBy("s").count(), fk.Kafka("out", key="s"))

    (writer, reader), (other, same) = counted(F.upper), counted(F.lower)
    assert writer.hop is not None
    assert (changed(writer, other), changed(reader, same)) == ({PARTITIONED}, set())


def test_what_computes_a_group_is_recorded(spark: "SparkSession") -> None:
    """It decides in which partition of the state a result is, which is a part of its channel."""

    def counted(how: Callable[[Any], Any]) -> Region:
        counted = regions(
            spark, lambda s: s.withColumn("k", how("n")).groupBy("s", "k").count(), fk.Kafka("out"), key="s"
        )
        assert len(counted) == 1
        return counted[0]

    assert changed(counted(F.abs), counted(F.abs)) == set()
    assert changed(counted(F.abs), counted(F.negative)) == {PARTITIONED, DECIDED_BY}


def test_what_waits_for_a_checkpoint_may_be_computed_otherwise(spark: "SparkSession") -> None:
    """A clock that Python reads is another literal at each start. Results that wait for the state still fit it."""

    def counted(body: Body, **sink: Any) -> Region:
        app = fk.App("planned")
        app.source("events", fk.Kafka("events", schema="s STRING, n INT", key="s"))
        keyed = lambda s: body(s).groupBy("s").agg(F.max("n").alias("most"))  # noqa: E731
        app.add_processor("p", keyed, reads=("events",), policy=fk.Lazy())
        app.sink("out", "p", fk.Kafka("out"), **sink)
        return plan_application(app, spark, "deadbeef").regions[0]

    clock = lambda s: s.withColumn("n", F.lit(time.time()))  # noqa: E731
    one, other = (lambda s: s.where("n > 1")), (lambda s: s.where("n > 2"))
    assert changed(counted(clock), counted(clock)) == set()
    assert changed(counted(one, delivery="repeated"), counted(other, delivery="repeated")) == set()
    assert changed(counted(one), counted(other)) == {DECIDED_BY}


def test_a_key_by_conditions_is_the_same_each_time(spark: "SparkSession") -> None:
    """Spark's JSON tells its branches twice, the second time with numbers that differ in each process."""

    def chosen(least: int) -> Region:
        body = lambda s: s.withColumn("k", F.when(F.col("n") > least, F.col("s")).otherwise("none"))  # noqa: E731
        return regions(spark, body, fk.Kafka("out", key="k"))[0]

    assert changed(chosen(1), chosen(1)) == set()
    assert changed(chosen(1), chosen(2)) == {PARTITIONED}


def test_a_key_that_comes_of_an_explosion_is_the_same_each_time_and_short(spark: "SparkSession") -> None:
    """Spark tells of the branches of its CASE, bad record or not, with the numbers of columns in them."""

    def body(stream: fk.Stream) -> fk.Stream:
        for _ in range(20):  # each time twice as long, if it were written out
            stream = stream.withColumn("s", F.concat("s", "s"))
        return stream.select(F.split("s", ",").alias("parts")).where("size(parts) > 1").explode("parts", "part")

    was, now = (regions(spark, body, fk.Kafka("out", key="part"))[0] for _ in range(2))
    assert was.fingerprint == now.fingerprint
    assert len(was.fingerprint[PARTITIONED]) < 300


def test_a_key_that_is_drawn_is_the_same_each_time(spark: "SparkSession") -> None:
    """PySpark chooses a random seed at each call of a function."""

    def drawn() -> Region:
        body = lambda s: s.withColumn("lot", (F.rand() * 9).cast("int")).withColumn("u", F.uuid())  # noqa: E731
        return regions(spark, body, fk.Kafka("out", key=["lot", "u"]))[0]

    assert changed(drawn(), drawn()) == set()


def test_another_format_is_refused(spark: "SparkSession") -> None:
    def body(stream: fk.Stream) -> fk.Stream:
        return stream.select("s")

    avro = fk.Kafka("out", format="avro", schema=AVRO % "")
    other = fk.Kafka("out", format="avro", schema=AVRO % ', {"name": "t", "type": "int", "default": 0}')
    (json,), (encoded,) = regions(spark, body, fk.Kafka("out")), regions(spark, body, avro)
    assert changed(json, encoded) == {WRITTEN}
    assert form(avro) != form(other)


SQL = "postgresql://ann:secret@db.example/results"


@pytest.mark.parametrize(
    ("before", "after", "is_refused"),
    [
        (fk.Kafka("out", key="s"), fk.Kafka("out", key="s"), False),
        (fk.Kafka("out", key="s"), fk.Kafka("out", key="n"), True),
        (fk.Kafka("out", key="s"), fk.Kafka("out"), True),
        (fk.Files("out", "json"), fk.Files("out", "csv"), True),
        (fk.Sql(SQL, "t"), fk.Sql(SQL, "t", key="s"), True),
        (fk.Sql(SQL, "t"), fk.Sql("postgresql://ann:secret@db2.example/results", "t"), True),
        (fk.Sql(SQL, "t"), fk.Sql("postgresql://ann:secret@db.example/others", "t"), True),
        (fk.Sql(SQL, "t"), fk.Sql("postgresql://ann:secret@db.example:5433/results", "t"), True),
        (fk.Sql(SQL, "t"), fk.Sql(f"{SQL}?options=-csearch_path%3Dother", "t"), True),
        (fk.Sql(SQL, "t"), fk.Sql("sqlite:///results.db", "t"), True),
        (fk.Sql(SQL, "t"), fk.Sql("postgresql+psycopg://bob:more@DB.example:5432/results?sslmode=require", "t"), False),
    ],
)
def test_another_place_of_a_batch_is_refused(spark: "SparkSession", before: Any, after: Any, is_refused: bool) -> None:
    was, now = batch(spark, before), batch(spark, after)
    assert changed(was, now) == ({WRITTEN} if is_refused else set())


def test_no_password_is_recorded(spark: "SparkSession") -> None:
    recorded = str(batch(spark, fk.Sql(f"{SQL}?password=hidden", "t")).fingerprint)
    assert not [word for word in ("ann", "secret", "hidden", "db.example") if word in recorded]


def test_a_url_that_cannot_be_read_is_not_shown() -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        form(fk.Sql("postgresql://ann:secret@host:port/db", "t"))
    assert caught.value.condition == "DATABASE_UNKNOWN"
    assert "secret" not in str(caught.value)


def test_a_home_that_has_not_recorded_them_goes_on(spark: "SparkSession") -> None:
    for region in (regions(spark, upper, fk.Kafka("out", key="s"))[0], batch(spark, fk.Sql(SQL, "t"))):
        earlier = {name: text for name, text in region.fingerprint.items() if name not in (PARTITIONED, WRITTEN)}
        assert len(earlier) < len(region.fingerprint)
        compare(region, RegionRecord(fingerprint=earlier, start_offsets={}, partitions={}), {})
