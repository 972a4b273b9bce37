"""Acceptance: tracks up to which position of a source all results are published, in every sink that it leads to.

A client of a push source waits for this position. It is computed along the graph:

    accepted(log)  =  the input of its readers' last checkpoints whose results are accepted
    accepted(sink topic)  =  all of it
    accepted(held log), for its sink  =  its published part

Results are sent on arrival. So the results of a checkpoint are those before the end of the output at the time of the
checkpoint: a batch of Real-time Mode flushes its results before it commits. A reader of only the newest epoch
(`Stage.views`) is ignored, because a view is state, and its readers answer other requests.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from falkirk.recovery.protocol.layout import Layout, Stage, cut
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.theory.frontier import TOP, OffsetFrontier
from falkirk.theory.ids import CheckpointNumber, LogId


@dataclass(frozen=True, slots=True, kw_only=True)
class _Covered:
    """The input of a checkpoint that is never read again, and a position of the output after all its results."""

    number: CheckpointNumber
    read: OffsetFrontier
    sent: OffsetFrontier


class Acceptance:
    """Tracks the checkpoints of one application.

    Args: ends: returns where a log ends now. sources: the logs that `accepted` will be called for.
    """

    def __init__(self, layout: Layout, ends: Callable[[LogId], OffsetFrontier], sources: Iterable[LogId]) -> None:
        self._layout, self._ends = layout, ends
        self._covered: dict[str, tuple[_Covered, ...]] = {}
        for source in sources:
            self._follow(source)

    def _follow(self, log: LogId) -> None:
        """Track the readers of a log, and their readers. Checkpoints of other stages would only accumulate."""
        for stage in self._readers(log):
            if stage.name not in self._covered:
                self._covered[stage.name] = ()
                self._follow(stage.output)

    def _readers(self, log: LogId) -> list[Stage]:
        return [stage for stage in self._layout.readers(log) if log not in stage.views]

    def take_in(self, checkpoints: Mapping[str, tuple[Checkpoint, ...]]) -> None:
        """Add the newest checkpoint of each region, and forget those that were rolled back. They come oldest first."""
        for name in self._covered:
            found = checkpoints[name]
            there = {checkpoint.number for checkpoint in found}
            kept = [c for c in self._covered[name] if c.number in there or (found and c.number < found[0].number)]
            last = kept[-1] if kept else None
            if found and (last is None or found[-1].number > last.number):
                newest = found[-1]
                read = newest.reads_from  # of input sorted by event time, a part may wait until its time is over
                if last is None or last.read != read:
                    kept.append(_Covered(number=newest.number, read=read, sent=self._behind(name)))
            self._covered[name] = tuple(kept)

    def _behind(self, name: str) -> OffsetFrontier:
        output = self._layout.stages[name].output
        return TOP if output in self._layout.sinks else self._ends(output)

    def accepted(self, log: LogId, released: Mapping[LogId, OffsetFrontier]) -> OffsetFrontier:
        """Return how much of a log is accepted.

        Args: released: for each held log, how much of it is in its sinks.
        """
        bounds = [self._by(stage, log, released) for stage in self._readers(log)]
        if log in self._layout.held:
            bounds.append(released[log])
        return reduce(lambda a, b: a & b, bounds, TOP)

    def _by(self, stage: Stage, log: LogId, released: Mapping[LogId, OffsetFrontier]) -> OffsetFrontier:
        """Return how much of a log is accepted, considering only one of its readers."""
        below = self.accepted(stage.output, released)
        done = [c for c in self._covered[stage.name] if cut(c.sent, self._layout, stage.output) <= below]
        if not done:
            return OffsetFrontier.of({})
        self._covered[stage.name] = tuple(c for c in self._covered[stage.name] if c.number >= done[-1].number)
        return cut(done[-1].read, self._layout, log)
