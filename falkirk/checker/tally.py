"""Tally: sums up the notes on all keys into one verdict."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from falkirk.checker.notes import Bounds, FirstFew, Note, RuleBreaks, Totals, open_record, undecided_of
from falkirk.checker.spanning import Spanning
from falkirk.checker.spill import SpilledRows
from falkirk.checker.verdict import (
    REACHABLE,
    Anomaly,
    Consistency,
    Counts,
    Guarantee,
    Kind,
    RuleVerdict,
    Undecided,
    Verdict,
    strongest_guarantee,
)


@dataclass(slots=True, kw_only=True)
class Tally:
    """The sums over the notes so far."""

    bounds: Bounds
    answers: dict[Guarantee, set[bool | None]] = field(default_factory=lambda: {each: set() for each in REACHABLE})
    kinds: Counter[Kind] = field(default_factory=Counter)
    anomalies: FirstFew[Anomaly] = field(init=False)
    undecided: FirstFew[Undecided] = field(init=False)
    inconsistent: FirstFew[Anomaly] = field(init=False)
    may_be_inconsistent: bool = False

    def __post_init__(self) -> None:
        self.anomalies = FirstFew(self.bounds.anomalies_shown)
        self.undecided = FirstFew(self.bounds.anomalies_shown)
        self.inconsistent = FirstFew(1)

    def add(self, note: Note) -> None:
        for guarantee, answers in self.answers.items():
            answers.add(note.fits[guarantee])
        self.kinds.update(note.kinds)
        for number, anomaly in enumerate(note.anomalies):
            self.anomalies.add((*note.order, number), anomaly)
        undecided = undecided_of(note)
        if undecided is not None:
            self.undecided.add(note.order, undecided)
        if note.consistency.first is not None:
            self.inconsistent.add(note.consistency.first.outputs[-1:], note.consistency.first)
        self.may_be_inconsistent |= note.consistency.holds is None

    def verdict(self, totals: Totals, spanning: Spanning | None, breaks: RuleBreaks) -> Verdict:
        """Return the verdict from all notes."""
        shown = self.bounds.anomalies_shown
        partial = () if spanning is None else tuple(spanning.partial)
        open_ones = () if spanning is None else tuple(map(open_record, spanning.open))
        open_count = 0 if spanning is None else spanning.open.count
        self.kinds[Kind.PARTIAL] = partial_count = 0 if spanning is None else spanning.partial.count
        if not totals.inputs and not totals.outputs:
            for answers in self.answers.values():
                answers.add(None)
            self.may_be_inconsistent = True
            self.undecided.add((), Undecided(key=None, reason="the run has no inputs and no outputs"))
        holds = {guarantee: _all_of(answers) for guarantee, answers in self.answers.items()}
        whole = False if partial_count else None if open_count else True
        holds[Guarantee.AT_MOST_ONCE] = _all_of({holds[Guarantee.AT_MOST_ONCE], whole})
        return Verdict(
            guarantee=strongest_guarantee(holds),
            holds=holds,
            counts=Counts(
                inputs=totals.inputs,
                expected_outputs=totals.due,
                observed_outputs=totals.outputs,
                keys=totals.keys,
                duplicates=self.kinds[Kind.DUPLICATE],
                repeated_inputs=self.kinds[Kind.REPEATED_INPUT],
                lost=self.kinds[Kind.LOST],
                unexplained=self.kinds[Kind.UNEXPLAINED],
                broken_sequences=self.kinds[Kind.BROKEN_SEQUENCE],
                partial=self.kinds[Kind.PARTIAL],
                forgotten=self.kinds[Kind.FORGOTTEN],
                undecided=self.undecided.count + open_count,
            ),
            anomalies=tuple(islice((*self.anomalies, *partial), shown)),
            undecided=tuple(islice((*self.undecided, *open_ones), shown)),
            consistency=self._consistency(),
            rules=rule_verdicts(breaks),
        )

    def _consistency(self) -> Consistency:
        first = next(iter(self.inconsistent), None)
        holds = False if first is not None else None if self.may_be_inconsistent else True
        return Consistency(holds=holds, keys=self.inconsistent.count, first=first)


def final_notes(notes: Iterable[SpilledRows[Note]], spanning: Spanning | None) -> Iterator[Note]:
    """Yield the final note on each key: for keys that were decided again, the new one."""
    for pile in notes:
        for note in pile:
            if spanning is None or note.key not in spanning.settled:
                yield note
    if spanning is not None:
        yield from spanning.replaced


def rule_verdicts(breaks: RuleBreaks) -> tuple[RuleVerdict, ...]:
    return tuple(
        RuleVerdict(rule=rule.name, broken=found.count, outputs=seen, anomalies=tuple(found))
        for rule, found, seen in zip(breaks.rules, breaks.found, breaks.seen, strict=True)
    )


def _all_of(answers: set[bool | None]) -> bool | None:
    """Return whether all answers are yes. A no outweighs None, and None outweighs a yes."""
    return False if False in answers else None if None in answers else True
