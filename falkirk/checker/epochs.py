"""Epochs: judges whether the rows of each epoch of a batch are in a place exactly once.

A place shows its rows, but not the epochs that wrote them. The checker assigns a row of the place to a due row with the
same content: in the epoch that the place itself names (a folder per epoch), else in the first epoch that lacks the row.
The remaining rows are duplicates or foreign, and the remaining due rows are missing.

Some epochs can't be computed again. Of these only the number of rows is due.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from falkirk.checker.content import content
from falkirk.checker.run import Values
from falkirk.checker.verdict import Guarantee

#: At most this many faults are described. The others are counted.
FAULTS_MAX = 20


class EpochFault(StrEnum):
    """The kinds of faults."""

    MISSING = "missing"
    DUPLICATE = "duplicate"
    FOREIGN = "foreign"
    CHANGED = "changed"
    DISORDERED = "out of order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The rows that an epoch owes to a place.

    Args: rows: None: only their number is known. count: their number. waits: they are not released yet, so they may be
        there or not. refused: the number of them that are dead letters.
    """

    epoch: int
    count: int
    rows: Sequence[Values] | None = None
    waits: bool = False
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """Epochs below `below` without any record. Args: rows: the sum of their rows; None: unknown."""

    below: int
    rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRow:
    """A row of a place.

    Args: place: for people. partition: the rows of a partition are in the order of their epochs; None: they have no
        order. epoch: the epoch that the place names, if it names one.
    """

    place: str
    values: Values
    partition: int | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. Args: rows: their number. places: the places of the rows that prove it."""

    kind: EpochFault
    epoch: int | None
    explanation: str
    rows: int = 1
    expected: Values | None = None
    found: Values | None = None
    places: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Comparison:
    """The result of a comparison. `faults` are the first ones, `counts` counts the rows of all, by kind.

    Attributes: due, found: the numbers of rows, without those that wait. invalid: those of `found` that are taken for
        rows of epochs that a rollback made invalid. notes: further facts about the rows.
    """

    due: int = 0
    found: int = 0
    invalid: int = 0
    faults: list[Fault] = field(default_factory=list)
    counts: Counter[EpochFault] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        """Add a fault."""
        self.counts[fault.kind] += fault.rows
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(fault)

    def note_invalid(self, *, ordered: bool = False) -> None:
        """Name the rows of invalid epochs, if there are any. Args: ordered: their place has an order."""
        if self.invalid:
            order = ". The order of the rows is not judged" if ordered else ""
            self.notes.append(
                f"{self.invalid:,} rows of epochs that a rollback made invalid are not judged. The home knows only the "
                f"number of these rows, so any other row beyond those that are due may be one of them{order}"
            )

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee that the compared rows have."""
        kinds = {kind for kind, rows in self.counts.items() if rows}
        if not kinds:
            return Guarantee.EXACTLY_ONCE
        if kinds == {EpochFault.DUPLICATE}:
            return Guarantee.REPEATED_DELIVERY
        return Guarantee.AT_MOST_ONCE if kinds == {EpochFault.MISSING} else Guarantee.BROKEN


def compare_rows(
    due: Sequence[Due],
    found: Iterable[FoundRow],
    forgotten: Forgotten | None = None,
    *,
    invalid: Mapping[int, int] | None = None,
) -> Comparison:
    """Compare a place that keeps every row with the rows that are due.

    Args: due: by number of epoch. invalid: the numbers of rows of epochs that may be there although a rollback made
        them invalid, by number of epoch.
    """
    return RowsOfEpochs(due, forgotten, invalid or {}).compare(found)


def newest_unknown(due: Sequence[Due], forgotten: Forgotten | None) -> int:
    """Return the newest epoch whose rows are unknown; -1: none. It may have replaced rows of earlier epochs."""
    unknown = max((d.epoch for d in due if d.rows is None), default=-1)
    return unknown if forgotten is None else max(unknown, forgotten.below - 1)


