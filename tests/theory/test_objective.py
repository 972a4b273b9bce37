"""The interval for a recovery objective: the formula against a simulated queue, its bounds, and what is remembered."""

import math

from hypothesis import assume, example, given
from hypothesis import strategies as st

from falkirk.theory.objective import (
    GUESSES,
    HALF_LIFE_S,
    LEAST_S,
    STANDBY_RESTART_S,
    STEP_S,
    Measurements,
    RecoveryRates,
    choose_interval,
    longest_interval_s,
    recovery_s,
)

GOALS_S = st.floats(0.5, 600)
RATES = st.builds(
    RecoveryRates,
    restart_s=st.floats(0.1, 60),
    replay_per_s=st.floats(1, 100_000),
    input_per_s=st.just(0.0) | st.floats(0.01, 100_000),
    checkpoint_s=st.floats(0, 5),
)
MEASURED = st.builds(
    Measurements,
    restart_s=st.none() | st.floats(0.1, 60),
    standby_restart_s=st.none() | st.floats(0.1, 60),
    replay_per_s=st.none() | st.floats(1, 100_000),
    input_per_s=st.none() | st.just(0.0) | st.floats(0.01, 100_000),
    checkpoint_s=st.none() | st.floats(0, 5),
)


def caught_up_at_s(interval_s: float, rates: RecoveryRates, step_s: float) -> float:
    """Play a death at the worst moment, step by step; return when no record waits any more."""
    waiting, now_s = rates.input_per_s * (interval_s + rates.checkpoint_s), 0.0
    while now_s < rates.restart_s or waiting > 0:
        waiting += rates.input_per_s * step_s
        if now_s >= rates.restart_s:
            waiting -= rates.replay_per_s * step_s
        now_s += step_s
    return now_s


@given(st.floats(1, 60), RATES)
def test_the_formula_is_that_of_a_queue(interval_s: float, rates: RecoveryRates) -> None:
    assume(rates.input_per_s < 0.8 * rates.replay_per_s and rates.restart_s < 20)
    expected_s = recovery_s(interval_s, rates)
    step_s = expected_s / 800
    assert math.isclose(caught_up_at_s(interval_s, rates, step_s), expected_s, rel_tol=0.02)


@given(GOALS_S, RATES)
@example(1.0, RecoveryRates(restart_s=1 / 3, replay_per_s=1.5, input_per_s=1.0, checkpoint_s=1e-200))
def test_the_longest_interval_uses_all_of_the_time_and_no_more(goal_s: float, rates: RecoveryRates) -> None:
    longest_s = longest_interval_s(goal_s, rates)
    if math.isinf(longest_s):
        assert rates.input_per_s == 0
        assert (longest_s > 0) == (rates.restart_s <= goal_s)
    elif longest_s >= 0:
        assert math.isclose(recovery_s(longest_s, rates), goal_s, rel_tol=1e-6)
        assert recovery_s(longest_s + 1, rates) > goal_s or rates.input_per_s < 1e-6 * rates.replay_per_s
    else:
        shortest_s = recovery_s(0.0, rates)
        assert shortest_s > goal_s or math.isclose(shortest_s, goal_s, rel_tol=1e-9), "at the border, rounding decides"


@given(GOALS_S, MEASURED, st.booleans(), st.sampled_from([2.0, 5.0]), st.sampled_from([10.0, 60.0]))
def test_a_choice_is_within_its_bounds_and_says_truly_whether_it_suffices(
    goal_s: float, known: Measurements, standby: bool, least_s: float, greatest_s: float
) -> None:
    choice = choose_interval(goal_s, known, standby=standby, least_s=least_s, greatest_s=greatest_s)
    assert least_s <= choice.interval_s <= greatest_s
    assert choice.is_met == (recovery_s(choice.interval_s, choice.rates) <= goal_s + 1e-9)
    if not choice.is_met:
        assert choice.interval_s == least_s, "if the goal can't be met, the least interval comes nearest to it"
    if choice.is_met and choice.interval_s < greatest_s:
        assert recovery_s(choice.interval_s + 2 * STEP_S, choice.rates) > goal_s, "no shorter than needed"


