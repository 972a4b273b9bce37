"""History: the time to which a rollback can go is limited, and Spark keeps as many checkpoints."""

from collections.abc import Callable
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.plan.plan import Plan
from falkirk.plan.region import Region
from falkirk.theory.history import History
from falkirk.user_tools.commands.rollback import _between as between


@pytest.mark.parametrize("option", ["history", "spare_checkpoints"])
@pytest.mark.parametrize("number", [-1, 10_001, 10**12, 1.5, True, "2", None])
def test_so_many_checkpoints_can_be_kept(option: str, number: Any) -> None:
    make: Callable[..., object] = fk.App
    with pytest.raises(DefinitionError) as refused:
        make("a", **{option: number})
    assert refused.value.condition == "OPTION_UNKNOWN"
    assert refused.value.parameters.items() >= {"option": option, "value": number}.items()


@pytest.mark.parametrize("number", [0, 101, 10_000])
def test_any_number_between_is_taken(number: int) -> None:
    app = fk.App("a", history=number, spare_checkpoints=number)
    assert (app.history, app.spare_checkpoints) == (History(checkpoints=number), number)


@pytest.mark.parametrize(
    ("given", "span_s"),
    [("2 days", 172_800), ("6 hours", 21_600), (timedelta(minutes=5), 300), ("3650 days", 315_360_000)],
)
def test_a_history_may_be_a_time(given: Any, span_s: int) -> None:
    assert fk.App("a", history=given).history == History(span_s=span_s)


@pytest.mark.parametrize(
    "given", ["", "two days", "0 s", "-1 day", "3651 days", timedelta(0), timedelta(days=-1), "1e9 days"]
)
def test_no_other_time_is_taken(given: Any) -> None:
    with pytest.raises(DefinitionError) as refused:
        fk.App("a", history=given)
    assert refused.value.condition == "OPTION_UNKNOWN"
    assert refused.value.parameters.items() >= {"option": "history", "value": given}.items()


def test_spark_keeps_what_is_not_thinned_yet() -> None:
    """Files of older points are set aside, so that a time of days does not make Spark keep days of states."""
    planned = plan(10.0)
    assert 60 + 100 < planned.retained_of(planned.regions[0], History(span_s=86_400.0)) < 200
    assert planned.retained_of(planned.regions[0], History(span_s=30.0)) < 120


def test_a_span_of_time_names_its_day_once() -> None:
    noon_s = datetime(2026, 11, 24, 12).timestamp()
    assert between(noon_s, noon_s + 90).startswith("2026-11-24 12:00:00 to 12:01:30 ")
    assert between(noon_s, noon_s + 86_400).startswith("2026-11-24 12:00:00 to 2026-11-25 12:00:00 ")


def _region(interval_s: float, *, deterministic: bool) -> Region:
    made = cast(
        Region, SimpleNamespace(interval_s=interval_s, slowest_interval_s=interval_s, deterministic=deterministic)
    )
    cast(Any, made).awaited_s = lambda spare: Region.awaited_s(made, spare)
    return made


def plan(*intervals_s: float, spare: int = 0) -> Plan:
    regions = tuple(_region(interval_s, deterministic=i > 0) for i, interval_s in enumerate(intervals_s))
    return Plan(
        application="a", regions=regions, batches=(), properties={}, state_partitions=2, spare_checkpoints=spare
    )


@pytest.mark.parametrize("history", [0, 10, 100, 1000, 10_000])
def test_spark_keeps_the_history_and_more(history: int) -> None:
    """Before, Spark kept the last 100, so a rollback to a point that `falkirk history` showed could fail."""
    planned = plan(10.0)
    assert planned.retained_of(planned.regions[0], History(checkpoints=history)) > history + 100


def test_spark_keeps_what_belongs_to_a_checkpoint_of_a_region_that_saves_seldom() -> None:
    """A reader that saves every second rolls back to results of its writer, which saves every five minutes."""
    planned = plan(300.0, 1.0)
    slow, quick = planned.regions
    assert planned.retained_of(quick, History()) > 2 * 300
    assert planned.retained_of(slow, History()) < 200


def test_a_spare_checkpoint_is_waited_for_of_what_is_not_deterministic() -> None:
    planned = plan(4.0, 1.0, spare=1)
    assert [planned.awaited_s([region]) for region in planned.regions] == [8.0, 1.0]
    assert planned.awaited_s(planned.regions) == 9.0
