"""Backlog: tracks whether all input up to given ends of the sources is processed, and its results are published.

`falkirk run --once` ends then. The ends of the sources are given, and the others are computed along the graph:

    end(log)  =  where the log ends, once its writer has processed its own input up to the ends
    a region is done when its newest checkpoint covers the ends of all its inputs
    a held log is done when it is published up to its end

A region may read further than the ends, so the end of a log may be later than necessary. A reader of only the newest
epoch (`Stage.views`) does not wait for that log. It can't begin while the log has no epoch at all. If the log's writer
is done by then, the reader is *stuck*: only new input can help.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from falkirk.recovery.protocol.layout import Layout, Stage, cut
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.ids import LogId


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The goal of a backlog.

    Args: unfinished: the regions that are not done, or whose results are not published. stuck: the regions that can't
        be done, with the log whose first epoch each waits for. left: how many records of the sources are not processed.
    """

    unfinished: tuple[str, ...]
    stuck: Mapping[str, LogId]
    left: int


class Backlog:
    """The input of one application up to given ends.

    Args: ends: returns where a log ends now. sources: the ends of the sources.
    """

    def __init__(self, layout: Layout, ends: Callable[[LogId], OffsetFrontier], sources: OffsetFrontier) -> None:
        self._layout, self._ends_now = layout, ends
        #: The ends that are known.
        self._ends: dict[LogId, OffsetFrontier] = {log: cut(sources, layout, log) for log in layout.sources}
        self._covered: Mapping[str, OffsetFrontier] = {}

    def take_in(self, covered: Mapping[str, OffsetFrontier]) -> None:
        """Compute the ends again. Args: covered: for each region, the input in its newest checkpoint."""
        self._covered = covered
        for stage in self._layout.stages.values():  # upstream first
            if not self._is_done(stage):
                self._ends.pop(stage.output, None)  # a rollback may have taken it back
            elif stage.output not in self._ends:
                self._ends[stage.output] = cut(self._ends_now(stage.output), self._layout, stage.output)

    def ends(self, region: str) -> dict[LogId, OffsetFrontier]:
        """Return the known ends of a region's inputs."""
        return {log: self._ends[log] for log in _awaited(self._layout.stages[region]) if log in self._ends}

    def is_final(self, region: str) -> bool:
        """Return whether the ends of all inputs of a region are known, so that it need not wait for further input."""
        return all(log in self._ends for log in _awaited(self._layout.stages[region]))

    def waits(self, released: Mapping[LogId, OffsetFrontier], down: Collection[str]) -> Waits:
        """Return what is missing.

        Args: released: for each held log, how much of it is published. down: the regions that do not run any more.
            Nobody waits for them, nor for what depends on them.
        """
        stuck = {name: log for name in self._layout.stages if (log := self._missing_view(name)) is not None}
        hopeless = {*down, *stuck}
        for name, stage in self._layout.stages.items():
            writers = {w.name for log in _awaited(stage) if (w := self._layout.writer(log)) is not None}
            if writers & hopeless:
                hopeless.add(name)
        unfinished = [s.name for s in self._layout.stages.values() if not self._is_published(s, released)]
        return Waits(
            unfinished=tuple(name for name in unfinished if name not in hopeless),
            stuck=stuck,
            left=sum(self._left(log) for log in self._layout.sources),
        )

    def _is_done(self, stage: Stage) -> bool:
        if not self.is_final(stage.name):
            return False
        due = reduce(lambda a, b: a | b, self.ends(stage.name).values(), EMPTY)
        return due <= self._covered.get(stage.name, EMPTY)

    def _is_published(self, stage: Stage, released: Mapping[LogId, OffsetFrontier]) -> bool:
        if not self._is_done(stage) or stage.output not in self._ends:
            return False
        return stage.output not in self._layout.held or self._ends[stage.output] <= released[stage.output]

    def _missing_view(self, region: str) -> LogId | None:
        """Return the view without an epoch for which a region waits in vain."""
        stage = self._layout.stages[region]
        if self._is_done(stage):
            return None
        return next((view for view in stage.views if view in self._ends and self._ends[view].is_empty), None)

    def _left(self, source: LogId) -> int:
        return max((self._behind(source, stage) for stage in self._layout.readers(source)), default=0)

    def _behind(self, source: LogId, stage: Stage) -> int:
        covered = self._covered.get(stage.name, EMPTY)
        return sum(max(0, int(n) - int(covered.length(e))) for e, n in self._ends[source].prefixes)


def _awaited(stage: Stage) -> Iterator[LogId]:
    """Yield the inputs of which a region reads every record."""
    return (log for log in stage.inputs if log not in stage.views)
