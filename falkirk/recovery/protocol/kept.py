"""Kept checkpoints: those that a failure, or a rollback on request, may ask for, of all that a region has.

All other kept data (records of logs, positions of outputs, marks) follows from these checkpoints.
"""

import math
from collections.abc import Callable, Sequence

from falkirk.recovery.protocol.layout import Layout
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.theory import history as rule
from falkirk.theory.frontier import Frontier
from falkirk.theory.history import History, Moment

NO_HISTORY = History()
#: If the newest checkpoint of a region is later than the one before by more than this, the time between them counts as
#: this time, or as the time between the looks at both by a clock that nobody can set. Somebody may have set the clock
#: forward, and the history would go with one checkpoint.
STEP_MAX_S = 600.0


class RetainedCheckpoints:
    """The kept checkpoints of each region. Args: as of `RecoveryProtocol`."""

    def __init__(
        self, layout: Layout, history: History, full_history: frozenset[str], clock: Callable[[], float]
    ) -> None:
        self._layout, self._history, self._full_history, self._clock = layout, history, full_history, clock
        #: The last answer for each region, because several ask in each turn.
        self._known: dict[str, tuple[tuple[Checkpoint, ...], Frontier, tuple[Checkpoint, ...]]] = {}
        #: For each region, when its newest checkpoint was made, the time that has passed at least, and when this
        #: checkpoint was seen first, by the clock of this process.
        self._times: dict[str, tuple[float, float, float]] = {}

    def of(self, name: str, checkpoints: tuple[Checkpoint, ...], watermark: Frontier) -> tuple[Checkpoint, ...]:
        """Return the checkpoints to keep up to the newest one within the retained watermark, oldest first.

        No failure goes back beyond that last one. The checkpoints before it are the history, and all checkpoints after
        it stay.
        """
        if name in self._full_history:
            return checkpoints
        known = self._known.get(name)
        if known is None or known[0] is not checkpoints or known[1] != watermark:
            known = self._known[name] = checkpoints, watermark, self._choose(name, checkpoints, watermark)
        return known[2]

    def _choose(self, name: str, checkpoints: tuple[Checkpoint, ...], watermark: Frontier) -> tuple[Checkpoint, ...]:
        within = [i for i, p in enumerate(checkpoints) if self._layout.metadata(name, p).frontier <= watermark]
        older, now_s = checkpoints[: max(within, default=0) + 1], _made_at_s(checkpoints[-1])
        sure_s = self._sure_s(name, now_s)
        return tuple(older[i] for i in rule.checkpoints_to_keep(_moments(older), self._history, now_s, sure_s))

    def _sure_s(self, name: str, now_s: float) -> float:
        """Return the time of a region's newest checkpoint if nobody has set the clock forward since the last one.

        It may be earlier than the right time, after a pause of the machine or the application, or a rollback. Then
        the history stays longer.
        """
        if name not in self._times or math.isinf(self._times[name][0]):  # the initial state has no time
            self._times[name] = now_s, now_s, self._clock()
        made_at_s, sure_s, seen_at_s = self._times[name]
        if now_s != made_at_s:
            seen_again_s = self._clock()
            passed_s = max(STEP_MAX_S, seen_again_s - seen_at_s)
            sure_s = min(sure_s + max(0.0, min(now_s - made_at_s, passed_s)), now_s)
            self._times[name] = now_s, sure_s, seen_again_s
        return sure_s


def grouped_checkpoints(checkpoints: Sequence[Checkpoint]) -> tuple[Sequence[Checkpoint], ...]:
    """Return the checkpoints in groups between which nothing was read and nothing was sent, oldest first."""
    return tuple(checkpoints[group.start : group.stop] for group in rule.moment_groups(_moments(checkpoints)))


def _moments(checkpoints: Sequence[Checkpoint]) -> list[Moment]:
    """Describe checkpoints for the rule. The initial state is no checkpoint: it equals none, and is older than all."""
    return [
        Moment(made_at_s=_made_at_s(p), content="start" if p.number < 0 else (p.read, p.sent, p.needs))
        for p in checkpoints
    ]


def _made_at_s(checkpoint: Checkpoint) -> float:
    return -math.inf if checkpoint.made_at_s is None else checkpoint.made_at_s
