"""Fenced outputs in a plan: which regions are fenced, by default and on request, and the output of `falkirk plan`."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.cli import main
from falkirk.plan import mechanisms
from falkirk.plan.guarantees import promises_of
from falkirk.plan.planner import plan_application

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = """
import falkirk as fk

app = fk.App("shop", kafka="broker:9092", transactional={transactional})
app.source("orders", fk.Kafka("orders", schema="id STRING"))
app.sink("out", "orders", fk.Kafka("out", key="id"))
"""


def _drawn(orders: fk.Stream) -> fk.Stream:
    """Two results share a value that differs on a replay, so they wait in a held log."""
    return orders.withColumn("u", F.expr("uuid()")).explode(F.array(F.lit(0), F.lit(1)), "part")


def _app(*, transactional: bool | None) -> fk.App:
    app = fk.App("shop", transactional=transactional)
    app.source("orders", fk.Kafka("orders", schema="id STRING, n INT"))
    app.add_processor("counted", lambda orders: orders.groupBy("id").count(), reads=("orders",), policy=fk.Lazy())
    app.add_processor("drawn", _drawn, reads=("orders",), policy=fk.Lazy())
    app.sink("counts", "counted", fk.Kafka("counts", key="id"))
    app.sink("draws", "drawn", fk.Kafka("draws", key="id"))
    return app


@pytest.mark.parametrize("transactional", [True, False, None])
@pytest.mark.parametrize("cluster", [True, False])
def test_regions_that_write_a_topic_of_users_are_fenced(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, *, transactional: bool | None, cluster: bool
) -> None:
    """Hops and held logs are not fenced: their readers skip late records. But the dead letters of all regions are."""
    monkeypatch.setattr(mechanisms, "writes_elsewhere", lambda session: cluster)
    plan = plan_application(_app(transactional=transactional), spark, "deadbeef")
    found = {region.name for region in plan.regions if region.transactional}
    assert len(plan.regions) > 2
    assert found == ({"counts"} if (cluster if transactional is None else transactional) else set())
    letters = {region.name for region in plan.regions if region.transactional_letters}
    assert letters == ({r.name for r in plan.regions} - found if found else set())


def daily(orders: DataFrame) -> DataFrame:
    return orders


@pytest.mark.parametrize("transactional", [True, False])
def test_all_outputs_in_topics_tell_their_readers(spark: "SparkSession", *, transactional: bool) -> None:
    """Copies from held logs and epochs of batches are fenced, too."""
    app = _app(transactional=transactional)
    app.batch(every="1 minute")(daily)
    app.sink("days", "daily", fk.Kafka("days", key="id"))
    costs = {promise.sink: " ".join(promise.costs) for promise in promises_of(plan_application(app, spark, "deadbeef"))}
    told = {sink for sink, text in costs.items() if f"{sink} is written in transactions" in text}
    assert told == ({"counts", "draws", "days"} if transactional else set())
    assert {sink for sink, text in costs.items() if "5 ms later" in text} == ({"counts"} if transactional else set())


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("declared", "options", "transactional"), [(True, [], True), (False, [], False), (None, ["--wait"], True)]
)
def test_the_plan_says_that_an_output_is_fenced_and_what_it_costs(
    tmp_path: Path, *, declared: bool | None, options: list[str], transactional: bool
) -> None:
    file = tmp_path / "shop.py"
    file.write_text(textwrap.dedent(PROGRAM).format(transactional=declared))
    screen = CliRunner().invoke(main, ["plan", str(file), *options]).stdout
    why = CliRunner().invoke(main, ["plan", str(file), "--why", "out", *options]).stdout
    assert ("live, transactional, checkpoint every 10 s" in screen) == transactional
    assert ("isolation.level=read_committed" in why) == transactional


def test_a_choice_that_is_no_choice_is_refused() -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        fk.App("shop", transactional="yes")  # type: ignore[arg-type]  # a user may write it
    assert caught.value.condition == "OPTION_UNKNOWN"
    assert caught.value.parameters["option"] == "transactional"
