"""Rules: conditions on the sequence of a key's outputs that hold for all inputs.

They follow the chaos test of *High-throughput, low-latency, exactly-once*, which validates the events of each user
against a state machine. A rule knows no model. Each violation comes with the outputs that prove it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any, Protocol

from falkirk.checker.content import EXACT_MAX, content_of
from falkirk.checker.numeric import plus
from falkirk.checker.run import OutputRow, RowPlace
from falkirk.errors.conditions.checker import RULE_INVALID


@dataclass(frozen=True, slots=True)
class Break:
    """Outputs that together break a rule, with the reason. The last one is the output that should not be there."""

    outputs: tuple[OutputRow, ...]
    why: str


class Rule(Protocol):
    """A condition on one key's outputs."""

    @property
    def name(self) -> str:
        """The rule's name in a verdict."""

    def breaks(self, outputs: Sequence[OutputRow]) -> Iterator[Break]:
        """Yield each place where `outputs`, all of one key in order of their places, break the rule."""


@dataclass(frozen=True, slots=True)
class Increasing:
    """The column increases strictly from each output to the next, in each partition of the log."""

    column: str

    @property
    def name(self) -> str:
        return f"increasing {self.column}"

    def breaks(self, outputs: Sequence[OutputRow]) -> Iterator[Break]:
        yield from _unless(outputs, self.column, lambda first, then: first < then)


@dataclass(frozen=True, slots=True)
class NoGaps:
    """The column increases by one from each output to the next, in each partition of the log, beginning with `first` if
    given."""

    column: str
    first: int | None = None

    @property
    def name(self) -> str:
        return f"no gaps in {self.column}"

    def breaks(self, outputs: Sequence[OutputRow]) -> Iterator[Break]:
        if self.first is not None and outputs and _number(outputs[0], self.column) != self.first:
            yield Break((outputs[0],), f"{_value(outputs[0], self.column)} came first, not {self.first}")
        yield from _unless(outputs, self.column, lambda first, then: then == plus(first, 1))


@dataclass(frozen=True, slots=True)
class Unique:
    """No value of the column occurs twice under one key."""

    column: str

    @property
    def name(self) -> str:
        return f"unique {self.column}"

    def breaks(self, outputs: Sequence[OutputRow]) -> Iterator[Break]:
        first: dict[object, OutputRow] = {}
        for output in outputs:
            earlier = first.setdefault(content_of(output.values.get(self.column)), output)
            if earlier is not output:
                yield Break((earlier, output), f"{_value(output, self.column)} is repeated")


@dataclass(frozen=True, slots=True)
class Transitions:
    """From each output to the next, the column changes as one of `allowed` says, in each partition of the log.

    Args: allowed: pairs of values, as text. A pair from "" gives a possible first value. Without such a pair, any value
        may come first.
    """

    column: str
    allowed: frozenset[tuple[str, str]]

    @property
    def name(self) -> str:
        return f"transitions of {self.column}"

    def breaks(self, outputs: Sequence[OutputRow]) -> Iterator[Break]:
        begins = {then for first, then in self.allowed if not first}
        if begins and outputs and _value(outputs[0], self.column) not in begins:
            yield Break((outputs[0],), f"{_value(outputs[0], self.column)} came first")
        for before, after in _neighbours(outputs):
            step = _value(before, self.column), _value(after, self.column)
            if step not in self.allowed:
                yield Break((before, after), f"{step[1]} came after {step[0]}")

    @classmethod
    def of(cls, text: str) -> "Transitions":
        """Return the rule for a text such as ``state:>new,new>paid,paid>sent``.

        Raises: DefinitionError: `RULE_INVALID`.
        """
        column, _, steps = text.partition(":")
        pairs = [tuple(part.strip() for part in step.split(">")) for step in steps.split(",")]
        if not column or not all(len(pair) == 2 and pair[1] for pair in pairs):
            raise RULE_INVALID.error(rule=text)
        return cls(column, frozenset((pair[0], pair[1]) for pair in pairs))


def _unless(outputs: Sequence[OutputRow], column: str, follows: Callable[[Any, Any], bool]) -> Iterator[Break]:
    """Yield the neighbours whose numbers do not follow one another, or that are not numbers."""
    for before, after in _neighbours(outputs):
        first, then = _number(before, column), _number(after, column)
        if first is None or then is None or not follows(first, then):
            yield Break((before, after), f"{_value(after, column)} came after {_value(before, column)}")


def _neighbours(outputs: Sequence[OutputRow]) -> Iterator[tuple[OutputRow, OutputRow]]:
    """Yield each two consecutive outputs of one partition. Outputs of two partitions have no order."""
    for before, after in pairwise(outputs):
        if before.place[:2] == after.place[:2]:
            yield before, after


def _number(output: OutputRow, column: str) -> int | float | Decimal | None:
    value = output.values.get(column)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or value != value:
        return None
    # A large float and the next integer are the same float, but not the same number.
    return Decimal(value) if isinstance(value, float) and abs(value) >= EXACT_MAX else value


def _value(output: OutputRow, column: str) -> str:
    """Return the value as in the log's JSON; a text without its quotes."""
    value = output.values.get(column)
    return "nothing" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def output_places(found: Break) -> tuple[RowPlace, ...]:
    """Return the places of the outputs."""
    return tuple(output.place for output in found.outputs)
