"""Computed: what one epoch of a batch comes to, before it is written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from falkirk.analysis.structure import Leaves, structure_of
from falkirk.declare.cut import Positions
from falkirk.frames.stamped import plan_text
from falkirk.operators.in_epoch import State
from falkirk.runtime.epochs.inputs import Bad

#: The slot of what a batch itself keeps, beside those of its operators.
OWN = "own"


@dataclass(frozen=True, kw_only=True)
class Decided:
    """Where an epoch is cut. Args: as of `Epoch`."""

    first: Positions
    last: Positions
    slice: int | None = None
    then: Positions | None = None


@dataclass(frozen=True, kw_only=True)
class Computed:
    """What an epoch comes to.

    Args: given: what it is computed from. kept: the state after it, by slot; the batch's own is missing when it is the
        result. bad: what it read that may not fit. letters: what operators have refused, and which files were.
            refused: those files, as of `Epoch`. marks: what the epoch before
        has left. told: numbers that are told of this one. ran: the plans of what has run for it already, as text.
        clean: drops what was computed for it alone.
    """

    given: Mapping[str, DataFrame]
    result: DataFrame
    kept: State
    bad: list[Bad]
    letters: list[DataFrame]
    ran: list[str]
    marks: Mapping[str, int]
    told: Mapping[str, int]
    clean: Callable[[], None]
    refused: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @cached_property
    def plan(self) -> str:
        """The result's plan, as text."""
        return plan_text(self.result)

    @property
    def structure(self) -> list[Any]:
        """The structure of the result's plan, in which inputs have their names."""
        return structure_of(self.result, Leaves.of(self.given))


def cast_to(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return the columns of a schema, in its order and types, whatever else there is."""
    return frame.select(*[F.col(f"`{f.name}`").cast(f.dataType).alias(f.name) for f in schema.fields])
