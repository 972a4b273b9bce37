"""Notes: one for each key that is not exactly right, collected part by part."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from falkirk.checker.anomalies import anomalies_of
from falkirk.checker.atomic import Choices, lost_places, standing
from falkirk.checker.consistency import KeyConsistency, check_consistency
from falkirk.checker.diagnose import Diagnosis, diagnose
from falkirk.checker.divide import RunPart
from falkirk.checker.model import Model
from falkirk.checker.rules import Rule, output_places
from falkirk.checker.run import KeyRun, RowPlace, group_by_key
from falkirk.checker.verdict import REACHABLE, Anomaly, Guarantee, Kind, Undecided

S = TypeVar("S")
T = TypeVar("T")
#: The place of an item in the order of its kind, independent of the part in which it was found.
_Order = tuple[object, ...]


class FirstFew(Generic[T]):
    """The first few of the added items, in a given order, and the number of all. Memory holds only a few."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._found: list[tuple[_Order, T]] = []
        self.count = 0

    def add(self, order: _Order, each: T) -> None:
        self.count += 1
        self._found.append((order, each))
        if len(self._found) > 2 * self._size + 100:
            self._cut()

    def _cut(self) -> None:
        self._found.sort(key=lambda found: found[0])
        del self._found[self._size :]

    def __iter__(self) -> Iterator[T]:
        self._cut()
        return iter([each for _, each in self._found])


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The findings about one key.

    `kinds` counts its anomalies, and `anomalies` are the first of them. `rows` is the number of its inputs.
    """

    key: Hashable
    order: _Order
    fits: Mapping[Guarantee, bool | None]
    standing: Choices
    lost: frozenset[RowPlace]
    kinds: Mapping[Kind, int]
    anomalies: tuple[Anomaly, ...]
    consistency: KeyConsistency
    rows: int


#: A judge of keys: from the key's run to the number of expected outputs, and a note unless the key is right.
_Judge = Callable[[KeyRun], tuple[int, Note | None]]


@dataclass(slots=True, kw_only=True)
class Totals:
    """Sums over all keys."""

    inputs: int = 0
    due: int = 0
    outputs: int = 0
    keys: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How many anomalies of a key are kept, and how many nodes each search may visit."""

    anomalies_shown: int = 20
    nodes_max: int = 100_000


@dataclass(slots=True, kw_only=True)
class RuleBreaks:
    """The violations of the user's rules, by rule."""

    rules: Sequence[Rule]
    shown: int
    found: list[FirstFew[Anomaly]] = field(init=False)
    #: For each rule, the number of outputs that have the column of the rule.
    seen: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.found = [FirstFew(self.shown) for _ in self.rules]
        self.seen = [0 for _ in self.rules]

    def add(self, run: KeyRun) -> None:
        """Record where the outputs of a key break the rules."""
        for number, (rule, found) in enumerate(zip(self.rules, self.found, strict=True)):
            column: str | None = getattr(rule, "column", None)
            self.seen[number] += sum(column is None or output.values.get(column) is not None for output in run.observed)
            for each in rule.breaks(run.observed):
                at = output_places(each)
                found.add(
                    (at[-1], at),
                    Anomaly(
                        kind=Kind.RULE,
                        key=run.key,
                        outputs=at,
                        found=each.outputs[-1].values,
                        explanation=f"{rule.name}: {each.why}, at {' and '.join(map(str, at))}",
                    ),
                )


def take_notes(part: RunPart, judge: _Judge, totals: Totals, breaks: RuleBreaks) -> Iterator[Note]:
    """Yield a note for each key of `part` that is not exactly right; add all keys to the totals.

    Raises: DefinitionError: two inputs of one key have the same place.
    """
    for run in group_by_key(part.inputs(), part.outputs()):
        breaks.add(run)
        due, note = judge(run)
        totals.keys += 1
        totals.inputs += run.input_count
        totals.outputs += len(run.observed)
        totals.due += due
        if note is not None:
            yield note


def judge_sequence(run: KeyRun, model: Model[S], bounds: Bounds) -> tuple[int, Note | None]:
    """Return how many outputs the key should have, and a note unless it has exactly these."""
    diagnosis = diagnose(run, model, bounds.nodes_max)
    if diagnosis is None:
        return len(run.observed), None
    return diagnosis.expected_outputs, note_of(run, diagnosis, model, bounds)


def note_of(run: KeyRun, diagnosis: Diagnosis, model: Model[S], bounds: Bounds) -> Note:
    """Return the note on a key that is not exactly right, by its present diagnosis."""
    anomalies = anomalies_of(diagnosis, model)
    return Note(
        key=run.key,
        order=key_order(run),
        fits=diagnosis.fits,
        standing=standing(diagnosis, model),
        lost=lost_places(diagnosis),
        kinds=Counter(anomaly.kind for anomaly in anomalies),
        anomalies=tuple(anomalies[: bounds.anomalies_shown]),
        consistency=check_consistency(diagnosis.run, model, bounds.nodes_max),
        rows=run.input_count,
    )


def key_order(run: KeyRun) -> _Order:
    """Return the place of the key among others: by its first input, for keys without inputs by their first output."""
    firsts = [source[0].place for source in run.sources]
    return (False, min(firsts)) if firsts else (True, run.observed[0].place)


def undecided_of(note: Note) -> Undecided | None:
    """Return the open questions about the key, or None."""
    open_ones = [guarantee for guarantee in REACHABLE if note.fits[guarantee] is None]
    if not open_ones:
        return None
    return Undecided(
        key=note.key,
        reason=f"the search for an order of its {note.rows} inputs was given up: open whether {', '.join(open_ones)}",
    )


def open_record(record: tuple[str, int, int]) -> Undecided:
    return Undecided(key=record, reason="open whether this input was lost with all its derivatives or only some")
