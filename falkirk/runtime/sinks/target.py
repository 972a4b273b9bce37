"""Target: where the epochs of a batch are released to, whatever it is."""

from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from falkirk.errors import SparkError
from falkirk.errors.spark import first_line
from falkirk.runtime.epochs.inputs import ROW
from falkirk.runtime.rows import RAW_BYTES_MAX
from falkirk.system.disk import is_full

#: How the types of columns begin that not every target takes as they are.
NESTED = ("struct", "array", "map")


class Target(Protocol):
    """Where epochs are released to: `fk.Sink`, with what Falkirk's own sinks know besides."""

    def seen(self) -> int:
        """Return up to which epoch, exclusive, the outside may have seen anything."""

    def delivered(self) -> int | None:
        """Return up to which epoch, exclusive, it has all that was delivered to it; None: it can't tell.

        Called at a start, and before epochs are delivered. Raises: SparkError: `RELEASE_FAILED`: it does not answer.
        """

    def deliver(self, epoch: int, rows: DataFrame, *, few: bool = False) -> DataFrame | None:
        """See to it that all of an epoch is there, once, whatever an earlier try has done; return what it refuses, as
        dead letters. Epochs come in order.

        Args: rows: with the column ROW, which orders them. few: they are so few that one task is enough.
        """


def in_order(rows: DataFrame, *, few: bool) -> DataFrame:
    """Return an epoch's rows by their places.

    Args: few: they are so few that one task is enough.
    """
    return rows.coalesce(1).sortWithinPartitions(ROW) if few else rows.orderBy(ROW)


def release_failed(where: str, error: Exception) -> SparkError:
    """Return the error after which a release is tried again."""
    reason = "the disk is full" if is_full(error) else first_line(error)
    return SparkError(
        "RELEASE_FAILED",
        f"what waits could not be written to {where!r}: {reason}.",
        certainty="maybe",
        hint="It goes on from what is there.",
        topic=where,
    )


def letters(rows: DataFrame, key: Column, reason: Column, where: str, epoch: int, text: Column) -> DataFrame:
    """Return what a target did not take as dead letters: (key, value, ROW).

    Args: text: a row as far as it can be shown.
    """
    told = F.struct(
        reason.alias("reason"), F.lit(where).alias("topic"), F.lit(epoch).alias("epoch"),
        F.substring(text, 1, RAW_BYTES_MAX).alias("value"),
    )  # fmt: skip
    return rows.select(key.alias("key"), F.to_json(told).alias("value"), ROW)
