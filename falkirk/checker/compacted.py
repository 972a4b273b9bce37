"""Compacted: judges a topic from which Kafka deletes a record if a later one of the same key is there.

Compaction may have deleted any row but the last one of its key. So a row that is not there counts as missing only if
nothing can have replaced it. A row beyond those that are due is always a fault. A repeated row may have been deleted,
so no verdict on such a topic is whole.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from falkirk.checker.content import content, content_of
from falkirk.checker.epochs import Comparison, Due, Forgotten, FoundRow, RowsOfEpochs, newest_unknown
from falkirk.checker.run import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Last:
    """The last due row of a key.

    Args: epoch, row: that must be there. allowed: the contents that may be the last one.
    """

    epoch: int
    row: Hashable
    allowed: frozenset[Hashable]


def compare_compacted(
    due: Sequence[Due],
    found: Iterable[FoundRow],
    keys: Sequence[str],
    forgotten: Forgotten | None = None,
    *,
    invalid: Mapping[int, int] | None = None,
) -> Comparison:
    """Compare a topic that is, or was, compacted. Its rows come in the order of each partition.

    Args: due, invalid: as in `compare_rows`. keys: the columns of the records' keys.
    """
    return _Compacted(due, keys, forgotten, invalid or {}).compare(found)


class _Compacted(RowsOfEpochs):
    is_compacted = True

    def __init__(
        self, due: Sequence[Due], keys: Sequence[str], forgotten: Forgotten | None, invalid: Mapping[int, int]
    ) -> None:
        super().__init__(due, forgotten, invalid)
        self._keys, self._last = keys, dict[Hashable, _Last]()
        #: For each key, the content of its newest row in each partition. It has several partitions if an update has
        #: changed the type of the key.
        self._newest_of: defaultdict[Hashable, dict[int | None, Hashable]] = defaultdict(dict)
        #: The newest epoch whose rows are unknown or invalid: it may have replaced rows of earlier ones, but not of
        #: later ones. No number is used again after a rollback.
        self._unknown = max(newest_unknown(due, forgotten), *(epoch for epoch, rows in invalid.items() if rows), -1)
        for each in due:
            self._add_last(each)

    def _add_last(self, due: Due) -> None:
        """Note the last rows of an epoch. If it has a key several times, another computation may order them otherwise.

        An epoch that waits, or of which some rows are dead letters, may have left a key as it was.
        """
        rows: dict[Hashable, list[Hashable]] = {}
        for values in due.rows or ():
            if (key := self._key(values)) is not None:
                rows.setdefault(key, []).append(content(values))
        for key, several in rows.items():
            before = self._last.get(key)
            if not due.waits and not due.refused:
                self._last[key] = _Last(epoch=due.epoch, row=several[-1], allowed=frozenset(several))
            elif before is not None:
                allowed = before.allowed.union(several)
                self._last[key] = _Last(epoch=before.epoch, row=before.row, allowed=allowed)

    def compare(self, found: Iterable[FoundRow]) -> Comparison:
        result = super().compare(self._seen(found))
        there = result.found - result.invalid
        if not any(result.counts.values()) and there < result.due:
            result.notes.append(
                f"{result.due - there:,} due rows are not there. Compaction deletes a row if a later one of its key is "
                "there, so these are not judged"
            )
        return result

    def _seen(self, found: Iterable[FoundRow]) -> Iterator[FoundRow]:
        for row in found:
            if (key := self._key(row.values)) is not None:
                self._newest_of[key][row.partition] = content(row.values)
            yield row

    def missing(self) -> dict[int, list[Hashable]]:
        missing: dict[int, list[Hashable]] = {}
        for key, last in self._last.items():
            newest = self._newest_of.get(key, {}).values()
            is_replaced = bool(newest) and last.epoch < self._unknown
            if last.allowed.isdisjoint(newest) and not is_replaced:
                missing.setdefault(last.epoch, []).append(last.row)
        return dict(sorted(missing.items()))

    def _key(self, values: Values) -> Hashable | None:
        """Return the key of a row; None: it has none, and compaction may delete it at any time."""
        found = [values.get(key) for key in self._keys]
        is_none = not found or (len(found) == 1 and found[0] is None)
        return None if is_none else tuple(map(content_of, found))
