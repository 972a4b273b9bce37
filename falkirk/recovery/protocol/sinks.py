"""Sinks: the sinks of held logs. The results for some of them may have to wait, and those for others do not.

A sink may not be settled, since somebody else writes there all the time. Then nobody knows which results it has. Or it
has lost results that the home no longer keeps. In both cases it is asked again after a while, until somebody mends it.
"""

from collections.abc import Callable, Mapping

from falkirk.errors import FalkirkError
from falkirk.recovery.protocol.down import PASSING_CONDITIONS, RETRY_S
from falkirk.recovery.protocol.layout import Layout
from falkirk.recovery.protocol.ports import LogsPort
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import LogId

#: Conditions that concern one sink.
_OF_ONE = PASSING_CONDITIONS | {"SINK_BEHIND"}


class Sinks:
    """The sinks of the held logs of one application. Args: say: receives a line when the results for one wait."""

    def __init__(self, layout: Layout, logs: LogsPort, clock: Callable[[], float], say: Callable[[str], None]) -> None:
        self._layout, self._logs, self._clock, self._say = layout, logs, clock, say
        #: The held logs whose results wait: when each sink is asked again, and why.
        self._waiting: dict[LogId, tuple[float, FalkirkError]] = {}

    @property
    def waiting(self) -> Mapping[str, FalkirkError]:
        """The regions whose results wait for a sink, with the reasons."""
        found = ((self._layout.writer(held), error) for held, (_, error) in self._waiting.items())
        return {writer.name: error for writer, error in found if writer is not None}

    def remains(self, held: LogId, released: OffsetFrontier) -> OffsetFrontier:
        """Return how much of a recorded release a sink still has. Raises: as the port.

        If the home no longer keeps the results that the sink has lost, nothing more is released to it.
        """
        sink = self._layout.held[held]
        found = self._ask(held, lambda: self._logs.remains(held, sink, released))
        return released if found is None else found

    def copied(self, held: LogId) -> OffsetFrontier | None:
        """Return how much of a held log is in its sink; None: its results wait. Raises: as the port."""
        sink = self._layout.held[held]
        known = self._waiting.get(held)
        if (
            known is not None and known[1].condition not in PASSING_CONDITIONS
        ):  # an answer about its contents mends nothing
            return self._logs.copied(held, sink)
        return self._ask(held, lambda: self._logs.copied(held, sink))

    def copy(self, held: LogId, first: OffsetFrontier, last: OffsetFrontier) -> OffsetFrontier | None:
        """Copy results to a sink; return how far the copy reaches. None: its results wait. Raises: as the port."""
        sink = self._layout.held[held]
        return self._ask(held, lambda: self._logs.copy(held, sink, first, last))

    def _ask(self, held: LogId, ask: Callable[[], OffsetFrontier]) -> OffsetFrontier | None:
        if held in self._waiting and self._clock() < self._waiting[held][0]:
            return None
        try:
            found = ask()
        except FalkirkError as error:
            if error.condition not in _OF_ONE:
                raise
            if held not in self._waiting:
                self._say(f"{self._layout.held[held]} receives no results: {error.condition}: {error.message}")
            self._waiting[held] = self._clock() + RETRY_S, error
            return None
        self._waiting.pop(held, None)
        return found
