"""The choice of a planned region: its bounds, its explanation, and the warning if the objective is out of reach."""

import json
from pathlib import Path

import pytest

import falkirk as fk
from falkirk.declare.policy import DEFAULT_POLICY, Lazy
from falkirk.errors import DefinitionError, GuaranteeError
from falkirk.plan.explain.preview import measurements_of
from falkirk.plan.objective import chosen, chosen_for, in_words, missed, objective_values, previewed
from falkirk.plan.plan import Plan
from falkirk.recovery.ownership.folder import open_home
from falkirk.theory.history import History
from falkirk.theory.objective import GREATEST_S, LEAST_S, Measurements
from tests.unit.regions import region_under

#: On such a machine no interval is too long.
QUICK = Measurements(
    restart_s=1.0, standby_restart_s=0.5, replay_per_s=100_000.0, input_per_s=1.0, checkpoint_s=0.1, at_s=5.0
)


def plan_of(*regions: object) -> Plan:
    return Plan(application="shop", regions=regions, batches=(), properties={}, state_partitions=2)  # type: ignore[arg-type]


def test_the_interval_and_the_objective_exclude_each_other() -> None:
    assert (fk.Lazy().interval, fk.Lazy() == fk.Lazy("10 seconds")) == ("10 seconds", True)
    assert fk.Lazy(recover_within="1 minute").goal_s == 60.0
    for given, other in (
        ({"interval": "".join(["10 ", "seconds"])}, "interval='10 seconds'"),
        ({"when": lambda epoch: True}, "when="),
    ):
        with pytest.raises(DefinitionError) as refused:
            fk.Lazy(recover_within="5 seconds", **given)  # type: ignore[arg-type]
        assert refused.value.condition == "OBJECTIVE_CONTRADICTED"
        assert refused.value.parameters == {"recover_within": "5 seconds", "other": other}
    with pytest.raises(DefinitionError) as refused:
        fk.Lazy(recover_within="soon")
    assert (refused.value.condition, refused.value.parameters["text"]) == ("DURATION_MALFORMED", "soon")


@pytest.mark.parametrize(
    ("twins", "waits", "least_s", "greatest_s"),
    [
        (False, False, LEAST_S, GREATEST_S),
        (True, False, 5.0, GREATEST_S),
        (False, True, LEAST_S, DEFAULT_POLICY.interval_s),  # else results would wait for longer than by default
    ],
)
def test_the_bounds_of_a_choice(twins: bool, waits: bool, least_s: float, greatest_s: float) -> None:
    soon, late = (region_under("r", Lazy(recover_within=s, twins=twins), waits=waits) for s in (0.1, 600))
    assert chosen(soon, QUICK).interval_s == least_s
    assert chosen(late, QUICK).interval_s == greatest_s
    assert chosen(soon, QUICK).slowest_interval_s == greatest_s


def test_other_regions_stay_as_they_are() -> None:
    region = region_under("plain", Lazy("7 seconds"))
    assert chosen(region, QUICK) is region
    assert (region.has_objective, region.slowest_interval_s, objective_values(region)) == (False, 7.0, None)
    assert list(previewed(region, {})) == []
    plan = plan_of(region)
    assert chosen_for(plan, lambda name: QUICK, standby=False) is plan
    both = chosen_for(
        plan_of(region, region_under("r", Lazy(recover_within=30))), {"r": QUICK}.__getitem__, standby=True
    )
    assert [each.interval_s for each in both.regions] == [7.0, GREATEST_S]
    assert both.regions[1].choice is not None
    assert both.regions[1].choice.rates.restart_s == 0.5


def test_spark_keeps_enough_for_the_longest_choice_of_another_region() -> None:
    """An interval may grow at the next start of one region, while others keep running."""
    often, chooses = region_under("often", Lazy("1 second")), chosen(region_under("r", Lazy(recover_within=5)))
    assert chooses.interval_s == LEAST_S
    assert plan_of(often, chooses).retained_of(often, History()) >= 4 * GREATEST_S


