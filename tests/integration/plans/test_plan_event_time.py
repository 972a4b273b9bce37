"""Plans with event time: the inference for `dropDuplicates`, and the mistakes that Falkirk reports."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from tests.integration.planning import names, refused

SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT, text STRING"
Planned = Callable[..., Plan]


@pytest.fixture
def first(plan: Planned) -> Planned:
    """Plan the first record of each id, after the steps of a body."""

    def planned(body: Callable[[fk.Stream], fk.Stream], *, keys: tuple[str, ...] = ("id",), **options: Any) -> Plan:
        return plan(
            lambda s: body(s).withWatermark("at", "10 seconds").dropDuplicates(list(keys)),
            **{"key": "id", "schema": SCHEMA, **options},
        )

    return planned


def test_results_leave_on_arrival_and_the_plan_says_why(first: Planned) -> None:
    made = first(lambda s: s.where("n > 1"))
    (region,) = made.regions
    (promise,) = promises_of(made)
    assert promise.release == "on arrival"
    assert region.stateful
    assert region.deterministic
    (reason,) = [each for each in promise.reasons if each.kind == "event-time"]
    assert "`id`" in reason.text
    assert "by 10 s" in reason.text
    assert not made.properties["counts"].differs
    assert made.properties["counts"].ordered == ("dropDuplicates() keeps the first record",)
    assert region.fingerprint["keyed step"] == "dropDuplicates((id), at, 10 s, 60 s ahead)"


def test_a_value_that_differs_matters_only_in_the_key_the_time_or_the_rows(first: Planned) -> None:
    (carried,) = first(lambda s: s.withColumn("drawn", F.expr("uuid()"))).regions
    assert carried.deterministic
    assert carried.varying[0].operations == ("Uuid",)
    later = "at + make_interval(0, 0, 0, 0, 0, 0, rand())"
    for made in (
        first(lambda s: s.withColumn("drawn", F.expr("uuid()")), keys=("id", "drawn")),
        first(lambda s: s.withColumn("at", F.expr(later))),
        first(lambda s: s.where("rand() < 0.5")),
    ):
        (promise,) = promises_of(made)
        assert promise.release == "behind a checkpoint"


def test_a_state_is_bound_to_the_key_and_the_time_and_not_to_other_columns(first: Planned) -> None:
    def decided(body: Callable[[fk.Stream], fk.Stream]) -> str:
        return first(body).regions[0].fingerprint["decided by"]

    plain = decided(lambda s: s)
    assert decided(lambda s: s.withColumn("text", F.upper("text"))) == plain
    assert decided(lambda s: s.where("n > 1")) != plain
    assert decided(lambda s: s.withColumn("at", F.expr("at - interval 1 day"))) != plain


def test_a_keyed_step_of_another_key_after_it_has_a_hop(first: Planned, plan: Planned) -> None:
    made = plan(
        lambda s: s.withWatermark("at", "10 seconds").dropDuplicates(["id", "n"]).groupBy("n").count(),
        key="id", schema=SCHEMA,
    )  # fmt: skip
    assert names(made) == ["counts-by-n", "out"]


def test_mistakes_are_reported_at_their_line(first: Planned) -> None:
    error = refused(lambda: first(lambda s: s, keys=("id", "nope")), "COLUMN_MISSING", line=_line("dropDuplicates"))
    assert "nope" in str(error)
    with pytest.raises(fk.DefinitionError, match="needs TIMESTAMP") as caught:
        first(lambda s: s.withColumn("at", F.col("text")))
    assert caught.value.condition == "STEP_INVALID"
    with pytest.raises(fk.DefinitionError) as caught:
        first(lambda s: s.drop("at"))
    assert caught.value.condition == "COLUMN_MISSING"


def _line(mark: str) -> int:
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if f".{mark}(list" in line)
