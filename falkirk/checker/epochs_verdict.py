"""The verdict on the epochs of a batch in one place: the judged epochs and how, the others and why, and the faults."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from falkirk.checker.epochs import Comparison, EpochFault
from falkirk.checker.render import fields_shown, plain_value
from falkirk.checker.verdict import Guarantee

_MEANING = {
    Guarantee.EXACTLY_ONCE: "the rows of each epoch are there exactly once",
    Guarantee.REPEATED_DELIVERY: "some rows are there repeatedly",
    Guarantee.AT_MOST_ONCE: "some rows are missing",
    Guarantee.BROKEN: "the rows are not those of the epochs",
    Guarantee.UNDECIDED: "no fault was found in what was judged, and not everything was",
}
#: The guarantees that are at least as good as a promised one.
_KEEPS = {
    Guarantee.EXACTLY_ONCE: {Guarantee.EXACTLY_ONCE},
    Guarantee.REPEATED_DELIVERY: {Guarantee.EXACTLY_ONCE, Guarantee.REPEATED_DELIVERY},
    Guarantee.AT_LEAST_ONCE: {Guarantee.EXACTLY_ONCE, Guarantee.REPEATED_DELIVERY},
    Guarantee.AT_MOST_ONCE: {Guarantee.EXACTLY_ONCE, Guarantee.AT_MOST_ONCE},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Epochs that were judged in the same way.

    Args: how: in a few words. reason: why not better; empty: they were computed again. open: their rows need not be
        there yet.
    """

    how: str
    epochs: tuple[int, ...]
    reason: str = ""
    open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsVerdict:
    """The verdict on one place."""

    place: str
    judged: tuple[Judged, ...]
    compared: Comparison

    @property
    def is_whole(self) -> bool:
        """Whether each row of each released epoch was compared with its recomputation."""
        return not any(each.reason and not each.open for each in self.judged)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee that was found; undecided without a fault if something was not judged."""
        found = self.compared.guarantee
        return Guarantee.UNDECIDED if found is Guarantee.EXACTLY_ONCE and not self.is_whole else found

    def satisfies(self, promised: Guarantee, *, partial: bool = False) -> bool:
        """Return whether the promise was kept. Args: partial: the judged part is enough."""
        return self.compared.guarantee in _KEEPS[promised] and (partial or self.is_whole)


def render_epochs(verdict: EpochsVerdict) -> RenderableType:
    """Return a verdict for a terminal."""
    good, compared = verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict.compared
    style = "bold green" if good else "yellow" if verdict.guarantee is Guarantee.UNDECIDED else "bold red"
    parts: list[RenderableType] = [Text.assemble((str(verdict.guarantee), style), f": {_MEANING[verdict.guarantee]}")]
    for each in verdict.judged:
        text = f"{_count(each.epochs)} {each.how}{f': {each.reason}' if each.reason else ''}"
        parts.append(Text(text, style="yellow" if each.reason and not each.open else ""))
    parts.append(Text(f"{verdict.place}: {compared.due:,} rows due, {compared.found:,} rows found"))
    parts += [Text(note, style="yellow") for note in compared.notes]
    if compared.faults:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("fault", "explanation", "due", "found"):
            table.add_column(name, overflow="fold")
        for fault in compared.faults:
            cells = (str(fault.kind), fault.explanation, fields_shown(fault.expected), fields_shown(fault.found))
            table.add_row(*map(Text, cells))
        parts.append(table)
    counts = ", ".join(f"{rows:,} {kind}" for kind, rows in compared.counts.items() if rows)
    return Group(*parts, *([Text(f"rows with faults: {counts}", style="red")] if counts else []))


def epochs_to_json(verdict: EpochsVerdict) -> dict[str, object]:
    """Return a verdict in values for ``json.dumps``, with stable names."""
    compared = verdict.compared
    return {
        "guarantee": str(verdict.guarantee),
        "place": verdict.place,
        "epochs": [
            {"how": each.how, "ranges": [list(r) for r in _ranges(each.epochs)], "reason": each.reason}
            for each in verdict.judged
        ],
        "rows": {"due": compared.due, "found": compared.found, "invalid": compared.invalid},
        "counts": {str(kind): compared.counts[kind] for kind in EpochFault},
        "faults": [
            {
                "kind": str(fault.kind),
                "epoch": fault.epoch,
                "rows": fault.rows,
                "explanation": fault.explanation,
                "places": list(fault.places),
                "expected": plain_value(fault.expected),
                "found": plain_value(fault.found),
            }
            for fault in compared.faults
        ],
        "notes": list(compared.notes),
    }


def _count(epochs: Sequence[int]) -> str:
    named = ", ".join(f"{first} to {last}" if first != last else f"{first}" for first, last in _ranges(epochs))
    return f"epoch {named}" if len(epochs) == 1 else f"{len(epochs):,} epochs ({named})"


def _ranges(epochs: Iterable[int]) -> list[tuple[int, int]]:
    found = []
    for _, group in groupby(enumerate(sorted(epochs)), lambda each: each[1] - each[0]):
        numbers = [number for _, number in group]
        found.append((numbers[0], numbers[-1]))
    return found
