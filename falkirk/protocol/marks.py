"""Marks: what a deterministic live region had sent by when, kept in the store longer than its checkpoints.

Such a region may lose any checkpoint, since a replay sends the same again. But only the checkpoint says up to where the
output is fixed (φ). Lost with it, φ would fall back to that of an older checkpoint, and all readers with it: a sink
behind them would have to take back published results that a replay confirms.

A mark (read, sent) says: of what lies before `sent`, nothing was sent because of input beyond `read`. That stays true
without the checkpoint, and after any rollback: logs only grow, so whatever is sent later lies behind. Each mark holds
by itself, so φ(f) is what all marks within f give together. Whether f itself can be had again is another question. For
a deterministic region it depends on the input alone. For any other it depends on the lost state: those leave no marks.

A mark is recorded before a result that rests on it is released.
"""

from bisect import bisect_left
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
    """What had been sent once so much was read; as of `Point`."""

    read: OffsetFrontier
    sent: OffsetFrontier


def fixed_by(marks: Iterable[Mark], read: OffsetFrontier) -> OffsetFrontier:
    """Return what marks say that is fixed once so much is read: φ."""
    return reduce(lambda found, mark: found | mark.sent if mark.read <= read else found, marks, EMPTY)


class Marks:
    """The marks of one application.

    Args: live: regions of which Spark may find a checkpoint damaged.
    """

    def __init__(self, layout: Layout, store: Store, live: Collection[str]) -> None:
        self._store = store
        #: Those that leave marks. Who reads a topic outside goes back by itself.
        self._names = [n for n, s in layout.stages.items() if s.deterministic and n in live and s.output in layout.hops]
        self._marks = {name: tuple(map(_mark, store.marks(name))) for name in self._names}
        self._unrecorded: set[str] = set()
        #: The points that were taken in last: the same ones come again in each turn.
        self._taken: dict[str, dict[int, Point]] = {}

    @property
    def known(self) -> Mapping[str, Sequence[Mark]]:
        """All marks by region, recorded or not."""
        return self._marks

    def take_in(self, name: str, points: Sequence[Point]) -> None:
        """Take in what checkpoints of a region say."""
        if name not in self._marks:
            return
        taken = self._taken.get(name, {})
        self._taken[name] = {point.number: point for point in points}
        for point in points:
            if taken.get(point.number) is point:
                continue
            if not point.sent <= fixed_by(self._marks[name], point.read):
                self._marks[name] += (Mark(read=point.read, sent=point.sent),)
                self._unrecorded.add(name)

    def record(self, kept: Callable[[str], Sequence[Point]]) -> None:
        """Record what is new.

        Args: kept: returns the checkpoints of a region that anything may ask for, up to the newest that no
            failure goes behind. Between two of these, nobody asks what each mark says by itself.
        """
        for name in sorted(self._unrecorded):
            marks = _merged(self._marks[name], [point.read for point in kept(name)])
            self._store.record_marks(name, [(_positions(m.read), _positions(m.sent)) for m in marks])
            self._marks[name] = marks
            self._unrecorded.discard(name)


def _merged(marks: Iterable[Mark], reads: Sequence[OffsetFrontier]) -> tuple[Mark, ...]:
    """Return marks that say the same of each of these frontiers, which ascend, and of every one beyond the last.

    Marks that none of the frontiers distinguishes become one.
    """
    groups: dict[int, list[Mark]] = {}
    for mark in marks:
        groups.setdefault(bisect_left(reads, True, key=mark.read.__le__), []).append(mark)
    beyond = groups.pop(len(reads), [])
    return (*(reduce(_union, groups[i]) for i in sorted(groups)), *beyond)


def _union(a: Mark, b: Mark) -> Mark:
    return Mark(read=a.read | b.read, sent=a.sent | b.sent)


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
