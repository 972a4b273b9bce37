"""Rules: what must hold of the sequence of a key's outputs whatever the inputs were, as in the chaos test of
*High-throughput, low-latency, exactly-once*, where the events of each user are validated against a state machine.

A rule knows no model. Each place where a sequence breaks it comes with the outputs that prove it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any, Protocol

from falkirk.check.content import EXACT_MAX, content_of
from falkirk.check.numeric import plus
from falkirk.check.run import Output, Place
from falkirk.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class Break:
    """Outputs that together break a rule, the last being the one that should not have come, and why."""

    outputs: tuple[Output, ...]
    why: str


class Rule(Protocol):
    """What must hold of one key's outputs."""

    @property
    def name(self) -> str:
        """How the rule is called in a verdict."""

    def breaks(self, outputs: Sequence[Output]) -> Iterator[Break]:
        """Yield where `outputs`, all of one key in order of their places, break the rule."""


@dataclass(frozen=True, slots=True)
class Increasing:
    """The column grows from each output to the next, in each partition of the log."""

    column: str

    @property
    def name(self) -> str:
        return f"increasing {self.column}"

    def breaks(self, outputs: Sequence[Output]) -> Iterator[Break]:
        yield from _unless(outputs, self.column, lambda first, then: first < then)


@dataclass(frozen=True, slots=True)
class NoGaps:
    """The column grows by one from each output to the next, in each partition of the log, from `first` on if given."""

    column: str
    first: int | None = None

    @property
    def name(self) -> str:
        return f"no gaps in {self.column}"

    def breaks(self, outputs: Sequence[Output]) -> Iterator[Break]:
        if self.first is not None and outputs and _number(outputs[0], self.column) != self.first:
            yield Break((outputs[0],), f"{_value(outputs[0], self.column)} came first, not {self.first}")
        yield from _unless(outputs, self.column, lambda first, then: then == plus(first, 1))


@dataclass(frozen=True, slots=True)
class Unique:
    """No value of the column comes twice under one key."""

    column: str

    @property
    def name(self) -> str:
        return f"unique {self.column}"

    def breaks(self, outputs: Sequence[Output]) -> Iterator[Break]:
        first: dict[object, Output] = {}
        for output in outputs:
            earlier = first.setdefault(content_of(output.values.get(self.column)), output)
            if earlier is not output:
                yield Break((earlier, output), f"{_value(output, self.column)} came again")


@dataclass(frozen=True, slots=True)
class Transitions:
    """From each output to the next the column goes as one of `allowed` says, in each partition of the log.

    Args: allowed: pairs of values, as text. A pair from "" says with what a sequence may begin; with none it may
        begin with anything.
    """

    column: str
    allowed: frozenset[tuple[str, str]]

    @property
    def name(self) -> str:
        return f"transitions of {self.column}"

    def breaks(self, outputs: Sequence[Output]) -> Iterator[Break]:
        begins = {then for first, then in self.allowed if not first}
        if begins and outputs and _value(outputs[0], self.column) not in begins:
            yield Break((outputs[0],), f"{_value(outputs[0], self.column)} came first")
        for before, after in _neighbours(outputs):
            step = _value(before, self.column), _value(after, self.column)
            if step not in self.allowed:
                yield Break((before, after), f"{step[1]} came after {step[0]}")

    @classmethod
    def of(cls, text: str) -> "Transitions":
        """Return the rule that a text like ``state:>new,new>paid,paid>sent`` describes.

        Raises: DefinitionError: `RULE_INVALID`.
        """
        column, _, steps = text.partition(":")
        pairs = [tuple(part.strip() for part in step.split(">")) for step in steps.split(",")]
        if not column or not all(len(pair) == 2 and pair[1] for pair in pairs):
            raise DefinitionError(
                "RULE_INVALID",
                f"{text!r} describes no transitions.",
                hint="Write them as state:new>paid,paid>sent, and what may come first as >new.",
                rule=text,
            )
        return cls(column, frozenset((pair[0], pair[1]) for pair in pairs))


def _unless(outputs: Sequence[Output], column: str, follows: Callable[[Any, Any], bool]) -> Iterator[Break]:
    """Yield the neighbours whose numbers do not follow one another, or are none."""
    for before, after in _neighbours(outputs):
        first, then = _number(before, column), _number(after, column)
        if first is None or then is None or not follows(first, then):
            yield Break((before, after), f"{_value(after, column)} came after {_value(before, column)}")


def _neighbours(outputs: Sequence[Output]) -> Iterator[tuple[Output, Output]]:
    """Yield each two outputs of which one follows the other; nothing orders two partitions."""
    for before, after in pairwise(outputs):
        if before.place[:2] == after.place[:2]:
            yield before, after


def _number(output: Output, column: str) -> int | float | Decimal | None:
    value = output.values.get(column)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or value != value:
        return None
    # A large float and the next integer are one float, but not one number.
    return Decimal(value) if isinstance(value, float) and abs(value) >= EXACT_MAX else value


def _value(output: Output, column: str) -> str:
    """Return the value as in the log's JSON, but text without its quotes."""
    value = output.values.get(column)
    return "nothing" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def places(found: Break) -> tuple[Place, ...]:
    """Return where the outputs lie."""
    return tuple(output.place for output in found.outputs)
