"""Plans of live regions that call Python: its description, the results that wait for it, and the effect of a change."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan.fingerprint import places_of_keyed_step
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.reasons import ANYWHERE, IN_STATE, SHARED
from tests.integration.planning import line_of, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "s STRING NOT NULL, n INT, v VARIANT, at TIMESTAMP"


def halves(row: Any) -> Any:
    return [{"s": row.s, "half": row.n / 2}, {"s": row.s, "half": row.n - row.n / 2}]


@fk.deterministic(because="arithmetic alone")
def vouched(row: Any) -> Any:
    return halves(row)


def mapped(function: Any = vouched, **options: Any) -> Any:
    def body(events: fk.Stream) -> fk.Stream:
        return events.select("s", "n").map_rows(function, returns="s STRING, half DOUBLE", **options)

    return body


def planned(spark: "SparkSession", body: Any, *, delivery: str = "exactly-once", **options: Any) -> Plan:
    app = fk.App("shop")
    app.source("events", fk.Kafka("events", schema=SCHEMA, key="s"))
    body.__name__ = "found"
    app.stream(**options)(body)
    app.sink("out", body, fk.Kafka("out", key="s"), delivery=delivery)
    return plan_application(app, spark, "deadbeef")


def test_a_declared_function_runs_live_and_nothing_waits(spark: "SparkSession") -> None:
    (region,) = planned(spark, mapped()).regions
    assert (region.deterministic, region.undetermined, region.stateful) == (True, None, False)
    assert [word.name for word in region.assertions] == ["vouched"]
    assert region.fingerprint["stamp"].count("sub") == 1
    kinds = {reason.kind: reason.text for reason in region.reasons(waits=False)}
    assert "calls vouched() for one record after the other" in kinds["python"]
    assert "takes longer than 1 min" in kinds["python"]
    assert "you declare vouched() deterministic" in kinds["declared"]
    properties = planned(spark, mapped()).properties["found"]
    assert (properties.differs, [word.name for word in properties.assertions]) == ((), ["vouched"])


def test_results_of_an_undeclared_function_wait(spark: "SparkSession") -> None:
    (region,) = planned(spark, mapped(halves), engine="live").regions
    assert region.undetermined is not None
    assert (region.undetermined.operations, region.undetermined.why) == (("PythonUDF",), ANYWHERE)
    assert region.released_to is not None, "there is a held log"
    assert "wait for a checkpoint" in " ".join(r.text for r in region.reasons(waits=True))
    (batch,) = planned(spark, mapped(halves)).batches
    assert "halves() is not declared" in batch.reason


def test_random_values_that_several_results_share_wait(spark: "SparkSession") -> None:
    def body(events: fk.Stream) -> fk.Stream:
        return events.selectExpr("s", "rand() AS n").map_rows(vouched, returns="s STRING, half DOUBLE")

    (region,) = planned(spark, body).regions
    assert region.undetermined is not None
    assert (region.undetermined.operations, region.undetermined.why) == (("Rand",), SHARED)


def test_before_and_after_steps_with_a_state(spark: "SparkSession") -> None:
    def counted(events: fk.Stream) -> fk.Stream:
        return mapped()(events).groupBy("s").count()

    def after(events: fk.Stream) -> fk.Stream:
        return mapped()(events.groupBy("s").agg("max(n) AS n"))

    first, second = planned(spark, counted).regions
    assert first.hop is not None, "the function may have changed the key"
    assert (first.stateful, second.stateful) == (False, True)
    (region,) = planned(spark, after).regions
    assert region.stateful


@fk.deterministic
def added(row: Any, state: Any) -> Any:
    return {"s": row.s}, {"n": row.n}


def folded(function: Any = added, key: str = "s", state: str = "n INT") -> Any:
    def body(events: fk.Stream) -> fk.Stream:
        return events.select("s", "n").stateful(function, key=key, state=state, returns="s STRING")  # folded

    return body


def aging(events: fk.Stream) -> fk.Stream:
    timed = events.drop("v").withWatermark("at", "10 seconds")
    return timed.stateful(added, key="s", state="n INT", returns="s STRING", expires="1 hour")


@fk.deterministic
def reminded(key: Any, time: Any, state: Any) -> Any:
    return None, state


def reminding(function: Any = reminded, expires: str | None = None) -> Any:
    def body(events: fk.Stream) -> fk.Stream:
        timed = events.drop("v").withWatermark("at", "10 seconds")
        return timed.stateful(added, key="s", state="n INT", returns="s STRING", on_timer=function, expires=expires)

    return body


def test_timers_run_live_if_both_functions_are_declared(spark: "SparkSession") -> None:
    made = planned(spark, reminding())
    (region,) = made.regions
    assert (region.stateful, region.hop, region.undetermined) == (True, None, None)
    step = "stateful with timers(key s, state n INT, timers by at, 10 s, 60 s ahead)"
    assert region.fingerprint["keyed step"] == step
    assert (region.logs().keyed_step, places_of_keyed_step(region.fingerprint)) == ("stateful with timers", 2)
    (reason,) = [each for promise in promises_of(made) for each in promise.reasons if each.kind == "python"]
    assert "reminded() is called when that time has reached a key's timer" in reason.text
    (both,) = planned(spark, reminding(expires="1 hour")).regions
    assert "expires 3600 s after at, 10 s, 60 s ahead, timers by at" in both.fingerprint["keyed step"]
    made = planned(spark, reminding(lambda key, time, state: (None, state)))
    assert "<lambda>() is not declared" in made.batches[0].reason
    assert made.properties["found"].differs


def test_a_state_in_python_runs_live_where_a_partition_has_all_records_of_a_key(spark: "SparkSession") -> None:
    (region,) = planned(spark, folded()).regions
    assert (region.stateful, region.hop, region.undetermined) == (True, None, None)
    assert region.fingerprint["keyed step"] == "stateful(key s, state n INT)"
    first, second = planned(spark, folded(key="n")).regions
    assert first.hop is not None
    assert (first.hop.keys, second.stateful) == (("n",), True)
    assert planned(spark, folded(state="n BIGINT")).regions[0].fingerprint["keyed step"].endswith("BIGINT)")
    known = planned(spark, folded()).properties["found"]
    assert (known.differs, bool(known.ordered), bool(known.adds_up)) == ((), True, True)
    made = planned(spark, aging)
    (region,) = made.regions
    assert (region.stateful, region.hop, region.undetermined) == (True, None, None)
    assert "expires 3600 s after at, 10 s" in region.fingerprint["keyed step"]
    (reason,) = [each for promise in promises_of(made) for each in promise.reasons if each.kind == "python"]
    assert "passed the key's newest record by 1 h" in reason.text
    assert len(planned(spark, folded(lambda row, state: (None, None))).batches) == 1


def test_an_explode_after_a_step_with_python_or_a_window_runs_in_micro_batches(spark: "SparkSession") -> None:
    """There, no order is left among the results of such steps. An `explode` needs none."""

    def windowed(events: fk.Stream) -> fk.Stream:
        timed = events.drop("v").withWatermark("at", "10 seconds")
        return timed.groupBy(F.window("at", "1 minute"), "s").outputMode("update").agg(F.count("*").alias("n"))

    def exploded(body: Any) -> Any:
        return lambda events: body(events).explode(F.array(F.lit(1), F.lit(2)), "copy")

    for body in (aging, mapped(), windowed):
        made = planned(spark, exploded(body), engine="micro-batch")
        assert [batch.name for batch in made.batches] == ["found"], body


def test_a_random_value_in_a_state_waits(spark: "SparkSession") -> None:
    def body(events: fk.Stream) -> fk.Stream:
        return folded()(events.selectExpr("s", "rand() AS n"))

    (region,) = planned(spark, body).regions
    assert region.undetermined is not None
    assert (region.undetermined.operations, region.undetermined.why) == (("Rand",), IN_STATE)


def test_a_change_of_the_function_is_noticed(spark: "SparkSession") -> None:
    def made(number: int) -> Any:
        return fk.deterministic(lambda row: {"s": row.s, "half": row.n + number})

    first, same, other = (planned(spark, mapped(made(n))).regions[0].fingerprint for n in (1, 1, 2))
    assert first == same
    assert {name for name in first if first[name] != other[name]} == {"steps", "decided by"}
    longer = planned(spark, mapped(made(1), timeout="1 hour")).regions[0].fingerprint
    assert longer == first, "a timeout changes no result"


def test_mistakes_are_reported(spark: "SparkSession") -> None:
    def of_type(events: fk.Stream) -> fk.Stream:
        return events.map_rows(vouched, returns="s STRING, half DOUBLE")

    with pytest.raises(fk.DefinitionError) as caught:
        planned(spark, of_type)
    assert caught.value.condition == "STEP_INVALID"
    assert "variant" in str(caught.value)
    refused(lambda: planned(spark, lambda events: events.map_rows(vouched, returns="no")), "SCHEMA_INVALID")
    refused(
        lambda: planned(spark, lambda events: events.map_rows(vouched, returns="s STRING", poison="x")),
        "OPTION_UNKNOWN",
    )  # fmt: skip
    refused(lambda: planned(spark, lambda events: folded(key="x")(events)), "COLUMN_MISSING",
            line=line_of(__file__, "folded"))  # fmt: skip
    refused(lambda: fk.read(fk.Kafka("t", schema="n INT")).map_rows(vouched, returns="n INT", timeout="soon"),
            "DURATION_MALFORMED")  # fmt: skip
