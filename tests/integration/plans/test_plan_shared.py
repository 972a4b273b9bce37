"""Planning: an ephemeral processor is computed once for all of its readers where they would see something else."""

import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from tests.integration.corpus import SCHEMA, counted, sampled, tagged
from tests.integration.planning import Body, names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = "falkirk.shared.deadbeef.ids-out"


def read_twice(
    spark: "SparkSession", body: Body, *, key: str | None = "s", then: Body | None = None, **app: Any
) -> Plan:
    """Plan an ephemeral processor `ids` that two sinks read, or with `then` a sink and another processor."""
    shared = fk.App("shared")
    shared.source("events", app.get("source") or fk.Kafka("events", schema=SCHEMA, key=key))
    shared.add_processor("ids", body, reads=("events",), policy=fk.Ephemeral())
    if then is not None:
        shared.add_processor("more", then, reads=("ids",), policy=fk.Ephemeral())
    shared.sink("one", "ids", fk.Kafka("one"))
    shared.sink("two", "ids" if then is None else "more", fk.Kafka("two"))
    return plan_application(shared, spark, "deadbeef")


@pytest.mark.parametrize("then", [None, counted, lambda s: s.where("n > 1")])
@pytest.mark.parametrize("body", [tagged, sampled, lambda s: s.withColumn("now", F.lit(time.time_ns()))])
def test_what_is_drawn_for_several_readers_is_drawn_once(spark: "SparkSession", body: Body, then: Body | None) -> None:
    """Else one input would have two ids in two topics, without any failure."""
    log, *readers = read_twice(spark, body, then=then).regions
    assert (log.name, log.output.topic, log.processors) == ("ids-out", LOG, ("ids",))
    assert log.hop is not None
    assert log.hop.reason.startswith("ids has several readers, and without the hop, each reader would compute ")
    assert sum(reader.source.topic.topic == LOG for reader in readers) == 2
    assert not any(reader.varying for reader in readers)


def test_what_a_processor_drops_again_is_drawn_for_nobody(spark: "SparkSession") -> None:
    assert names(read_twice(spark, lambda s: tagged(s).drop("lot"))) == ["one", "two"]


def test_it_is_the_last_of_several_that_is_read_by_several(spark: "SparkSession") -> None:
    app = fk.App("shared")
    app.source("events", fk.Kafka("events", schema=SCHEMA))
    app.add_processor("drawn", tagged, reads=("events",), policy=fk.Ephemeral())
    app.add_processor("ids", lambda s: s.where("n > 1"), reads=("drawn",), policy=fk.Ephemeral())
    for name in ("one", "two"):
        app.sink(name, "ids", fk.Kafka(name))
    plan = plan_application(app, spark, "deadbeef")
    assert [(r.name, r.processors) for r in plan.regions] == [("ids-out", ("drawn", "ids")), ("one", ()), ("two", ())]


def test_an_order_that_is_recorded_is_recorded_once(spark: "SparkSession") -> None:
    """Two hops would have two orders: the first of a key would be one in the one topic and another in the other."""
    firsts = lambda s: s.groupBy("s").agg(F.first("n").alias("n"))  # noqa: E731
    plan = read_twice(spark, firsts, key=None)
    assert names(plan) == ["ids-by-s", "ids-out", "one", "two"]
    assert plan.regions[1].hop is not None
    assert plan.regions[1].hop.reason == (
        "ids has several readers, and without the hop, each reader would read ids-by-s in another order"
    )
    assert names(read_twice(spark, firsts)) == ["one", "two"], "the source's own order is one"


def test_a_word_keeps_it_fused(spark: "SparkSession") -> None:
    assert names(read_twice(spark, fk.deterministic(lambda s: s.withColumn("r", F.rand(7))))) == ["one", "two"]


def test_a_request_leads_through_the_log(spark: "SparkSession") -> None:
    """It is accepted when it is in both topics."""
    http = fk.Http("/ids", schema="id STRING NOT NULL, n INT", id="id")
    plan = read_twice(spark, tagged, source=http)
    assert names(plan) == ["ids-out", "one", "two"]
    (source,) = plan.push
    assert source.topic.topic == plan.regions[0].source.topic.topic
    assert {p.sink: p.release for p in promises_of(plan)} == {"one": "on arrival", "two": "on arrival"}