class RowsOfEpochs:
    """Compares a place with the rows that are due. Attributes: result: of the comparison so far."""

    #: Whether the place may delete rows that later ones replace.
    is_compacted = False

    def __init__(self, due: Sequence[Due], forgotten: Forgotten | None, invalid: Mapping[int, int]) -> None:
        self._due, self._forgotten = {d.epoch: d for d in due}, forgotten
        #: For each invalid epoch, the number of rows that were not found.
        self._invalid = Counter(invalid)
        #: For each content, the number of rows that each epoch still lacks, and at first the number that it has.
        self._left: dict[Hashable, dict[int, int]] = defaultdict(dict)
        self._values: dict[Hashable, Values] = {}
        for each in due:
            for values in each.rows or ():
                of_row = content(values)
                self._values[of_row] = values
                self._left[of_row][each.epoch] = self._left[of_row].get(each.epoch, 0) + 1
        #: Rows of epochs that are only counted, by epoch; for places that do not name epochs, of all of them.
        self._counted: Counter[int | None] = Counter()
        self._more: list[tuple[FoundRow, Hashable]] = []
        self._newest: dict[int, tuple[int, str]] = {}
        self.result = Comparison(due=sum(d.count - d.refused for d in due if not d.waits))

    def compare(self, found: Iterable[FoundRow]) -> Comparison:
        """Return the comparison with the rows of a place. Called once."""
        names_epochs = has_order = False
        for row in found:
            names_epochs = names_epochs or row.epoch is not None
            has_order = has_order or row.partition is not None
            self.result.found += 1
            if row.epoch is not None and self._invalid[row.epoch]:
                self._invalid[row.epoch] -= 1
                self.result.invalid += 1
                continue
            if row.epoch is not None and self._is_counted(row.epoch):
                self._counted[row.epoch] += 1
                continue
            of_row = content(row.values)
            taken = self._take(of_row, row.epoch)
            if taken is None:
                self._more.append((row, of_row))
            elif row.partition is not None and len(self._left[of_row]) == 1 and not self._invalid:
                self._see_order(row, row.partition, taken)
        missing = self.missing()
        if not names_epochs:
            self._set_invalid_aside()
        self.result.note_invalid(ordered=has_order)
        self._report_counted() if names_epochs else self._explain_by_count()
        self._pair(missing)
        self._report_missing(missing)
        self._report_more()
        return self.result

    def _is_counted(self, epoch: int) -> bool:
        if epoch in self._due:
            return self._due[epoch].rows is None
        return self._forgotten is not None and epoch < self._forgotten.below

    def _take(self, of_row: Hashable, epoch: int | None) -> int | None:
        left = self._left.get(of_row, {})
        taken = next((e for e, count in left.items() if count and epoch in (None, e)), None)
        if taken is not None:
            left[taken] -= 1
        return taken

    def _see_order(self, row: FoundRow, partition: int, epoch: int) -> None:
        """Only a row that a single epoch has shows its epoch."""
        newest, at = self._newest.get(partition, (-1, ""))
        if epoch >= newest:
            self._newest[partition] = (epoch, row.place)
            return
        self.result.add(
            Fault(
                kind=EpochFault.DISORDERED, epoch=epoch, found=row.values, places=(at, row.place),
                explanation=f"a row of epoch {epoch} at {row.place} comes after one of epoch {newest} at {at}",
            )
        )  # fmt: skip

    def missing(self) -> dict[int, list[Hashable]]:
        """Return the contents of the due rows that are not there, by epoch."""
        found: dict[int, list[Hashable]] = defaultdict(list)
        for of_row, left in self._left.items():
            for epoch, count in left.items():
                found[epoch] += [of_row] * count
        missing = {}
        for epoch, rows in sorted(found.items()):
            due = self._due[epoch]
            if len(rows) > due.refused and not due.waits:
                missing[epoch] = rows
        return missing

    def _report_counted(self) -> None:
        """Compare the number of rows of each epoch, in a place that names epochs."""
        below = 0 if self._forgotten is None else self._forgotten.below
        for due in (d for d in self._due.values() if d.rows is None):
            self._by_number(self._counted[due.epoch], due.count - due.refused, due.epoch, waits=due.waits)
        old = sum(rows for epoch, rows in self._counted.items() if epoch not in self._due)
        rows = None if self._forgotten is None else self._forgotten.rows
        if rows is not None and old > rows:
            text = f"the folders of epochs below {below} have {old:,} rows, and by record these epochs had {rows:,}"
            self.result.add(Fault(kind=EpochFault.FOREIGN, epoch=None, rows=old - rows, explanation=text))

    def _by_number(self, found: int, due: int, epoch: int, *, waits: bool) -> None:
        if found == due or (waits and found < due):
            return
        kind = EpochFault.MISSING if found < due else EpochFault.DUPLICATE if found == 2 * due else EpochFault.FOREIGN
        text = f"epoch {epoch} has {found:,} rows there, and {due:,} by record"
        self.result.add(Fault(kind=kind, epoch=epoch, rows=abs(found - due), explanation=text))

    def _set_invalid_aside(self) -> None:
        """Take as many of the remaining rows as there were for those of invalid epochs, first those that equal others.

        Rows that are only counted are due, and come before them.
        """
        counted = sum(d.count - d.refused for d in self._due.values() if d.rows is None and not d.waits)
        if self._forgotten is not None:
            counted += self._forgotten.rows or 0
        self._more.sort(key=lambda each: each[1] not in self._left)
        self.result.invalid = max(0, min(self._invalid.total(), len(self._more) - counted))
        self._more = self._more[self.result.invalid :]

    def _explain_by_count(self) -> None:
        """Take the remaining rows for those of the epochs that are only counted, as far as their number allows it."""
        counted = [d for d in self._due.values() if d.rows is None]
        forgotten = 0 if self._forgotten is None else self._forgotten.rows
        most = least = sum(d.count - d.refused for d in counted if not d.waits)
        most += sum(d.count for d in counted if d.waits)
        if not counted and forgotten == 0:
            return
        more = len(self._more)
        if forgotten is None:
            self.result.notes.append(f"{more:,} rows may be of epochs without a record. Nobody knows their number")
            self._more = []
            return
        self.result.due += forgotten
        most, least = most + forgotten, 0 if self.is_compacted else least + forgotten
        # An unknown row is rather one of these than a row that equals another.
        self._more.sort(key=lambda each: each[1] in self._left)
        if more < least:
            text = f"the epochs that can't be computed again have {least:,} rows by record, and {more:,} are there"
            self.result.add(Fault(kind=EpochFault.MISSING, epoch=None, rows=least - more, explanation=text))
        if more > most:
            self.result.notes.append(
                f"the epochs that can't be computed again have {most:,} rows by record, and {more:,} other rows are "
                f"there. So {more - most:,} of these are wrong, but perhaps not the named ones"
            )
        self._more = self._more[most:]

    def _pair(self, missing: dict[int, list[Hashable]]) -> None:
        """Report a foreign row that resembles a missing one as this row, changed."""
        for row, of_row in [m for m in self._more if m[1] not in self._left][:FAULTS_MAX]:
            near = [
                (same, -epoch, n)
                for epoch, rows in missing.items()
                if row.epoch in (None, epoch)
                for n, each in enumerate(rows[:FAULTS_MAX])
                if (same := _same(self._values[each], row.values))
            ]
            if not near:
                continue
            _, negative, n = max(near)
            epoch = -negative
            expected = self._values[missing[epoch].pop(n)]
            self._more.remove((row, of_row))
            self.result.add(changed_row(epoch, expected, row))

    def _report_missing(self, missing: Mapping[int, list[Hashable]]) -> None:
        for epoch, rows in missing.items():
            due = self._due[epoch]
            if len(rows) == due.count > 1:
                text = f"epoch {epoch} is missing: none of its {due.count:,} rows is there"
                self.result.add(Fault(kind=EpochFault.MISSING, epoch=epoch, rows=len(rows), explanation=text))
                continue
            letters = f" ({due.refused:,} of its rows are dead letters)" if due.refused else ""
            for of_row in rows[: max(0, len(rows) - due.refused)]:
                text = f"a row of epoch {epoch} is missing{letters}"
                fault = Fault(
                    kind=EpochFault.MISSING, epoch=epoch, expected=self._values[of_row], explanation=text
                )  # fmt: skip
                self.result.add(fault)

    def _report_more(self) -> None:
        """Report the rows that are no due rows, and whole epochs as one fault."""
        known: dict[int | None, dict[Hashable, list[FoundRow]]] = defaultdict(lambda: defaultdict(list))
        for row, of_row in self._more:
            if of_row in self._left:
                known[row.epoch][of_row].append(row)
                continue
            named = "" if row.epoch is None else f" in epoch {row.epoch}"
            text = f"the row at {row.place}{named} is foreign: no epoch gives it"
            self.result.add(
                Fault(kind=EpochFault.FOREIGN, epoch=row.epoch, found=row.values, places=(row.place,), explanation=text)
            )
        for epoch, rows in known.items():
            self._report_whole(epoch, rows)
            for of_row, several in rows.items():
                for row in several:
                    of = epoch if epoch in self._left[of_row] else min(self._left[of_row])
                    text = f"the row of epoch {of} at {row.place} is a duplicate"
                    fault = Fault(
                        kind=EpochFault.DUPLICATE, epoch=of, found=row.values, places=(row.place,), explanation=text
                    )  # fmt: skip
                    self.result.add(fault)

    def _report_whole(self, named: int | None, rows: dict[Hashable, list[FoundRow]]) -> None:
        """Report the epochs whose rows are all there twice, and remove the second ones."""
        for due in self._due.values():
            whole = Counter(map(content, due.rows or ()))
            if due.count < 2 or not whole or any(len(rows.get(of_row, ())) < n for of_row, n in whole.items()):
                continue
            again = [rows[of_row].pop() for of_row, n in whole.items() for _ in range(n)]
            first = min(row.place for row in again)
            elsewhere = "" if named in (None, due.epoch) else f", in the place of epoch {named}"
            text = f"epoch {due.epoch} is there twice: all of its {due.count:,} rows, such as at {first}{elsewhere}"
            fault = Fault(
                kind=EpochFault.DUPLICATE, epoch=due.epoch, rows=due.count, places=(first,), explanation=text
            )  # fmt: skip
            self.result.add(fault)


def _same(one: Values, other: Values) -> int:
    """Return in how many columns two rows are equal."""
    return sum(content({"": one.get(name)}) == content({"": other.get(name)}) for name in one.keys() & other.keys())


def changed_row(epoch: int, expected: Values, row: FoundRow) -> Fault:
    """Return the fault of a row that the place has with other values."""
    columns = [name for name in expected if content({"": expected[name]}) != content({"": row.values.get(name)})]
    return Fault(
        kind=EpochFault.CHANGED, epoch=epoch, expected=expected, found=row.values, places=(row.place,),
        explanation=f"the row at {row.place} contradicts epoch {epoch} in {', '.join(columns) or 'its columns'}",
    )  # fmt: skip
