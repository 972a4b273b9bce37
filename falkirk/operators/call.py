"""Calls: what surrounds one call of a batch's function: the epoch it is for, and what its operators keep.

An operator asks the call for what it left at the epoch before and hands over what it leaves now. While the application
is planned the same function is called with empty DataFrames, and the call takes note of what is asked of it.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from falkirk.errors import DefinitionError
from falkirk.location import caller

#: The column that tells what a row is for, of rows that were computed together.
KIND = "__falkirk_kind"
#: What an operator could not work on: a dead letter's key and its text.
LETTER = StructType([StructField("key", StringType()), StructField("value", StringType())])

_NEVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """The epoch that a batch's function is called for.

    Args:
        number: from 0.
        views: of each `Latest` parameter, by name, the number of the epoch that it holds.
        begins, ends: the event time that it covers, [begins, ends), if epochs are cut by event time.
        decided_at: when it was decided where the epoch ends. It is recorded, so it is the same in every replay.
    """

    number: int = 0
    views: Mapping[str, int] = field(default_factory=dict)
    begins: datetime | None = None
    ends: datetime | None = None
    decided_at: datetime = _NEVER


class Call(ABC):
    """One call of a batch's function.

    Attributes: kept: what its operators keep, by slot. notes: texts that they keep. letters: what they could not work
        on, as `LETTER`. marks: small numbers that the epoch before has left. told: such as are told of this one.
    """

    def __init__(self, epoch: Epoch, marks: Mapping[str, int] | None = None) -> None:
        self.epoch, self.marks = epoch, marks or {}
        self.kept: dict[str, DataFrame] = {}
        self.notes: dict[str, str] = {}
        self.told: dict[str, int] = {}
        self.letters: list[DataFrame] = []
        self._numbers: Counter[str] = Counter()

    def slot(self, operator: str) -> str:
        """Return the name under which an operator keeps its state: its own, numbered in the order of the calls."""
        self._numbers[operator] += 1
        return f"{operator}-{self._numbers[operator]}"

    @abstractmethod
    def before(self, slot: str, schema: StructType) -> DataFrame:
        """Return what was kept at the epoch before; nothing at the first."""

    def keep(self, slot: str, state: DataFrame) -> None:
        """Keep this for the next epoch."""
        self.kept[slot] = state

    @abstractmethod
    def noted(self, slot: str) -> str | None:
        """Return the text that was kept at the epoch before, if any was."""

    def note(self, slot: str, text: str) -> None:
        """Keep a text for the next epoch."""
        self.notes[slot] = text

    @abstractmethod
    def folder(self, slot: str) -> Path | None:
        """Return where files are that a slot's notes name; None: nothing is computed, the call is only planned."""

    def determined_by(self, steps: Iterable[DataFrame]) -> None:  # noqa: B027
        """Take note of DataFrames that are not computed here, and by which the result comes out as it does."""

    @abstractmethod
    def once(self, rows: DataFrame) -> DataFrame:
        """Return rows that several things are computed from in this call, so that they are computed once."""

    @abstractmethod
    def split(
        self, rows: DataFrame, kinds: Mapping[str, StructType], *, determined_by: DataFrame | None = None
    ) -> dict[str, DataFrame]:
        """Compute rows once, and return those of each kind, which `KIND` tells, by what their column of that name
        holds: whatever reads them reads the same.

        Args: determined_by: they come out the same whenever these do, for which the operator vouches.
        """

    def reject(self, letters: DataFrame) -> None:
        """Send these to the dead letters, as `LETTER`."""
        self.letters.append(letters)


_current: ContextVar[Call | None] = ContextVar("call", default=None)


@contextmanager
def calling(call: Call) -> Iterator[None]:
    """While a batch's function runs, make `call` the one that its operators find."""
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)


def current(operator: str) -> Call:
    """Return the call under way.

    Raises: DefinitionError: `OUTSIDE_OF_BATCH`: no function of a batch is being called.
    """
    call = _current.get()
    if call is None:
        raise DefinitionError(
            "OUTSIDE_OF_BATCH",
            f"fk.{operator}() stands outside of a batch.",
            where=caller(),
            hint="Call it inside a function under @app.batch(…) or @app.stream(fk.Eager()).",
            operator=operator,
        )
    return call


def epoch() -> Epoch:
    """Return the epoch that the batch's function around this is called for; number 0 while it is only planned.

    Raises: DefinitionError: `OUTSIDE_OF_BATCH`.
    """
    return current("epoch").epoch