@given(GOALS_S, RATES, st.floats(1, 2))
def test_a_worse_number_never_makes_the_interval_longer(goal_s: float, rates: RecoveryRates, by: float) -> None:
    def interval_s(**worse: float) -> float:
        values = {
            "restart_s": rates.restart_s, "replay_per_s": rates.replay_per_s,
            "input_per_s": rates.input_per_s, "checkpoint_s": rates.checkpoint_s,
        }  # fmt: skip
        return choose_interval(goal_s, Measurements(**(values | worse)), standby=False).interval_s

    before_s = interval_s()
    assert interval_s(restart_s=rates.restart_s * by) <= before_s
    assert interval_s(replay_per_s=rates.replay_per_s / by) <= before_s
    assert interval_s(input_per_s=rates.input_per_s * by) <= before_s
    assert interval_s(checkpoint_s=rates.checkpoint_s * by) <= before_s


def test_guesses_stand_in_for_each_number_that_is_not_measured() -> None:
    cold, warm = (choose_interval(30.0, Measurements(), standby=standby) for standby in (False, True))
    assert (cold.rates, cold.measured) == (GUESSES, frozenset())
    assert (warm.rates.restart_s, warm.rates.replay_per_s) == (STANDBY_RESTART_S, GUESSES.replay_per_s)
    assert (cold.interval_s, cold.is_met) == (59.0, True), "18 s × 5 − 30 s − 1 s"
    known = Measurements(restart_s=9.0, replay_per_s=40.0)
    assert choose_interval(5.0, known, standby=False).measured == {"restart_s", "replay_per_s"}
    assert choose_interval(5.0, known, standby=True).measured == {"replay_per_s"}, (
        "the restart of another kind says nothing"
    )


def test_without_enough_speed_nothing_helps() -> None:
    slow = choose_interval(600.0, Measurements(restart_s=1.0, replay_per_s=10.0, input_per_s=10.0), standby=False)
    assert (slow.interval_s, slow.is_met, slow.as_json()["expected_s"]) == (LEAST_S, False, None)
    assert slow.as_json()["rates"]["replay_per_s"] == {"value": 10.0, "measured": True}


def test_bad_restarts_and_replays_count_at_once_and_good_ones_by_half() -> None:
    known = Measurements().with_restart(10.0, standby=False).with_replay(1000, 2.0)
    assert (known.restart_s, known.standby_restart_s, known.replay_per_s) == (10.0, None, 500.0)
    worse = known.with_restart(20.0, standby=False).with_replay(100, 2.0)
    assert (worse.restart_s, worse.replay_per_s) == (20.0, 50.0)
    better = known.with_restart(6.0, standby=False).with_replay(2000, 2.0).with_restart(2.0, standby=True)
    assert (better.restart_s, better.replay_per_s, better.standby_restart_s) == (8.0, 750.0, 2.0)


def test_a_least_rate_only_raises() -> None:
    assert Measurements().with_at_least(GUESSES.replay_per_s - 1) == Measurements()
    assert Measurements().with_at_least(GUESSES.replay_per_s + 1).replay_per_s == GUESSES.replay_per_s + 1
    assert Measurements(replay_per_s=10.0).with_at_least(11.0).replay_per_s == 11.0


def test_a_peak_is_forgotten_within_hours() -> None:
    known = Measurements().with_interval(800.0, None, 0.0)
    assert (known.input_per_s, known.checkpoint_s) == (800.0, None)
    later = known.with_interval(100.0, 0.5, HALF_LIFE_S)
    assert (later.input_per_s, later.checkpoint_s) == (400.0, 0.5)
    assert later.with_interval(None, None, 3 * HALF_LIFE_S).input_per_s == 100.0
    assert later.with_interval(300.0, 0.1, 2 * HALF_LIFE_S).input_per_s == 300.0
    assert known.with_interval(1.0, None, -5.0).input_per_s == 800.0, "a clock that was set back changes nothing"
