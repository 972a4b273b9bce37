"""Computed: the results and the state of one epoch of a batch, before they are written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from falkirk.runtime.spark.epochs.inputs import Bad
from falkirk.steps.batch.in_epoch import BatchState
from falkirk.steps.dataframes.casts import cast
from falkirk.steps.dataframes.plans import plan_text
from falkirk.steps.static_analysis.structure import KnownLeaves, structure_of
from falkirk.theory.ids import LogId, Offset, Positions

#: The slot of a batch's own state. Its operators have other slots.
OWN_STATE = "own"


@dataclass(frozen=True, kw_only=True)
class EpochCut:
    """The place where an epoch is cut. Args: see `Epoch`."""

    first: Positions
    last: Positions
    slice: int | None = None
    then: Positions | None = None


@dataclass(frozen=True, kw_only=True)
class Computed:
    """The results of an epoch, as DataFrames.

    Args: given: its inputs by name. kept: the state after it, by slot; without the batch's own if that is the result.
        bad: the inputs that may have records that do not fit. letters: the dead letters of operators and of refused
        files. refused: these files, see `Epoch`. marks: the marks of the previous epoch. reported: numbers to record
        with this epoch. ran: the plans of jobs that have already run for it, as text.
        clean: deletes its temporary data.
    """

    given: Mapping[str, DataFrame]
    result: DataFrame
    kept: BatchState
    bad: list[Bad]
    letters: list[DataFrame]
    ran: list[str]
    marks: Mapping[str, int]
    reported: Mapping[str, int]
    clean: Callable[[], None]
    refused: Mapping[LogId, Sequence[Offset]] = field(default_factory=dict)

    @cached_property
    def plan(self) -> str:
        """The result's plan, as text."""
        return plan_text(self.result)

    @property
    def structure(self) -> list[Any]:
        """The structure of the result's plan, in which inputs have their names."""
        return structure_of(self.result, KnownLeaves.of(self.given))


def cast_to(schema: StructType) -> list[Column]:
    """Return the columns of a schema, in its order and with its types. Other columns are left out.

    Each costs calls to the JVM, so a batch keeps them for all epochs.
    """
    return [cast(F.col(f"`{f.name}`"), f.dataType).alias(f.name) for f in schema.fields]
