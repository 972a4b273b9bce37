"""Consistent cuts: the states that a requested rollback can restore, as one checkpoint of each unit.

The consistent cut as of a time T is the greatest consistent choice among the checkpoints that were made by T (Figure
6). A requested rollback computes all later results again, also those of deterministic units. So every unit goes back to
one of its checkpoints, and a reader may have read no more than its writer's checkpoint fixes. A failure may resume
later than the newest cut, because a deterministic unit sends the same results again. (The cuts of a batch are something
else: the ends of its epochs.)

These cuts have an order: as T decreases, no unit's checkpoint becomes newer. So the solver is started once. To find the
next older cut, the newest checkpoint of the last cut is removed from F*, and the solver continues from there.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from falkirk.recovery.protocol.kept import grouped_checkpoints
from falkirk.recovery.protocol.layout import Layout, cut
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.recovery.protocol.rollback import UnitCheckpoints, cuts_of, saved
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import CheckpointNumber, LogId
from falkirk.theory.metadata import Checkpoints
from falkirk.theory.rollback import Rollback, lower_until_stable, solve


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistentCut:
    """A consistent choice of checkpoints.

    Args:
        checkpoints: of each unit.
        at_s: when the newest of them was made; -inf if all are initial states.
        first_number, first_at_s: number and time of the oldest cut that equals this one: nothing was read and nothing
            was sent between the two.
    """

    checkpoints: Mapping[str, Checkpoint]
    at_s: float
    first_number: int
    first_at_s: float

    @property
    def number(self) -> int:
        """A number that grows from cut to cut. It depends on the checkpoints alone, so a cut keeps it."""
        return _number(self.checkpoints)

    @property
    def made_at_s(self) -> float | None:
        """`at_s`; None if all checkpoints are initial states."""
        return None if math.isinf(self.at_s) else self.at_s

    @property
    def since_s(self) -> float | None:
        """`first_at_s`, in the same way."""
        return None if math.isinf(self.first_at_s) else self.first_at_s

    @property
    def asked(self) -> dict[str, CheckpointNumber]:
        """The checkpoint of each unit, as `decide` takes it."""
        return {name: checkpoint.number for name, checkpoint in self.checkpoints.items()}

    def read_again(self, checkpoints: UnitCheckpoints) -> int:
        """Return how many records between this cut and the newest checkpoints the units read again."""
        return sum(
            _between(checkpoint.read, checkpoints[name][-1].read) for name, checkpoint in self.checkpoints.items()
        )

    def contradicts(self, layout: Layout, outside: Mapping[LogId, OffsetFrontier]) -> dict[str, int]:
        """Return, for each topic, how many published results a rollback to this cut may contradict, unless none.

        This is an upper bound, as in `Decision.contradicts`. Args: outside: as of `decide`.
        """
        found = {}
        for topic, out in sorted(outside.items()):
            writer = layout.writer(topic)
            assert writer is not None, "published results are written by a unit"
            found[layout.held.get(topic, topic)] = _between(cut(self.checkpoints[writer.name].sent, layout, topic), out)
        return {topic: number for topic, number in found.items() if number}


def consistent_cuts(layout: Layout, checkpoints: UnitCheckpoints) -> tuple[ConsistentCut, ...]:
    """Return all cuts that differ, newest first: one for each time at which one of these checkpoints was made.

    They end where a unit has no checkpoint that is old enough.
    """
    if not all(checkpoints[name] for name in layout.stages):
        return ()
    available = {name: saved(layout, name, checkpoints[name]) for name in layout.stages}
    made_at_s = {name: _made_at_s(checkpoints[name]) for name in layout.stages}
    groups = {name: _groups(checkpoints[name]) for name in layout.stages}
    solution = solve(layout.graph(cuts_of(layout, checkpoints)), layout.restorable() | available)
    found: list[ConsistentCut] = []
    last: list[int] = []
    #: 1 if the chain of a unit begins with an initial state that is not among its checkpoints.
    floors = {name: len(available[name].chain) - len(checkpoints[name]) for name in layout.stages}
    while min((places := _places(solution, available, floors)).values()) >= 0:
        chosen = {name: checkpoints[name][place] for name, place in places.items()}
        at_s = max(made_at_s[name][place] for name, place in places.items())
        number, equal = _number(chosen), [groups[name][place] for name, place in places.items()]
        if equal == last:
            found[-1] = replace(found[-1], first_number=number, first_at_s=at_s)
        else:
            found.append(ConsistentCut(checkpoints=chosen, at_s=at_s, first_number=number, first_at_s=at_s))
        if math.isinf(at_s):
            break
        last = equal
        newest = [name for name, place in places.items() if made_at_s[name][place] == at_s]
        for name in newest:
            older = bisect_left(made_at_s[name], at_s, hi=places[name])
            del available[name].chain[older - places[name] - 1 :]
        lower_until_stable(solution, solution.variables, [v for name in newest for v in solution.variables_of(name)])
    return tuple(found)


def _places(solution: Rollback, available: Mapping[str, Checkpoints], floors: Mapping[str, int]) -> dict[str, int]:
    """Return the index of each unit's chosen checkpoint; -1: it would have to go back further than its oldest
    checkpoint.

    The checkpoints after the chosen one are dropped from F*, because no older cut has them.
    """
    places = {}
    for name, mine in available.items():
        while mine.chain[-1] is not solution.chosen[name]:
            mine.chain.pop()
        places[name] = len(mine.chain) - 1 - floors[name]
    return places


def as_of(found: Sequence[ConsistentCut], at_s: float) -> ConsistentCut | None:
    """Return the cut as of a time, of all cuts, newest first. None: the oldest is newer."""
    return next((each for each in found if each.first_at_s <= at_s), None)


def cut_numbered(found: Sequence[ConsistentCut], number: int) -> ConsistentCut | None:
    """Return the cut with a number, or the one that equals it."""
    return next((each for each in found if each.first_number <= number <= each.number), None)


def _number(checkpoints: Mapping[str, Checkpoint]) -> int:
    return sum(checkpoint.number + 1 for checkpoint in checkpoints.values())


def _made_at_s(checkpoints: Sequence[Checkpoint]) -> list[float]:
    """Return when each checkpoint was made, oldest first. None is before an older one, even if a clock was set back."""
    return list(accumulate((-math.inf if p.made_at_s is None else p.made_at_s for p in checkpoints), max))


def _groups(checkpoints: Sequence[Checkpoint]) -> list[int]:
    """Return for each checkpoint the number of its group, within which nothing was read and nothing was sent."""
    return [i for i, group in enumerate(grouped_checkpoints(checkpoints)) for _ in group]


def _between(first: OffsetFrontier, last: OffsetFrontier) -> int:
    """Return the number of records in [first, last), in all partitions."""
    return sum(max(0, int(n - first.length(e))) for e, n in last.prefixes)
