"""Tail positions: from where an output must be read, after a failure, to learn what is out already.

A restore to commit m replays batch m + 1, so the tail must be read from a position observed no later than that batch's start.
Positions are observed at any time, and *afterwards* one looks at the last commit c. Batch c + 1 may be running by then, but
batch c + 2 has not begun: it starts after commit c + 1. So the position serves every restore to a commit m ≥ c + 1. Looking
at the commit first would be wrong: the batch could have ended, and the next one written, in between.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from falkirk.errors import UnrecoverableError


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPosition:
    """An observation of an output's ends that serves restores to commits ≥ `valid_from_commit` (-1: before the first start)."""

    valid_from_commit: int

    @classmethod
    def observed(cls, last_commit_seen_afterwards: int) -> "TailPosition":
        """Return the position observed when, afterwards, this was the last commit (-1: none yet)."""
        return cls(valid_from_commit=last_commit_seen_afterwards + 1)


def choose(positions: Iterable[TailPosition], restored_commit: int) -> TailPosition:
    """Return the newest position that serves a restore to `restored_commit` (-1: from the beginning).

    Raises: UnrecoverableError: `TAIL_POSITION_MISSING`.
    """
    fitting = [p for p in positions if p.valid_from_commit <= restored_commit]
    if not fitting:
        raise UnrecoverableError(
            "TAIL_POSITION_MISSING",
            f"no position is recorded from which to read what has been released since batch {restored_commit}.",
            hint="The home's decisions are incomplete. Restore them from a backup, or use a new home.",
            missing=("tail position",),
        )
    return max(fitting, key=lambda p: p.valid_from_commit)
