"""Marks: record how much output of a deterministic live region belongs to which input, longer than its checkpoints do.

The region may lose any checkpoint, because a replay sends the same results again. But only the checkpoint says up to
which position the output is fixed (φ). If both were lost, φ would fall back to an older checkpoint, and all readers
would go back with it. A sink after them would have to take back published results that a replay confirms.

A mark (read, sent) says: no record before `sent` was caused by input beyond `read`. This stays true without the
checkpoint and after any rollback, because logs only grow and later records lie after `sent`. Each mark is true by
itself, so φ(f) is the union of all marks within f. Whether the region can go back to f is another question. For a
deterministic region the answer depends only on the input. For other regions it depends on the lost state, so they leave
no marks.

A mark is recorded before a result that depends on it is released.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from falkirk.protocol.layout import Layout
from falkirk.protocol.ports import Point
from falkirk.store import Positions, Store
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.times import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A position of the input and the position in the output up to which it is fixed; see `Point`."""

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
        self._names = [n for n, s in layout.stages.items() if s.deterministic and n in live and s.output in layout.hops]
        self._marks = {name: tuple(map(_mark, store.marks(name))) for name in self._names}
        self._unrecorded: set[str] = set()

    @property
    def known(self) -> Mapping[str, Sequence[Mark]]:
        """All marks by region, recorded or not."""
        return self._marks

    def take_in(self, name: str, points: Iterable[Point]) -> None:
        """Add the marks that checkpoints of a region give."""
        if name not in self._marks:
            return
        for point in points:
            if not point.sent <= fixed_by(self._marks[name], point.read):
                self._marks[name] += (Mark(read=point.read, sent=point.sent),)
                self._unrecorded.add(name)

    def record(self, kept: Callable[[str], Point]) -> None:
        """Record the new marks.

        Args: kept: returns the oldest checkpoint of a region that may still be needed. Nobody needs the single marks
            below it, so they are merged.
        """
        for name in sorted(self._unrecorded):
            marks = _merged(self._marks[name], kept(name).read)
            self._store.record_marks(name, [(_positions(m.read), _positions(m.sent)) for m in marks])
            self._marks[name] = marks
            self._unrecorded.discard(name)


def _merged(marks: tuple[Mark, ...], below: OffsetFrontier) -> tuple[Mark, ...]:
    """Merge the marks up to `below` into one. The result gives the same φ for every frontier that contains `below`."""
    older = [m for m in marks if m.read <= below]
    if len(older) < 2:
        return marks
    union = reduce(lambda a, b: Mark(read=a.read | b.read, sent=a.sent | b.sent), older)
    return (union, *(m for m in marks if not m.read <= below))


def _positions(frontier: OffsetFrontier) -> Positions:
    found: Positions = {}
    for e, length in frontier.prefixes:
        found.setdefault(e.topic, {})[e.partition] = int(length)
    return found


def _mark(recorded: tuple[Positions, Positions]) -> Mark:
    read, sent = map(_frontier, recorded)
    return Mark(read=read, sent=sent)


def _frontier(positions: Positions) -> OffsetFrontier:
    return OffsetFrontier.of(
        {TopicPartition(topic=topic, partition=p): o for topic, found in positions.items() for p, o in found.items()}
    )
