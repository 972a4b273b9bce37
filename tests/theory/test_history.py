"""The points that a history keeps: merged where nothing came in between, then thinned by age."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from falkirk.theory import history as rule
from falkirk.theory.history import LEVELS, History, Moment, checkpoints_to_keep, moment_groups

SMALL = ((5.0, 2.0), (20.0, 10.0), (60.0, 30.0))
#: (seconds since the point before, whether anything came in between)
steps = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0, 40.0]), st.booleans()), min_size=1, max_size=60)
histories = st.one_of(
    st.integers(0, 6).map(lambda n: History(checkpoints=n)),
    st.sampled_from([1.0, 15.0, 50.0, 200.0]).map(lambda s: History(span_s=s, levels=SMALL)),
)


def moments(made: list[tuple[float, bool]]) -> list[Moment]:
    times = accumulate(pause_s for pause_s, _ in made)
    contents = accumulate(int(new) for _, new in made)
    return [Moment(made_at_s=t, content=c) for t, c in zip(times, contents, strict=True)]


def chosen(checkpoints: list[Moment], history: History, now_s: float | None = None) -> list[Moment]:
    return [checkpoints[i] for i in checkpoints_to_keep(checkpoints, history, now_s)]


def test_equal_points_of_an_idle_processor_push_out_no_others() -> None:
    """Ten points in the last minute are equal, so ten others are kept beside them."""
    checkpoints = [Moment(made_at_s=10.0 * i, content=min(i, 20)) for i in range(60)]
    assert {p.content for p in chosen(checkpoints, History(checkpoints=10))} == set(range(10, 21))


def test_two_days_keep_all_of_the_last_minutes_and_some_of_the_last_hours() -> None:
    checkpoints = [Moment(made_at_s=10.0 * i, content=i) for i in range(4 * 8640)]
    now_s = checkpoints[-1].made_at_s
    ages_s = sorted(now_s - p.made_at_s for p in chosen(checkpoints, History(span_s=172_800)))
    assert ages_s[:60] == [10.0 * i for i in range(60)]
    assert len(ages_s) < 250
    assert 172_800 <= ages_s[-1] < 172_800 + 3600 * 2


def test_the_first_and_the_last_of_equal_points_stay() -> None:
    checkpoints = [Moment(made_at_s=float(i), content=i // 10) for i in range(30)]
    assert checkpoints_to_keep(checkpoints, History(checkpoints=2)) == (0, 9, 10, 19, 20, 29)
    assert checkpoints_to_keep(checkpoints, History()) == (29,)


def test_slots_nest() -> None:
    for levels in (LEVELS, SMALL):
        assert all(b[1] % a[1] == 0 and a[0] < b[0] for a, b in pairwise(levels))
        assert all(after_s >= 2 * slot_s for after_s, slot_s in levels)


@given(steps, histories)
def test_the_newest_is_never_lost_and_equal_ones_are_one(made: list[tuple[float, bool]], history: History) -> None:
    checkpoints = moments(made)
    found = checkpoints_to_keep(checkpoints, history)
    assert found[-1] == len(checkpoints) - 1
    assert list(found) == sorted(set(found))
    if history.span_s is None:
        assert len({checkpoints[i].content for i in found}) == min(
            history.checkpoints + 1, len(moment_groups(checkpoints))
        )


@given(steps, histories)
def test_thinning_again_changes_nothing(made: list[tuple[float, bool]], history: History) -> None:
    once = chosen(moments(made), history)
    assert chosen(once, history) == once


@given(steps, steps, histories)
@example([(0.0, True), (10.0, True)], [(40.0, True), (0.5, False)], History(span_s=15.0, levels=SMALL))
def test_what_was_dropped_is_never_wanted_again(
    made: list[tuple[float, bool]], later: list[tuple[float, bool]], history: History
) -> None:
    """A history that drops points on the way keeps the same points as one that has kept all until now."""
    everything = moments([*made, *later])
    checkpoints: list[Moment] = []
    for moment in everything:
        checkpoints = chosen([*checkpoints, moment], history)
    assert checkpoints == chosen(everything, history)


def _gap_s(age_s: float, levels: rule.Levels) -> float:
    return max((slot_s for after_s, slot_s in levels if age_s >= after_s), default=0.0)


@given(steps, st.sampled_from([15.0, 50.0, 200.0]), st.floats(0.0, 1.0))
def test_a_rollback_to_any_time_finds_a_point_near_it(
    made: list[tuple[float, bool]], span_s: float, share: float
) -> None:
    """The newest kept point that is not newer has at least the state at a slot's length before that time."""
    checkpoints = moments(made)
    now_s = checkpoints[-1].made_at_s
    age_s = min(span_s, now_s - checkpoints[0].made_at_s) * share
    left = chosen(checkpoints, History(span_s=span_s, levels=SMALL))

    def state(found: list[Moment], at_s: float) -> object:
        return max((m.content for m in found if m.made_at_s <= at_s), default=-1)  # type: ignore[type-var]

    at_s = now_s - age_s
    assert state(checkpoints, at_s) >= state(left, at_s) >= state(checkpoints, at_s - _gap_s(age_s, SMALL))  # type: ignore[operator]


@given(steps, st.sampled_from([1.0, 15.0, 50.0]))
@example([(0.0, False), (1.0, False), (3.0, False), (3.0, True), (40.0, False), (3.0, False)], 50.0)
def test_the_state_near_the_begin_of_the_span_is_kept(made: list[tuple[float, bool]], span_s: float) -> None:
    """The point that is kept of the slot with the begin may be newer than the begin, by less than the slot."""
    checkpoints = moments(made)
    oldest_s = checkpoints[-1].made_at_s - span_s
    has_before = any(p.made_at_s <= oldest_s for p in checkpoints)
    left = chosen(checkpoints, History(span_s=span_s, levels=SMALL))
    assert has_before or all(p.made_at_s > oldest_s for p in left)
    assert not has_before or any(p.made_at_s <= oldest_s + _gap_s(span_s, SMALL) for p in left)


@pytest.mark.parametrize("broken", [((5.0, 2.0), (20.0, 7.0)), ((5.0, 3.0), (20.0, 10.0), (60.0, 25.0))])
def test_slots_that_do_not_nest_would_want_a_dropped_point_again(broken: rule.Levels) -> None:
    """The planted bug of these tests: without nested slots, the kept points depend on the number of thinnings."""
    everything = [Moment(made_at_s=0.5 * i, content=i) for i in range(400)]
    history = History(span_s=190.0, levels=broken)
    checkpoints: list[Moment] = []
    for moment in everything:
        checkpoints = chosen([*checkpoints, moment], history)
    assert checkpoints != chosen(everything, history)