def test_an_objective_out_of_reach_is_a_warning_with_the_numbers() -> None:
    region = chosen(region_under("counts", Lazy(recover_within="5 seconds")), Measurements(restart_s=11.0))
    assert region.choice is not None
    warning = missed("counts", region.choice, region.where)
    assert isinstance(warning, GuaranteeError)
    assert (warning.condition, warning.parameters["region"], warning.parameters["goal"]) == (
        "OBJECTIVE_MISSED", "counts", "5 s"
    )  # fmt: skip
    assert (warning.parameters["interval"], warning.parameters["restart"]) == ("2 s", "11.0 s")
    assert warning.parameters["expected"] == "14.5 s", "11 s, and 1,000 × (2 + 1 + 11) records at 4,000 a second"
    assert "--standby" in str(warning)
    warm = chosen(region, Measurements(standby_restart_s=9.0), standby=True)
    assert warm.choice is not None
    kept = missed("counts", warm.choice)
    assert kept is not None
    assert (kept.condition, kept.parameters["restart"]) == ("OBJECTIVE_MISSED", "9.0 s, with a standby")
    assert "run --standby" not in str(kept), "it is kept already"
    slow = chosen(region, Measurements(replay_per_s=10.0, input_per_s=10.0))
    assert slow.choice is not None
    assert "as fast as it is replayed" in str(missed("counts", slow.choice))
    met = chosen(region, QUICK)
    assert met.choice is not None
    assert missed("counts", met.choice) is None


def test_a_choice_says_what_was_measured_and_what_is_a_guess() -> None:
    policy = Lazy(recover_within="30 seconds")
    region = chosen(region_under("counts", policy), Measurements(restart_s=2.34, input_per_s=4321.0))
    assert region.choice is not None
    assert in_words("counts", region.choice) == (
        "counts: a checkpoint every 2 s, to recover within 30 s. Restart 2.3 s (measured), replay 5,000 records/s "
        "(a guess), input 4,321 records/s (measured), checkpoint 1.0 s (a guess)."
    )
    described = json.loads(json.dumps(objective_values(region)))
    assert (described["recover_within_s"], described["interval_s"], described["met"]) == (30.0, 2.0, False)
    assert described["rates"]["input_per_s"] == {"value": 4321.0, "measured": True}
    assert described["rates"]["checkpoint_s"] == {"value": 1.0, "measured": False}
    assert described["warning"].startswith("OBJECTIVE_MISSED: 'counts' may need longer than 30 s")


def test_a_plan_reads_the_measurements_of_the_home_while_the_application_runs(tmp_path: Path) -> None:
    app = fk.App("shop", home=tmp_path / "home")
    plan = plan_of(region_under("counts", Lazy(recover_within=5)), region_under("plain", Lazy("7 seconds")))
    assert measurements_of(app, plan, app.home) == ({}, ()), "it has never run"
    with open_home(app.home, "shop") as home:
        home.store.record_measurements("counts", QUICK)
        home.store.record_measurements("plain", QUICK)
        assert measurements_of(app, plan, app.home) == ({"counts": QUICK}, ())
        assert measurements_of(app, plan_of(plan.regions[1]), app.home) == ({}, ()), "nothing is asked"
    known, (note,) = measurements_of(fk.App("other", home=app.home), plan, app.home)
    assert known == {}
    assert "guesses take their place" in note


def test_a_plan_shows_the_choice_without_a_standby_and_with_one() -> None:
    region = region_under("counts", Lazy(recover_within="5 seconds"))
    without, with_one, warning = previewed(region, {})
    assert without.startswith("counts: a checkpoint every 2 s, to recover within 5 s. Restart 12.0 s (a guess)")
    assert with_one.startswith("counts: with `falkirk run --standby`, every 4 s. Restart 3.0 s (a guess)")
    assert warning.startswith("Warning: OBJECTIVE_MISSED: 'counts' may need longer than 5 s")
    assert "shop.py:7" in warning
    assert len(list(previewed(region, {"counts": QUICK}))) == 2
