"""History: decides which older checkpoints of a processor are kept for a requested rollback.

An idle processor makes a checkpoint every few seconds, and each equals the one before. If a history counts checkpoints,
equal ones push out the others within a minute. So checkpoints with nothing in between are *merged*: they count as one.
A history may also be a time instead of a number: recent checkpoints are all kept, older ones are *thinned*, the fewer
the older.

Thinning divides time into slots, and keeps the newest checkpoint of each slot: the state at the end of the slot. A
longer slot consists of whole shorter ones, and a slot counts only once all of it is old enough. So a checkpoint that
was dropped is never wanted again, and thinning often keeps the same checkpoints as thinning once. Slots are the same
for all processors, so the kept checkpoints of different processors lie near each other.

    >>> moments = [Moment(made_at_s=60.0 * minute, content=minute) for minute in range(24 * 60)]
    >>> len(kept(moments, History(checkpoints=3))), len(kept(moments, History(span_s=86_400)))
    (4, 122)
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

#: (after, slot): of checkpoints older than `after`, one per `slot` is kept. Every slot divides the next one. A slot is
#: at most a sixth of the age from which on it counts: so near is a kept checkpoint to any time.
Levels = tuple[tuple[float, float], ...]
LEVELS: Levels = ((600.0, 60.0), (3600.0, 600.0), (21_600.0, 3600.0), (604_800.0, 86_400.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The data kept for rollbacks on request, beyond the data that a failure may need.

    Args:
        checkpoints: this many points that differ.
        span_s: instead, the checkpoints of this many seconds before the newest one, thinned.
        levels: how they are thinned, from the youngest on.
    """

    checkpoints: int = 0
    span_s: float | None = None
    levels: Levels = LEVELS

    def batches(self, interval_s: float) -> int:
        """Return how many points in a row the history holds before it merges or thins any, one per interval."""
        if self.span_s is None:
            return self.checkpoints
        return math.ceil(min(self.span_s, self.levels[0][0]) / interval_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A checkpoint. made_at_s: -inf for the initial state. content: equal for checkpoints with nothing in between; it
    never returns to a former value."""

    made_at_s: float
    content: Hashable


def moment_groups(moments: Sequence[Moment]) -> tuple[range, ...]:
    """Return the groups of checkpoints with nothing in between, oldest first, as ranges of indexes."""
    starts = [i for i, m in enumerate(moments) if i == 0 or m.content != moments[i - 1].content]
    return tuple(range(a, b) for a, b in zip(starts, [*starts[1:], len(moments)], strict=True))


def checkpoints_to_keep(
    moments: Sequence[Moment], history: History, now_s: float | None = None, sure_s: float | None = None
) -> tuple[int, ...]:
    """Return the indexes of the checkpoints to keep, ascending. The newest is always one of them.

    Of each group the first and the last checkpoint stay: they say since when and until when nothing happened.

    Args: moments: oldest first. now_s: the time of the newest checkpoint there is, by default the last one of these.
        sure_s: if somebody may have set the clock forward, the present time without that, at most `now_s`. Checkpoints
        from before it are as old as at this time.
    """
    groups = moment_groups(moments)
    if not groups:
        return ()
    newest = len(moments) - 1
    if history.span_s is None:
        chosen: Sequence[range] = groups[-history.checkpoints - 1 :] if history.checkpoints else ()
    else:
        now_s = max(m.made_at_s for m in moments) if now_s is None else now_s
        began_s = [moments[g[0]].made_at_s for g in groups]
        ends_s = [now_s if sure_s is None or at_s > sure_s else sure_s for at_s in began_s]
        chosen = _thinned(groups, began_s, history.span_s, history.levels, ends_s)
    return tuple(sorted({newest, *(end for group in chosen for end in (group[0], group[-1]))}))


def _thinned(
    groups: Sequence[range], began_s: Sequence[float], span_s: float, levels: Levels, now_s: Sequence[float]
) -> Sequence[range]:
    """Return the newest group of each slot, and of those from before the span only the newest: the state at its start.

    A group belongs to the time at which it began, because it is the state until the next group begins.

    Args: now_s: the present time, for each group.
    """
    slots = {_slot(since_s, levels, now_s[i], i): i for i, since_s in enumerate(began_s)}
    newest = sorted(slots.values())
    before = [i for i in newest if began_s[i] <= now_s[i] - span_s]
    return [groups[i] for i in newest if i not in before[:-1]]


def _slot(at_s: float, levels: Levels, now_s: float, index: int) -> tuple[float, float]:
    """Return the longest slot that contains a time and has ended long enough ago. Recent ones have their own slots."""
    found = (0.0, float(index))
    for after_s, slot_s in () if math.isinf(at_s) else levels:
        number = math.floor(at_s / slot_s)
        if (number + 1) * slot_s <= now_s - after_s:
            found = (slot_s, number)
    return found
