"""Calls: the context of one call of a batch's function: its epoch, and the state that its operators keep.

An operator asks the call for the state of the former epoch, and gives it the state of this one. When Falkirk plans the
application, it calls the same function with empty DataFrames, and the call records the requests of the operators.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from falkirk.errors.conditions.batch import OUTSIDE_OF_BATCH
from falkirk.errors.location import caller
from falkirk.steps.batch.loop_files import LoopFiles
from falkirk.steps.static_analysis.determinism import InBatch

#: A dead letter: a row that an operator could not process, as key and text.
LETTER_SCHEMA = StructType([StructField("key", StringType()), StructField("value", StringType())])

_NEVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochContext:
    """The epoch for which a batch's function is called.

    Args:
        number: from 0.
        views: for each `View` parameter, by name, the number of the epoch that it holds.
        begins, ends: the event time that it covers, [begins, ends), if epochs are cut by event time.
        partitions: for each parameter that is no view, by name, the number of partitions of its log; and for each topic
            of a list, by the name of its stamps.
        decided_at: when the end of the epoch was decided. It is recorded, so it is the same in every replay.
    """

    number: int = 0
    views: Mapping[str, int] = field(default_factory=dict)
    begins: datetime | None = None
    ends: datetime | None = None
    decided_at: datetime = _NEVER
    partitions: Mapping[str, int] = field(default_factory=dict)


class Call(ABC):
    """One call of a batch's function.

    Attributes: kept: the states of its operators, by slot. notes: texts that they keep, by slot. letters: dead letters,
        as `LETTER`. marks: small numbers that the former epoch left. reported: small numbers about this epoch.
    """

    def __init__(self, epoch: EpochContext, marks: Mapping[str, int] | None = None) -> None:
        self.epoch, self.marks = epoch, marks or {}
        self.kept: dict[str, DataFrame] = {}
        self.notes: dict[str, str] = {}
        self.reported: dict[str, int] = {}
        self.letters: list[DataFrame] = []
        self._numbers: Counter[str] = Counter()

    def slot(self, operator: str) -> str:
        """Return the name of an operator's state: the operator's name, numbered in the order of the calls."""
        self._numbers[operator] += 1
        return f"{operator}-{self._numbers[operator]}"

    @abstractmethod
    def before(self, slot: str, schema: StructType) -> DataFrame:
        """Return the state of the former epoch; no rows at the first epoch."""

    def keep(self, slot: str, state: DataFrame) -> None:
        """Keep a state for the next epoch."""
        self.kept[slot] = state

    def arrived(self, rows: DataFrame) -> tuple[DataFrame, Column]:
        """Return the rows, and the time in microseconds with which their event times are compared.

        It is that of the epoch. Args: rows: with their stamps.
        """
        return rows, F.lit(round(self.epoch.decided_at.timestamp() * 1_000_000))

    def also_aggregated(self) -> list[Column]:
        """Return further aggregates of the rows of a window, beside those of the user."""
        return []

    def type_of_places(self, rows: DataFrame, order: str) -> DataType | None:
        """Return the type of the places of rows, if results and states need those of their rows in `ORIGINS`.

        Args: order: the column with their stamps.
        """
        return None

    @abstractmethod
    def noted(self, slot: str) -> str | None:
        """Return the text that the former epoch kept, if any."""

    def note(self, slot: str, text: str) -> None:
        """Keep a text for the next epoch."""
        self.notes[slot] = text

    @abstractmethod
    def files(self, slot: str) -> LoopFiles | None:
        """Return the files that a slot's notes name. None: Falkirk is planning and computes nothing."""

    def determined_by(self, steps: Iterable[InBatch]) -> None:  # noqa: B027
        """Record plans that determine the result, though this call does not compute them."""

    @abstractmethod
    def once(self, rows: DataFrame) -> DataFrame:
        """Return rows that are computed once, though this call reads them several times."""

    @abstractmethod
    def split(
        self, rows: DataFrame, kinds: Mapping[str, StructType], *, determined_by: DataFrame | None = None
    ) -> dict[str, DataFrame]:
        """Compute rows once, and return them by kind. So all readers read the same values.

        Args: rows: `KIND` has the kind of a row, and the column of that name has its content. determined_by: the rows
            are deterministic if these are, for which the operator vouches.
        """

    def reject(self, letters: DataFrame) -> None:
        """Send rows to the dead letters. Args: letters: with the columns of `LETTER_SCHEMA`, and possibly others."""
        self.letters.append(letters.select(*LETTER_SCHEMA.names))


_current: ContextVar[Call | None] = ContextVar("call", default=None)


@contextmanager
def calling(call: Call) -> Iterator[None]:
    """Make `call` the current call for the operators, while a batch's function runs."""
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)


def current(operator: str) -> Call:
    """Return the current call.

    Raises: DefinitionError: `OUTSIDE_OF_BATCH`: no function of a batch is being called.
    """
    call = _current.get()
    if call is None:
        raise OUTSIDE_OF_BATCH.error(where=caller(), operator=operator)
    return call


def current_epoch() -> EpochContext:
    """Return the epoch for which the batch's function was called; number 0 while Falkirk plans.

    Raises: DefinitionError: `OUTSIDE_OF_BATCH`.
    """
    return current("epoch").epoch
