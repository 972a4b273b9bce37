"""Tried: a row-by-row step on no rows, whose plan Spark has analysed. It shows what the step does."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame

from falkirk.steps.static_analysis.determinism import InBatch
from falkirk.steps.static_analysis.structure import KnownLeaves


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A step on no rows. Args: given: its input, with the columns of a time and a difference. made: its output."""

    given: DataFrame
    made: DataFrame

    @classmethod
    def on(cls, given: DataFrame, how: Callable[[DataFrame], DataFrame]) -> "Tried":
        """Try a step on an input."""
        return cls(given=given, made=how(given))

    @property
    def leaves(self) -> KnownLeaves:
        """The leaves of the output's plan."""
        return KnownLeaves.of({"rows": self.given})

    @cached_property
    def content(self) -> InBatch:
        """The content of the output's plan."""
        return InBatch.of(self.made, self.leaves)
