"""Marks: record how much output of a deterministic live region belongs to which input, longer than its checkpoints do.

The region may lose any checkpoint, because a replay sends the same results again. But only the checkpoint says up to
which position the output is fixed (φ). If both were lost, φ would fall back to an older checkpoint, and all readers
would go back with it. A sink after them would have to invalidate published results that a replay confirms.

A mark (read, sent) says: no record before `sent` was caused by input beyond `read`. This stays true without the
checkpoint and after any rollback, because logs only grow and later records lie after `sent`. Each mark is true by
itself, so φ(f) is the union of all marks within f. Whether the region can go back to f is another question. For a
deterministic region the answer depends only on the input. For other regions it depends on the lost state, so they leave
no marks.

A mark is recorded before a result that depends on it is released.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from falkirk.recovery.decision_store import Store
from falkirk.recovery.protocol.layout import Layout
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.ids import CheckpointNumber, Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A position of the input and the position in the output up to which it is fixed; see `Checkpoint`."""

    read: OffsetFrontier
    sent: OffsetFrontier


def fixed_by(marks: Iterable[Mark], read: OffsetFrontier) -> OffsetFrontier:
    """Return the output that is fixed by the input `read`, according to the marks: φ."""
    return reduce(lambda found, mark: found | mark.sent if mark.read <= read else found, marks, EMPTY)


class Marks:
    """The marks of one application.

    Args: live: the regions whose checkpoints Spark may find damaged.
    """

    def __init__(self, layout: Layout, store: Store, live: Collection[str]) -> None:
        self._store = store
        #: The regions that leave marks. Readers of an output topic outside the application go back by themselves.
        self._names = [
            n
            for n, s in layout.stages.items()
            if s.deterministic and not s.is_cut and n in live and s.output in layout.hops
        ]
        self._marks = {name: tuple(map(_mark, store.marks(name))) for name in self._names}
        self._unrecorded: set[str] = set()
        #: The checkpoints that were taken in last: each turn has the same ones.
        self._taken: dict[str, dict[CheckpointNumber, Checkpoint]] = {}

    @property
    def known(self) -> Mapping[str, Sequence[Mark]]:
        """All marks by region, recorded or not."""
        return self._marks

    def take_in(self, name: str, checkpoints: Sequence[Checkpoint]) -> None:
        """Add the marks that checkpoints of a region give."""
        if name not in self._marks:
            return
        taken = self._taken.get(name, {})
        self._taken[name] = {checkpoint.number: checkpoint for checkpoint in checkpoints}
        for checkpoint in checkpoints:
            if taken.get(checkpoint.number) is checkpoint:
                continue
            if not checkpoint.sent <= fixed_by(self._marks[name], checkpoint.read):
                self._marks[name] += (Mark(read=checkpoint.read, sent=checkpoint.sent),)
                self._unrecorded.add(name)

    def record(self, kept: Callable[[str], Sequence[Checkpoint]]) -> None:
        """Record the new marks.

        Args: kept: returns the checkpoints of a region that may still be needed, up to the newest that no failure goes
            behind. Nobody needs the single marks between two of these, so they are merged.
        """
        for name in sorted(self._unrecorded):
            marks = _merged(self._marks[name], [checkpoint.read for checkpoint in kept(name)])
            self._store.record_marks(name, [(m.read.positions(), m.sent.positions()) for m in marks])
            self._marks[name] = marks
            self._unrecorded.discard(name)


def _merged(marks: Iterable[Mark], reads: Sequence[OffsetFrontier]) -> tuple[Mark, ...]:
    """Return marks that give the same φ for each of these ascending frontiers, and for all beyond the last one.

    Marks that none of the frontiers distinguishes become one.
    """
    groups: dict[int, list[Mark]] = {}
    for mark in marks:
        groups.setdefault(bisect_left(reads, True, key=mark.read.__le__), []).append(mark)
    beyond = groups.pop(len(reads), [])
    return (*(reduce(_union, groups[i]) for i in sorted(groups)), *beyond)


def _union(a: Mark, b: Mark) -> Mark:
    return Mark(read=a.read | b.read, sent=a.sent | b.sent)


def _mark(recorded: tuple[Positions, Positions]) -> Mark:
    read, sent = map(OffsetFrontier.before, recorded)
    return Mark(read=read, sent=sent)
