"""The verdict: what guarantee a run reached, how many anomalies of each kind it shows, and the smallest explanation of
each."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from falkirk.check.run import Place, Values


class Guarantee(StrEnum):
    """What outputs can be explained by; the first that holds is what a run reached.

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

    DUPLICATE = "duplicate"  # an output that had come before
    REPEATED_INPUT = "repeated input"  # an output that a second application of an input explains
    LOST = "lost"  # an input without its output
    UNEXPLAINED = "unexplained"  # an output that no input explains
    FORGOTTEN = "forgotten"  # an output that was due, but that those after it deny, as if its state was rolled back
    BROKEN_SEQUENCE = "broken sequence"  # outputs of a key with a gap, or in an order that no order of the inputs gives
    PARTIAL = "partial"  # some derivatives of an input, but not all
    INCONSISTENT = "inconsistent"  # an output that could not be observed at its point, see `Consistency`
    RULE = "rule broken"  # outputs that break a rule of the user's, see `RuleVerdict`


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One anomaly with its smallest explanation.

    `inputs` and `outputs` are the places that prove it; `expected` and `found` the contents, where there is one.
    """

    kind: Kind
    key: Hashable
    inputs: tuple[Place, ...] = ()
    outputs: tuple[Place, ...] = ()
    expected: Values | None = None
    found: Values | None = None
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many of each. `broken_sequences` and `undecided` count keys, `partial` source records, everything else rows.

    Source records of which it is open whether they are partial count as undecided too.
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
    """A key for which the search for an explanation was given up, and what remained open; None: the whole run."""

    key: Hashable
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Consistency:
    """Whether each output could be observed at its point in a run without failures (None: could not be decided).

    `keys` are those with an output that could not, `first` the first of these outputs in the order of their places.
    Source: Delivery, consistency, and determinism, §III-D, definition 5.
    """

    holds: bool | None = True
    keys: int = 0
    first: Anomaly | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleVerdict:
    """How often a rule was broken, and the first times. `outputs` counts those that have what the rule is about."""

    rule: str
    broken: int
    outputs: int
    anomalies: tuple[Anomaly, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the rule holds; of nothing that was seen it does not."""
        return self.outputs > 0 and not self.broken


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRead:
    """What was read of a place: how many logs (partitions, files) with how many rows.

    `passed_over` are the first things there that were not read although they are there, `passed_over_count` counts
    them all; `notes` say what else has to be known.
    """

    where: str
    logs: int
    rows: int
    passed_over: tuple[str, ...] = ()
    passed_over_count: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the checker found. `anomalies` and `undecided` are the first ones only; `counts` counts all.

    `holds` says for each guarantee whether it holds (None: could not be decided). `read` are the places that rows were
    read from, where the checker has read them itself.
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
        """Return whether the run kept the promise `asked`. What could not be decided was not kept."""
        return self.holds.get(asked) is True


def reached(holds: Mapping[Guarantee, bool | None]) -> Guarantee:
    """Return the first guarantee that holds; undecided if none does but one might; else broken."""
    for guarantee in REACHABLE:
        if holds[guarantee]:
            return guarantee
    return Guarantee.UNDECIDED if None in holds.values() else Guarantee.BROKEN
