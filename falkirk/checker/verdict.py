"""The verdict: the guarantee of a run, the number of anomalies of each kind, and the smallest explanation of each."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from falkirk.checker.run import RowPlace, Values


class Guarantee(StrEnum):
    """Possible explanations of outputs; the first that holds is the guarantee of the run.

    Source: Delivery, consistency, and determinism, §III-E, definitions 6–8.
    """

    EXACTLY_ONCE = "exactly-once"
    REPEATED_DELIVERY = "repeated delivery with exact state"
    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    BROKEN = "broken"
    UNDECIDED = "undecided"


REACHABLE = (
    Guarantee.EXACTLY_ONCE,
    Guarantee.REPEATED_DELIVERY,
    Guarantee.AT_MOST_ONCE,
    Guarantee.AT_LEAST_ONCE,
)


class Kind(StrEnum):
    """The kinds of anomaly."""

    DUPLICATE = "duplicate"  # an output that repeats an earlier one
    REPEATED_INPUT = "repeated input"  # an output that only a second application of an input explains
    LOST = "lost"  # an input without its output
    UNEXPLAINED = "unexplained"  # an output that no input explains
    FORGOTTEN = "forgotten"  # an expected output that later outputs contradict, as if its state was rolled back
    BROKEN_SEQUENCE = "broken sequence"  # a gap, or an order of outputs that no order of the inputs gives
    PARTIAL = "partial"  # some derivatives of an input, but not all
    INCONSISTENT = "inconsistent"  # an output that is not possible at its position, see `Consistency`
    RULE = "rule broken"  # outputs that break a rule of the user, see `RuleVerdict`


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One anomaly with its smallest explanation.

    `inputs` and `outputs` are the places that prove it. `expected` and `found` are the contents, if there are any.
    """

    kind: Kind
    key: Hashable
    inputs: tuple[RowPlace, ...] = ()
    outputs: tuple[RowPlace, ...] = ()
    expected: Values | None = None
    found: Values | None = None
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The number of each. `broken_sequences` and `undecided` count keys, `partial` source records, everything else
    rows.

    Source records also count as undecided if it is open whether they are partial.
    """

    inputs: int
    expected_outputs: int
    observed_outputs: int
    keys: int
    duplicates: int
    repeated_inputs: int
    lost: int
    unexplained: int
    broken_sequences: int
    partial: int
    forgotten: int = 0
    undecided: int = 0

    def as_dict(self) -> dict[str, int]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """A key for which the search for an explanation was given up, and the open question. Key None: the whole run."""

    key: Hashable
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Consistency:
    """Whether each output is possible at its position in a run without failures (None: undecided).

    `keys` is the number of keys with an inconsistent output, `first` the first such output in the order of places.
    Source: Delivery, consistency, and determinism, §III-D, definition 5.
    """

    holds: bool | None = True
    keys: int = 0
    first: Anomaly | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleVerdict:
    """How often a rule was broken, and the first violations. `outputs` counts the outputs with the rule's column."""

    rule: str
    broken: int
    outputs: int
    anomalies: tuple[Anomaly, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the rule holds. It does not hold if no output has its column."""
        return self.outputs > 0 and not self.broken


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRead:
    """The part of a place that was read: the number of logs (partitions, files) and of rows.

    `passed_over` are the first names there that were not read, and `passed_over_count` is the number of all of them.
    `notes` are further facts about the place.
    """

    where: str
    logs: int
    rows: int
    passed_over: tuple[str, ...] = ()
    passed_over_count: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of the checker. `anomalies` and `undecided` are only the first ones; `counts` counts all.

    `holds` says for each guarantee whether it holds (None: undecided). `read` are the places of the rows, if the
    checker has read them itself.
    """

    guarantee: Guarantee
    holds: Mapping[Guarantee, bool | None]
    counts: Counts
    anomalies: tuple[Anomaly, ...]
    undecided: tuple[Undecided, ...]
    consistency: Consistency = Consistency()
    rules: tuple[RuleVerdict, ...] = ()
    read: tuple[PlaceRead, ...] = ()

    def satisfies(self, asked: Guarantee) -> bool:
        """Return whether the run kept the promise `asked`. An undecided promise was not kept."""
        return self.holds.get(asked) is True


def strongest_guarantee(holds: Mapping[Guarantee, bool | None]) -> Guarantee:
    """Return the first guarantee that holds. If none holds, return undecided if one may hold, else broken."""
    for guarantee in REACHABLE:
        if holds[guarantee]:
            return guarantee
    return Guarantee.UNDECIDED if None in holds.values() else Guarantee.BROKEN
