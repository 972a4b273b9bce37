"""Tail positions: where to begin reading an output after a failure, to find all results that are already published.

A restore to commit m replays the input that commit m does not cover. So no output of that input may lie before the
position. The host observes positions at any time, and *afterwards* looks up the last commit c. Batch c + 1 may
be running by then, but batch c + 2 has not begun, since it starts after commit c + 1. So all results of this
incarnation before the position belong to batches ≤ c + 1. The position serves every restore to a commit m ≥ c + 1. The
opposite order would be wrong: between the look-up of the commit and the observation, the batch could end and the next
batch could write.

This argument assumes that the end of batch c + 1 does not change. But a replay cuts a batch without a commit again, and
the new batch may end before results that are already published. A batch of which Spark ran another attempt of a task
may end early too, since that attempt may have begun too late to read anything. Hence three more rules:
  - Positions that were observed under batch c + 1 are deleted if an incarnation opens before commit c + 1
    (`surviving`).
  - An incarnation observes no position until a commit covers all results that were published when it opened
    (`is_caught_up`).
  - Where Spark may run further attempts, positions that were observed under batch c + 1 are recorded only after commit
    c + 1, and only if no task had to run again until then (falkirk/runtime/spark/live/losses.py).

Twins are two queries that publish the same results. The other query may publish results of batch c + 2 before commit
c + 1, so commits say nothing. `Reached` has the rule for them: how far the published results reach into the input.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from falkirk.errors.conditions.theory import TAIL_POSITION_MISSING
from falkirk.theory.delivery import SourcePartition
from falkirk.theory.ids import BatchId, Offset

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPosition:
    """An observation of an output's ends. It serves restores to commits ≥ `valid_from_commit`.

    The observation with -1 is made before the first start, and serves all restores.
    """

    valid_from_commit: BatchId

    @classmethod
    def observed(cls, last_commit_seen_afterwards: BatchId) -> "TailPosition":
        """Return the position for which this was the last commit after the observation (-1: no commit yet)."""
        return cls(valid_from_commit=BatchId(last_commit_seen_afterwards + 1))


def surviving(positions: Iterable[TailPosition], restored_commit: BatchId) -> tuple[TailPosition, ...]:
    """Return the positions that are still true once an incarnation opens at `restored_commit`. Delete the others."""
    return tuple(p for p in positions if p.valid_from_commit <= restored_commit)


def is_caught_up(reached: Mapping[SourcePartition, Offset], covered: Mapping[SourcePartition, Offset]) -> bool:
    """Return whether a commit covers all input whose derivatives were published when the incarnation opened.

    Args: reached: the result of `touched` for the tail that it read; for a join, the newest records that former
        incarnations can have read. covered: the first offset that is not in the commit.
    """
    return all(offset < covered.get(place, 0) for place, offset in reached.items())


class Reached(Generic[T]):
    """Observations of the ends of an output that twins write, until a checkpoint covers them.

    Each has the ends, and the greatest offsets of the input whose results were published. These are read after the
    ends. So all results before the ends come from input up to these offsets, and the ends serve each checkpoint that
    covers it.
    """

    #: The number of observations that are kept. A checkpoint covers one after the longest batch.
    _MAX = 1_000

    def __init__(self) -> None:
        self._waiting: list[tuple[T, Mapping[SourcePartition, Offset]]] = []

    def add(self, ends: T, reached: Mapping[SourcePartition, Offset]) -> None:
        """Add an observation. Args: reached: read after the ends."""
        self._waiting.append((ends, dict(reached)))
        del self._waiting[: -self._MAX]

    def newest(self, covered: Mapping[SourcePartition, Offset]) -> T | None:
        """Return the newest ends that serve a checkpoint, and forget them and older ones; None: there are none.

        Args: covered: the first offset of each partition that the checkpoint does not cover.
        """
        for place in range(len(self._waiting) - 1, -1, -1):
            ends, reached = self._waiting[place]
            if is_caught_up(reached, covered):
                del self._waiting[: place + 1]
                return ends
        return None


def choose_position(positions: Iterable[TailPosition], restored_commit: BatchId) -> TailPosition:
    """Return the newest position that serves a restore to `restored_commit` (-1: from the beginning).

    Raises: UnrecoverableError: `TAIL_POSITION_MISSING`.
    """
    fitting = surviving(positions, restored_commit)
    if not fitting:
        raise TAIL_POSITION_MISSING.error(missing=("tail position",), restored_commit=restored_commit)
    return max(fitting, key=lambda p: p.valid_from_commit)
