"""Latest: judges a place that keeps the last row of each key, as a table with a primary key does.

A row that an epoch has replaced is not there any more, so an epoch that was written twice leaves no trace. The row of
each key must be a row of the last epoch that has this key.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from falkirk.checker.content import content, content_of
from falkirk.checker.epochs import Comparison, Due, EpochFault, Fault, Forgotten, FoundRow, changed_row, newest_unknown
from falkirk.checker.run import Values


@dataclass(slots=True, kw_only=True)
class _Last:
    """Args: allowed: the contents that may be there. older: those of earlier epochs. required: a row must be there."""

    epoch: int
    row: Values
    allowed: set[Hashable] = field(default_factory=set)
    older: set[Hashable] = field(default_factory=set)
    required: bool = True
    seen: bool = False


def compare_latest(
    due: Sequence[Due],
    found: Iterable[FoundRow],
    keys: Sequence[str],
    forgotten: Forgotten | None = None,
    *,
    invalid: Mapping[int, int] | None = None,
) -> Comparison:
    """Compare a place that keeps the last row of each key.

    Args: due: by number of epoch. keys: columns of the key. invalid: as in `compare_rows`. A row of such an epoch may
        stay if no epoch gives its key again.
    """
    result, last = Comparison(), _last_rows(due, keys)
    unknown = newest_unknown(due, forgotten)
    result.due = sum(each.required for each in last.values())
    unjudged, invalid_max = 0, sum((invalid or {}).values())
    for row in found:
        result.found += 1
        each = last.get(_key(row.values, keys))
        if each is None or (content(row.values) not in each.allowed and each.epoch < unknown):
            if unknown >= 0:
                unjudged += 1
                if each is not None:
                    each.seen = True
                continue
            if result.invalid < invalid_max:
                result.invalid += 1
                continue
            text = f"the row at {row.place} is foreign: no epoch gives its key"
            foreign = Fault(
                kind=EpochFault.FOREIGN, epoch=None, found=row.values, places=(row.place,), explanation=text
            )  # fmt: skip
            result.add(foreign)
            continue
        _see(each, row, result)
    for each in last.values():
        if each.required and not each.seen:
            text = f"a row of epoch {each.epoch} is missing: its key is not there"
            result.add(Fault(kind=EpochFault.MISSING, epoch=each.epoch, expected=each.row, explanation=text))
    result.note_invalid()
    if unjudged:
        result.notes.append(f"{unjudged:,} rows may be of epochs that can't be computed again. They are not judged")
    return result


def _see(each: _Last, row: FoundRow, result: Comparison) -> None:
    of_row = content(row.values)
    if each.seen:
        text = f"the row at {row.place} is a duplicate: its key is there twice"
        kind, expected = EpochFault.DUPLICATE, None
    elif of_row in each.allowed:
        each.seen = True
        return
    elif of_row in each.older:
        text = f"the row of epoch {each.epoch} is missing: at {row.place} is the row of an earlier epoch"
        kind, expected = EpochFault.MISSING, each.row
    else:
        result.add(changed_row(each.epoch, each.row, row))
        each.seen = True
        return
    each.seen = True
    found = Fault(
        kind=kind, epoch=each.epoch, expected=expected, found=row.values, places=(row.place,), explanation=text
    )  # fmt: skip
    result.add(found)


def _last_rows(due: Sequence[Due], keys: Sequence[str]) -> dict[Hashable, _Last]:
    last: dict[Hashable, _Last] = {}
    for epoch in due:
        rows: dict[Hashable, list[Values]] = {}
        for values in epoch.rows or ():
            if all(values.get(key) is not None for key in keys):  # a row with a null in its key is a dead letter
                rows.setdefault(_key(values, keys), []).append(values)
        for key, several in rows.items():
            before = last.get(key)
            # If an epoch has a key several times, its last row counts, and another computation may have another order.
            now = _Last(epoch=epoch.epoch, row=several[-1], allowed=set(map(content, several)))
            may_stay = epoch.waits or epoch.refused > 0
            if before is not None:
                now.older = before.older | before.allowed
                now.allowed |= before.allowed if may_stay else set()
            now.required = before.required if may_stay and before is not None else not may_stay
            last[key] = now
    return last


def _key(values: Values, keys: Sequence[str]) -> Hashable:
    return tuple(content_of(values.get(key)) for key in keys)
