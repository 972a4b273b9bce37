"""Tail positions: in every order of events, no output before the chosen position is replayed."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falkirk.errors import UnrecoverableError
from falkirk.theory.positions import TailPosition, choose_position, is_caught_up, surviving
from tests.strategies import examples

PLACE = (0, 0)


class Timeline:
    """A region with one input and one output partition, and one output per record. Its methods are the events.

    A batch without a commit leaves only its outputs: its replay may end at another place.
    Each argument removes one rule.
    """

    def __init__(self, *, commit_first: bool = False, keep_all: bool = False, observe_at_once: bool = False) -> None:
        self._commit_first, self._keep_all, self._observe_at_once = commit_first, keep_all, observe_at_once
        self.covered = {-1: 0}  # commit → the first offset that it does not cover
        self.log: list[int] = []  # the input offset of each output
        self._positions = {-1: 0}  # from which commit on it is valid → length of the log
        self._open(-1)

    def _open(self, restored: int) -> None:
        first = self._positions[choose_position(map(_position, self._positions), restored).valid_from_commit]
        #: Outputs before the position that the replay would publish again.
        self.overlooked = [o for o in self.log[:first] if o >= self.covered[restored]]
        self.released = frozenset(self.log[first:])
        self._reached = {PLACE: max(self.released)} if self.released else {}
        self._commit, self._next = restored, self.covered[restored]
        self._begun: int | None = None
        if not self._keep_all:
            kept = {p.valid_from_commit for p in surviving(map(_position, self._positions), restored)}
            self._positions = {v: p for v, p in self._positions.items() if v in kept}

    def process(self) -> None:
        if self._next not in self.released:
            self.log.append(self._next)
        self._next += 1

    def commit(self) -> None:
        self._commit += 1
        self.covered[self._commit] = self._next

    def begin_observation(self) -> None:
        self._begun = self._commit if self._commit_first else len(self.log)

    def end_observation(self) -> None:
        if self._begun is None:
            return
        commit, length = (self._begun, len(self.log)) if self._commit_first else (self._commit, self._begun)
        self._begun = None
        if self._observe_at_once or is_caught_up(self._reached, {PLACE: self.covered[commit]}):
            self._positions[TailPosition.observed(commit).valid_from_commit] = length

    def crash(self) -> None:
        self._open(max(self.covered))


def _position(valid_from_commit: int) -> TailPosition:
    return TailPosition(valid_from_commit=valid_from_commit)


Event = Callable[[Timeline], None]
EVENTS: dict[str, Event] = {
    "process": Timeline.process,
    "commit": Timeline.commit,
    "begin": Timeline.begin_observation,
    "end": Timeline.end_observation,
    "crash": Timeline.crash,
}
weighted = st.sampled_from(["process", "process", "commit", "begin", "end", "end", "crash"])


def play(timeline: Timeline, events: list[str]) -> Timeline:
    for name in events:
        EVENTS[name](timeline)
    return timeline


@settings(max_examples=examples(500))
@given(st.lists(weighted, max_size=60))
def test_no_output_that_will_be_replayed_is_overlooked(events: list[str]) -> None:
    timeline = Timeline()
    for name in [*events, "crash"]:
        EVENTS[name](timeline)
        assert timeline.overlooked == []
    assert len(timeline.log) == len(set(timeline.log)), "released twice"


def test_the_position_moves_on() -> None:
    """Otherwise a position that stays at the beginning would pass the test above."""
    timeline = play(Timeline(), ["process", "begin", "end", "commit", "process", "crash"])
    assert timeline.covered == {-1: 0, 0: 1}
    assert timeline.released == {1}


def test_looking_at_the_commit_first_overlooks_outputs() -> None:
    events = ["process", "commit", "begin", "process", "commit", "process", "end", "crash"]
    assert play(Timeline(commit_first=True), events).overlooked == [2]
    assert play(Timeline(), events).overlooked == []


def test_a_position_of_a_batch_that_was_cut_anew_must_be_forgotten() -> None:
    """Batch 0 published two outputs, a position was observed, and the replay of batch 0 ended after one output."""
    events = ["process", "process", "begin", "end", "crash", "process", "commit", "crash"]
    assert play(Timeline(keep_all=True), events).overlooked == [1]
    assert play(Timeline(), events).overlooked == []


def test_observing_before_having_caught_up_overlooks_outputs() -> None:
    """Batch 0 published two outputs. Its replay ended after one, and a stalled source left batch 1 empty."""
    events = ["process", "process", "crash", "process", "commit", "begin", "end", "commit", "crash"]
    assert play(Timeline(observe_at_once=True), events).overlooked == [1]
    assert play(Timeline(), events).overlooked == []


@given(st.lists(st.integers(-1, 9).map(_position)), st.integers(-1, 9))
def test_the_newest_that_serves_is_chosen_or_it_is_said(positions: list[TailPosition], restored: int) -> None:
    fitting = surviving(positions, restored)
    if fitting:
        assert choose_position(positions, restored) == max(fitting, key=lambda p: p.valid_from_commit)
    else:
        with pytest.raises(UnrecoverableError) as error:
            choose_position(positions, restored)
        assert error.value.condition == "TAIL_POSITION_MISSING"
        assert error.value.parameters["missing"] == ("tail position",)
