"""Tail positions: from where an output must be read, after a failure, to learn what is out already.

A restore to commit m replays the input that commit m does not cover, so no output of that input may lie
before the position. Positions are observed at any time, and *afterwards* one looks at the last commit c.
Batch c + 1 may be running by then, but batch c + 2 has not begun: it starts after commit c + 1. So what this
incarnation has put before the position belongs to batches ≤ c + 1, and the position serves every restore to a
commit m ≥ c + 1. Looking at the commit first would be wrong: the batch could have ended, and the next one
written, in between.

That is so while batch c + 1 keeps its end. A batch without a commit is cut anew when it is replayed, and may
then end earlier than what it had released already. So may one of whose tasks Spark has run another attempt,
which may have come too late to read anything. Hence three more rules:
  - what was observed under batch c + 1 is forgotten when an incarnation opens before commit c + 1
    (`surviving`);
  - an incarnation observes nothing before a commit covers all that it found released when it opened
    (`is_caught_up`);
  - where Spark may run further attempts, what was observed under batch c + 1 is recorded once commit c + 1 is
    there and, afterwards, nothing had to be run again (falkirk/regions/losses.py).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from falkirk.errors import UnrecoverableError
from falkirk.theory.delivery import SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPosition:
    """An observation of an output's ends that serves restores to commits ≥ `valid_from_commit`.

    -1 is that made before the first start, which serves them all.
    """

    valid_from_commit: int

    @classmethod
    def observed(cls, last_commit_seen_afterwards: int) -> "TailPosition":
        """Return the position observed when, afterwards, this was the last commit (-1: none yet)."""
        return cls(valid_from_commit=last_commit_seen_afterwards + 1)


def surviving(positions: Iterable[TailPosition], restored_commit: int) -> tuple[TailPosition, ...]:
    """Return the positions still true once an incarnation opens at `restored_commit`: delete the others."""
    return tuple(p for p in positions if p.valid_from_commit <= restored_commit)


def is_caught_up(reached: Mapping[SourcePartition, int], covered: Mapping[SourcePartition, int]) -> bool:
    """Tell whether a commit covers all input whose derivatives were out already when the incarnation opened.

    Args: reached: as `touched` returns for the tail it read. covered: the first offset that is not in the
        commit.
    """
    return all(offset < covered.get(place, 0) for place, offset in reached.items())


def choose(positions: Iterable[TailPosition], restored_commit: int) -> TailPosition:
    """Return the newest position that serves a restore to `restored_commit` (-1: from the beginning).

    Raises: UnrecoverableError: `TAIL_POSITION_MISSING`.
    """
    fitting = surviving(positions, restored_commit)
    if not fitting:
        raise UnrecoverableError(
            "TAIL_POSITION_MISSING",
            f"no position is recorded from which to read what was released since batch {restored_commit}.",
            hint="The home's decisions are incomplete. Restore them from a backup, or use a new home.",
            missing=("tail position",),
        )
    return max(fitting, key=lambda p: p.valid_from_commit)
