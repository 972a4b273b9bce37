"""Positions of twins: in every order of events, no output before the chosen position is replayed."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from falkirk.theory.ids import BatchId, Offset
from falkirk.theory.positions import Reached, TailPosition, choose_position, is_caught_up, surviving

PLACE = (0, 0)


class Timeline:
    """Two queries with one input and one output partition, and one output per record. Its methods are the events.

    Only the first query's commits count.

    Args: by_commits: use the rule for one query instead. marks_first: read how far the outputs reach before their end.
    """

    def __init__(self, *, by_commits: bool = False, marks_first: bool = False) -> None:
        self._by_commits, self._marks_first = by_commits, marks_first
        self.covered = {-1: 0}
        self.log: list[int] = []
        self._positions = {-1: 0}
        self._open(-1)

    def _open(self, restored: int) -> None:
        first = self._positions[choose_position(map(_position, self._positions), BatchId(restored)).valid_from_commit]
        #: Outputs before the position that the replay would publish again.
        self.overlooked = [o for o in self.log[:first] if o >= self.covered[restored]]
        self.released = frozenset(self.log[first:])
        self._before = {PLACE: Offset(max(self.released))} if self.released else {}
        self._commit, self._mark, self._seen = restored, -1, None
        self._first, self._twin = self.covered[restored], None
        self._reached = Reached[int]()
        kept = {p.valid_from_commit for p in surviving(map(_position, self._positions), BatchId(restored))}
        self._positions = {v: p for v, p in self._positions.items() if v in kept}

    def _send(self, offset: int) -> None:
        if offset not in self.released and offset > self._mark:
            self.log.append(offset)
            self._mark = offset

    def process(self) -> None:
        self._send(self._first)
        self._first += 1

    def process_in_twin(self) -> None:
        if self._twin is not None:
            self._send(self._twin)
            self._twin += 1

    def begin_twin(self) -> None:
        self._twin = self.covered[self._commit]

    def commit(self) -> None:
        self._commit += 1
        self.covered[self._commit] = self._first

    def begin_observation(self) -> None:
        self._seen = self._mark if self._marks_first else len(self.log)

    def end_observation(self) -> None:
        if self._seen is None:
            return
        seen, self._seen = self._seen, None
        mark, length = (seen, len(self.log)) if self._marks_first else (self._mark, seen)
        if not is_caught_up(self._before, {PLACE: Offset(self.covered[self._commit])}):
            return
        if self._by_commits:
            self._positions[self._commit + 1] = length
            return
        self._reached.add(length, {PLACE: Offset(mark)} if mark >= 0 else {})
        serving = self._reached.newest({PLACE: Offset(self.covered[self._commit])})
        if serving is not None:
            self._positions[self._commit] = serving

    def crash(self) -> None:
        self._open(max(self.covered))


def _position(valid_from_commit: int) -> TailPosition:
    return TailPosition(valid_from_commit=BatchId(valid_from_commit))


EVENTS: dict[str, Callable[[Timeline], None]] = {
    "process": Timeline.process,
    "twin": Timeline.process_in_twin,
    "begin twin": Timeline.begin_twin,
    "commit": Timeline.commit,
    "begin": Timeline.begin_observation,
    "end": Timeline.end_observation,
    "crash": Timeline.crash,
}
WEIGHTED = ["process", "process", "twin", "twin", "begin twin", "commit", "begin", "end", "end", "crash"]


def play(timeline: Timeline, events: list[str]) -> Timeline:
    for name in events:
        EVENTS[name](timeline)
    return timeline


@settings(max_examples=1000)
@given(st.lists(st.sampled_from(WEIGHTED), max_size=80))
def test_no_output_that_will_be_replayed_is_overlooked(events: list[str]) -> None:
    timeline = Timeline()
    for name in [*events, "crash"]:
        EVENTS[name](timeline)
        assert timeline.overlooked == []
    assert len(timeline.log) == len(set(timeline.log)), "released twice"


def test_the_position_moves_on() -> None:
    """Otherwise a position that stays at the beginning would pass the test above."""
    timeline = play(Timeline(), ["process", "commit", "begin", "end", "process", "crash"])
    assert timeline.released == {1}


def test_commits_of_the_first_query_say_nothing_about_the_twin() -> None:
    """The twin publishes a result of batch 1 while batch 0 of the first query still runs."""
    events = ["begin twin", "twin", "twin", "begin", "end", "process", "commit", "crash"]
    assert play(Timeline(by_commits=True), events).overlooked == [1]
    assert play(Timeline(), events).overlooked == []


def test_marks_that_are_read_before_the_ends_overlook_outputs() -> None:
    events = ["begin twin", "process", "commit", "begin", "twin", "twin", "end", "crash"]
    assert play(Timeline(marks_first=True), events).overlooked == [1]
    assert play(Timeline(), events).overlooked == []
