"""Plans with several keyed steps: which of them are in one region, and why others are not."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan import chains
from falkirk.plan.fingerprint import places_of_keyed_step
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from tests.integration.planning import hop, line_of, names, refused

SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT, parts ARRAY<INT>"
Planned = Callable[..., Plan]
Body = Callable[[fk.Stream], fk.Stream]


@fk.deterministic
def kept(row: Row, state: Row | None) -> Any:
    return {"id": row.id}, {"n": 1}


@fk.deterministic
def reminded(key: Row, time: Any, state: Row) -> Any:
    return {"id": key.id}, None


def stateful(stream: fk.Stream, **options: Any) -> fk.Stream:
    return stream.stateful(kept, key="id", state="n INT", returns="id STRING", **options)


@fk.deterministic
def numbered(row: Row, state: Row | None) -> Any:
    return {"n": row.n}, {"n": 1}


def numbers(stream: fk.Stream, **options: Any) -> fk.Stream:
    return stream.stateful(numbered, key="id", state="n INT", returns="n INT", include_key=True, **options)


def first(stream: fk.Stream, *keys: str) -> fk.Stream:
    return stream.withWatermark("at", "10 seconds").dropDuplicates(keys or ["id", "n"])


def windows(stream: fk.Stream) -> fk.Stream:
    return stream.groupBy(F.window("at", "1 minute"), "id").agg(F.sum("n").alias("n"))


@pytest.fixture
def of(plan: Planned) -> Callable[[Body], Plan]:
    """Plan a body over a topic that is partitioned by id."""
    return lambda body, **options: plan(body, **{"key": "id", "schema": SCHEMA, **options})


CHAINS: dict[str, Body] = {
    "aggregate": lambda s: first(s).groupBy("id").agg(F.sum("n").alias("n")),
    "count": lambda s: first(s).where("n > 1").groupBy("id").count(),
    "state": lambda s: stateful(first(s)),
    "expiry": lambda s: stateful(first(s), expires="1 hour"),
    "timers": lambda s: stateful(first(s), on_timer=reminded),
    "windows": lambda s: windows(first(s)),
    "duplicates": lambda s: first(s).dropDuplicates(["id"]),
    "rows between": lambda s: stateful(
        first(s).withColumn("m", F.col("n") + 1).explode("parts", "part").selectExpr("id", "at", "m + part AS n")
    ),
    "aggregate of an aggregate": lambda s: s.groupBy("id", "n").count().groupBy("id").agg(F.sum("count").alias("n")),
    "state of an aggregate": lambda s: stateful(s.groupBy("id").count()),
    "aggregate of a state": lambda s: numbers(s).groupBy("id").agg(F.sum("n").alias("m")),
    "state of a state": lambda s: stateful(numbers(s).where("n > 1")),
    "aggregate of timers": lambda s: (
        numbers(first(s), on_timer=fk.deterministic(lambda key, time, state: None)).groupBy("id").count()
    ),
    "four": lambda s: stateful(windows(first(s)).groupBy("id").count()),
}


@pytest.mark.parametrize("name", CHAINS)
def test_keyed_steps_of_one_key_have_no_hop(of: Callable[..., Plan], name: str) -> None:
    made = of(CHAINS[name])
    (region,) = made.regions
    (promise,) = promises_of(made)
    assert not made.batches
    assert (region.hop, region.sharded_by, promise.release) == (None, (0,), "on arrival")
    assert region.fingerprint["keyed step"].count("; ") == {"four": 3, "aggregate of timers": 2}.get(name, 1)
    exploded = sum(step.operation == "explode" for step in region.steps())
    assert places_of_keyed_step(region.fingerprint) == region.fingerprint["stamp"].count("sub") - exploded
    reasons = [each for each in promise.reasons if "state partition" in each.text and "without a hop" in each.text]
    assert len(reasons) == 1


def test_the_columns_of_the_topic_choose_the_state_partition(plan: Planned) -> None:
    made = plan(
        lambda s: s.withWatermark("at", "1 minute").dropDuplicates(["n", "id", "parts"]).groupBy("id", "n").count(),
        key=["id", "n"], schema=SCHEMA,
    )  # fmt: skip
    (region,) = made.regions
    assert region.sharded_by == (0, 1)


#: For each program, why its second keyed step has a hop.
HOPS: dict[str, tuple[Body, str]] = {
    "another key": (lambda s: first(s).groupBy("n").count(), "partitioned by `id`"),
    "a computed key": (lambda s: first(s).withColumn("id", F.upper("id")).groupBy("id").count(), "partitioned by `id`"),
    "a renamed key": (
        lambda s: first(s).withColumnRenamed("id", "user").groupBy("user").count(), "partitioned by `id`",
    ),
    "a window as a plain key": (
        lambda s: s.groupBy("id", "at").count().groupBy(F.window("at", "1 minute"), "id").count(),
        "a window without event time",
    ),
    "Python before it": (lambda s: stateful(s).groupBy("id").count(), "stateful() without include_key=True calls"),
    "another key after Python": (lambda s: numbers(s).groupBy("n").count(), "partitioned by `id`"),
    "a row function": (
        lambda s: first(s).map_rows(fk.deterministic(lambda row: {"id": row.id}), returns="id STRING")
        .groupBy("id").count(),
        "map_rows() is between them",
    ),
    "a UDF": (
        lambda s: first(s).withColumn("m", F.udf(fk.deterministic(lambda n: n), "int")("n")).groupBy("id").count(),
        "withColumns() with a UDF is between them",
    ),
    "a clock": (lambda s: first(s).withColumn("now", F.current_timestamp()).groupBy("id").count(), "is between them"),
    "a clock in its key": (
        lambda s: first(s).groupBy("id", F.current_date().alias("day")).count(), "current_date() is between them",
    ),
    "a key in an aggregate": (
        lambda s: first(s).groupBy("id").agg(F.concat("id", F.count("*").cast("string")).alias("x")),
        "an aggregate contains a column of its key",
    ),
    "a random value in the last aggregation": (
        lambda s: first(s).groupBy("id").agg(F.count("*").alias("n"), F.expr("uuid()").alias("u")),
        "uuid() can't be among aggregates that are computed record by record",
    ),
    "a random value that is added to an aggregate": (
        lambda s: first(s).groupBy("id").agg((F.sum("n") + F.rand()).alias("r")), "rand() can't be among aggregates",
    ),
    "a random value in the first aggregation": (
        lambda s: s.groupBy("id", "n").agg(F.count("*").alias("c"), F.expr("uuid()").alias("u")).groupBy("id").count(),
        "uuid() can't be among aggregates",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOPS)
def test_others_have_a_hop_and_the_plan_says_why(of: Callable[..., Plan], name: str) -> None:
    body, reason = HOPS[name]
    made = of(body)
    assert len(names(made)) == 2
    assert reason in hop(made)[2]
    assert made.regions[0].sharded_by == made.regions[1].sharded_by == ()


def test_an_aggregate_that_can_not_be_computed_record_by_record_has_a_hop(
    of: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PySparkException("no such aggregate.")

    monkeypatch.setattr(chains, "aggregates_for_java", refused)
    assert hop(of(CHAINS["count"]))[2].endswith("before it can't be in one live query: no such aggregate")


#: Programs whose first step gives results that may differ in a replay.
DIFFERENT: dict[str, Body] = {
    "an aggregate": lambda s: (
        s.groupBy("id", "n").agg(F.collect_set("parts").alias("all")).groupBy("id").agg(F.max(F.size("all")).alias("m"))
    ),
    "a key": lambda s: (
        s.groupBy("id", F.current_date().alias("day")).count().groupBy("id").agg(F.max("day").alias("m"))
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_first_step_is_not_between_the_steps(of: Callable[..., Plan], name: str) -> None:
    made = of(DIFFERENT[name])
    (region,), (promise,) = made.regions, promises_of(made)
    assert (region.hop, region.sharded_by, promise.release) == (None, (0,), "behind a checkpoint")


#: Programs whose second step with event time can't be in the region of the first one.
BATCHES: dict[str, tuple[Body, str]] = {
    "another watermark": (
        lambda s: windows(first(s).withWatermark("at", "1 hour")), "withWatermark() is between them",
    ),
    "another key": (
        lambda s: first(s).dropDuplicates(["n"]), "only if each of its keys is in one partition",
    ),
    "an order": (lambda s: stateful(first(s), order="at"), "an order of its own"),
    "a clock": (
        lambda s: windows(first(s).withColumn("now", F.current_timestamp())),
        "a window: it and a step with a state before it can't be in one live query: "
        "current_timestamp() is between them",
    ),
    "another clock": (
        lambda s: stateful(first(s).withColumn("now", F.expr("now()")), expires="1 hour"),
        "stateful(): it and a step with a state before it can't be in one live query: now() is",
    ),
    "a random value": (
        lambda s: first(s).withColumn("m", F.expr("uuid()")).dropDuplicates(["id"]), "uuid() is between them",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHES)
def test_two_steps_with_event_time_that_do_not_fit_run_in_micro_batches(of: Callable[..., Plan], name: str) -> None:
    body, reason = BATCHES[name]
    made = of(body)
    (batch,), (promise,) = made.batches, promises_of(made)
    assert reason in batch.reason
    (chosen,) = promises_of(of(body, engine="micro-batch"))
    assert (promise.delivery, promise.release, promise.cut) == (chosen.delivery, chosen.release, chosen.cut)


def test_a_user_who_insists_on_a_live_run_gets_the_reason(of: Callable[..., Plan]) -> None:
    with pytest.raises(fk.DefinitionError, match=r"current_timestamp\(\) is between them") as caught:
        of(BATCHES["a clock"][0], engine="live")
    assert (caught.value.condition, caught.value.parameters["processor"]) == ("ENGINE_UNSUITABLE", "counts")


def test_whether_results_begin_with_the_key_is_part_of_the_state(of: Callable[..., Plan]) -> None:
    def kept_of(body: Body) -> dict[str, str]:
        (region,) = of(body).regions
        return {name: region.fingerprint[name] for name in ("keyed step", "decided by")}

    own = kept_of(lambda s: s.stateful(numbered, key="id", state="n INT", returns="n INT"))
    assert own["keyed step"] == "stateful(key id, state n INT)"
    assert kept_of(numbers)["keyed step"] == "stateful(key id, state n INT, key in results)"
    chain = kept_of(CHAINS["aggregate of a state"])
    assert kept_of(lambda s: numbers(s).groupBy("id").agg(F.max("n").alias("m"))) != chain
    assert kept_of(lambda s: CHAINS["aggregate of a state"](s).where("m > 7")) == chain


def test_a_column_that_is_added_can_not_be_returned(of: Callable[..., Plan]) -> None:
    def body(stream: fk.Stream) -> fk.Stream:
        return stream.stateful(numbered, key="id", state="n INT", returns="ID INT", include_key=True)  # twice

    for engine in ("live", "micro-batch"):
        error = refused(
            lambda: of(body, engine=engine),  # noqa: B023
            "SCHEMA_INVALID", line=line_of(__file__, "twice"),
        )  # fmt: skip
        assert "column 'ID', which include_key=True adds" in str(error)


def test_a_changed_chain_is_another_state(of: Callable[..., Plan]) -> None:
    def kept_of(body: Body) -> dict[str, str]:
        (region,) = of(body).regions
        return {name: region.fingerprint[name] for name in ("keyed step", "decided by", "stamp")}

    chain = kept_of(CHAINS["aggregate"])
    assert kept_of(lambda s: first(s).where("n > 1").groupBy("id").agg(F.sum("n").alias("n"))) != chain
    assert kept_of(lambda s: first(s, "id").groupBy("id").agg(F.sum("n").alias("n"))) != chain
    assert kept_of(lambda s: s.groupBy("id").agg(F.sum("n").alias("n"))) != chain
    assert kept_of(lambda s: CHAINS["aggregate"](s).where("n > 7")) == chain


def test_a_chain_in_other_state_partitions_is_another_state(plan: Planned) -> None:
    def keyed_step(*key: str) -> str:
        (region,) = plan(
            lambda s: s.groupBy("id", "n").count().groupBy("id", "n").agg(F.max("count").alias("m")),
            key=list(key), schema=SCHEMA,
        ).regions  # fmt: skip
        return region.fingerprint["keyed step"]

    assert keyed_step("id", "n") == keyed_step("n", "id") == keyed_step("id").replace("by id", "by id, n")
    assert len({keyed_step("id", "n"), keyed_step("id"), keyed_step("n")}) == 3
