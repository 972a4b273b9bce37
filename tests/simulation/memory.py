"""A store in memory: the protocol's calls of the real one, without a database, which takes two fifths of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from falkirk.recovery.decision_store import Recovery, RecoveryState, Release
from falkirk.recovery.decision_store.values import Marked
from falkirk.theory.ids import Offset
from falkirk.theory.offsets import PartitionRange, merged_ranges

_STATES: tuple[RecoveryState, ...] = ("decided", "restored", "done")


@dataclass
class MemoryStore:
    """Each method is as that of `Store`, and an error there is a failed assertion here."""

    _recoveries: list[Recovery] = field(default_factory=list)
    _voids: dict[str, set[tuple[int, int, int]]] = field(default_factory=dict)
    _releases: dict[tuple[str, str, int], int] = field(default_factory=dict)
    _marks: dict[str, tuple[Marked, ...]] = field(default_factory=dict)

    def open_recovery(
        self, reason: str, decided: Mapping[str, int | None], *, voids: Sequence[tuple[str, int, int, int]] = ()
    ) -> int:
        assert self.unfinished_recovery() is None, "another recovery is under way"
        number = len(self._recoveries) + 1
        opened = Recovery(
            recovery=number, reason=reason, decided=dict(decided), state="decided", begun_at_s=0.0, ended_at_s=None
        )
        self._recoveries.append(opened)
        for topic, *place in voids:
            self._voids.setdefault(topic, set()).add((place[0], place[1], place[2]))
        return number

    def advance_recovery(self, recovery: int, state: RecoveryState) -> None:
        known = self._recoveries[recovery - 1]
        assert _STATES.index(state) >= _STATES.index(known.state), "a recovery goes backwards"
        self._recoveries[recovery - 1] = replace(known, state=state)

    def newest_recovery(self) -> Recovery | None:
        return self._recoveries[-1] if self._recoveries else None

    def unfinished_recovery(self) -> Recovery | None:
        newest = self.newest_recovery()
        return None if newest is None or newest.state == "done" else newest

    def voided_ranges(self, topic: str) -> tuple[PartitionRange, ...]:
        ranges = (PartitionRange(p, Offset(first), Offset(last)) for p, first, last in self._voids.get(topic, ()))
        return tuple(merged_ranges(ranges))

    def record_release(
        self, sink: str, topic: str, partition: int, released_exclusive: int, *, ends: object = None
    ) -> None:
        place = (sink, topic, partition)
        assert released_exclusive >= self._releases.get(place, 0), "a release goes backwards"
        self._releases[place] = released_exclusive

    def releases(self, sink: str) -> tuple[Release, ...]:
        return tuple(
            Release(topic=topic, partition=partition, released_exclusive=upto)
            for (to, topic, partition), upto in sorted(self._releases.items())
            if to == sink
        )

    def record_marks(self, region: str, marks: Sequence[Marked]) -> None:
        self._marks[region] = tuple(marks)

    def marks(self, region: str) -> tuple[Marked, ...]:
        return self._marks.get(region, ())

    def close(self) -> None:
        pass
