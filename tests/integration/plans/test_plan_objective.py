"""Planning with a recovery objective: the interval of each region, its bounds, and processors that can't have one."""

from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.declare.policy import DEFAULT_POLICY
from falkirk.plan.explain.values import plan_values
from falkirk.plan.planner import plan_application
from falkirk.plan.slots import region_slots
from falkirk.theory.objective import GREATEST_S, LEAST_S
from tests.integration.plans.test_plan_mechanisms import counted, drawn, parted, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_region_of_a_processor_gets_an_interval_for_its_objective(spark: "SparkSession") -> None:
    plan = planned(spark, (counted, fk.Lazy(recover_within="20 seconds")), key=None)
    assert [region.interval_s for region in plan.regions] == [19.0, 19.0], "8 s × 5 − 20 s − 1 s, on both sides"
    assert [region.slowest_interval_s for region in plan.regions] == [GREATEST_S, GREATEST_S]
    slots = tuple(region_slots(region, 2, 2) for region in plan.regions)
    described: Any = plan_values(plan, slots, 9)["regions"]
    assert [region["objective"]["met"] for region in described] == [True, True]
    assert [region["interval_s"] for region in described] == [19.0, 19.0]
    (plain,) = planned(spark, (counted, fk.Lazy())).regions
    assert (plain.interval_s, plain.choice) == (10.0, None)


def test_an_objective_out_of_reach_is_planned_with_the_least_interval(spark: "SparkSession") -> None:
    (region,) = planned(spark, (counted, fk.Lazy(recover_within="5 seconds"))).regions
    assert region.choice is not None
    assert (region.interval_s, region.choice.is_met) == (LEAST_S, False)
    (twins,) = planned(spark, (counted, fk.Lazy(recover_within="5 seconds", twins=True))).regions
    assert twins.interval_s == 5.0, "twins can't do with less"


@pytest.mark.parametrize("body", [drawn, parted])
def test_results_that_wait_for_a_checkpoint_wait_no_longer_than_by_default(spark: "SparkSession", body: Any) -> None:
    regions = planned(spark, (body, fk.Lazy(recover_within="10 minutes"))).regions
    waits = [region for region in regions if region.undetermined is not None or not region.deterministic]
    assert all(region.interval_s == DEFAULT_POLICY.interval_s for region in waits)
    assert bool(waits) == (body is parted), "uuid() alone is drawn once, and waits for nothing"


def test_the_fingerprint_does_not_depend_on_the_interval(spark: "SparkSession") -> None:
    """So a home can go from an interval to an objective, and to other choices."""
    policies = (fk.Lazy("7 seconds"), fk.Lazy(recover_within="20 seconds"), fk.Lazy(recover_within="5 seconds"))
    regions = [planned(spark, (counted, policy)).regions[0] for policy in policies]
    assert [region.interval_s for region in regions] == [7.0, 19.0, LEAST_S]
    assert regions[0].fingerprint == regions[1].fingerprint == regions[2].fingerprint


def refusal(app: fk.App, spark: "SparkSession", reason: str) -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        plan_application(app, spark, "deadbeef")
    assert (caught.value.condition, caught.value.parameters["name"]) == ("OBJECTIVE_REFUSED", "totals")
    assert reason in caught.value.parameters["reason"]


def test_an_objective_is_refused_where_nothing_runs_live(spark: "SparkSession") -> None:
    policy = fk.Lazy(recover_within="5 seconds")
    app = fk.App("planned")
    app.source("events", fk.Kafka("events", schema="s STRING, n INT"))
    app.add_processor("totals", lambda s: s.select("n"), reads=("events",), policy=policy, engine="micro-batch")
    app.sink("out", "totals", fk.Kafka("out"))
    refusal(app, spark, "because")

    app = fk.App("planned")
    app.source("events", fk.Kafka("events", schema="s STRING, n LONG"))

    @app.batch(every="1 minute", state="s STRING, n LONG", policy=policy)
    def totals(events: Any, totals: Any) -> Any:
        return totals.unionByName(events.select("s", "n"))

    app.sink("out", totals, fk.Kafka("out", key="s"))
    refusal(app, spark, "it does not run live")
