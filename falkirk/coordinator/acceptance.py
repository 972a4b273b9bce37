"""Acceptance: up to where all that an application has read from a source is outside, in every sink that it leads to.

That is what a client of a push source waits for. It is composed along the graph:

    accepted(log)  =  what each of its readers has read by a checkpoint whose results are accepted
    accepted(sink topic)  =  all of it
    accepted(log that is held back), for its sink  =  what is released of it

Results leave on arrival, so "the results of what a checkpoint has read" are those before where the output ended when
the checkpoint was there: a batch of Real-time Mode flushes what it sent before it commits. A reader of the newest epoch
alone (`Stage.views`) is passed over: a view is state, and whoever reads it answers somebody else.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from falkirk.coordinator.layout import Layout, Stage, cut
from falkirk.coordinator.ports import Point
from falkirk.theory.frontier import TOP, OffsetFrontier


@dataclass(frozen=True, slots=True, kw_only=True)
class _Covered:
    """What a checkpoint had read and will not read again, and a position of the output behind all that came of it."""

    number: int
    read: OffsetFrontier
    sent: OffsetFrontier


class Acceptance:
    """Follows the checkpoints of one application.

    Args: ends: returns where a log ends now. sources: the logs of which it will be asked.
    """

    def __init__(self, layout: Layout, ends: Callable[[str], OffsetFrontier], sources: Iterable[str]) -> None:
        self._layout, self._ends = layout, ends
        self._covered: dict[str, tuple[_Covered, ...]] = {}
        for source in sources:
            self._follow(source)

    def _follow(self, log: str) -> None:
        """Follow who reads a log, and so on: what nobody asks about would only pile up."""
        for stage in self._readers(log):
            if stage.name not in self._covered:
                self._covered[stage.name] = ()
                self._follow(stage.output)

    def _readers(self, log: str) -> list[Stage]:
        return [stage for stage in self._layout.readers(log) if log not in stage.views]

    def take_in(self, points: Mapping[str, tuple[Point, ...]]) -> None:
        """Take in the checkpoints that there are, by region, oldest first. Those that were taken back are forgotten."""
        for name in self._covered:
            found = points[name]
            there = {point.number for point in found}
            kept = [c for c in self._covered[name] if c.number in there or (found and c.number < found[0].number)]
            last = kept[-1] if kept else None
            if found and (last is None or found[-1].number > last.number):
                newest = found[-1]
                read = newest.reads_from  # of what is sorted by event time, a part waits for its time to be over
                if last is None or last.read != read:
                    kept.append(_Covered(number=newest.number, read=read, sent=self._behind(name)))
            self._covered[name] = tuple(kept)

    def _behind(self, name: str) -> OffsetFrontier:
        output = self._layout.stages[name].output
        return TOP if output in self._layout.sinks else self._ends(output)

    def accepted(self, log: str, released: Mapping[str, OffsetFrontier]) -> OffsetFrontier:
        """Return how much of a log is accepted.

        Args: released: of each log that is held back, how much is in its sinks.
        """
        bounds = [self._by(stage, log, released) for stage in self._readers(log)]
        if log in self._layout.held:
            bounds.append(released[log])
        return reduce(lambda a, b: a & b, bounds, TOP)

    def _by(self, stage: Stage, log: str, released: Mapping[str, OffsetFrontier]) -> OffsetFrontier:
        """Return how much of a log is accepted as far as one of its readers goes."""
        below = self.accepted(stage.output, released)
        done = [c for c in self._covered[stage.name] if cut(c.sent, self._layout, stage.output) <= below]
        if not done:
            return OffsetFrontier.of({})
        self._covered[stage.name] = tuple(c for c in self._covered[stage.name] if c.number >= done[-1].number)
        return cut(done[-1].read, self._layout, log)
