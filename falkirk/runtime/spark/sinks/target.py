"""Target: the interface of the places to which the epochs of a batch are released."""

from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from falkirk.errors import SparkError
from falkirk.errors.conditions.spark import RELEASE_FAILED_TARGET
from falkirk.errors.spark import first_line
from falkirk.platform.disk import is_full
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.rows import JSON_OPTIONS, RAW_BYTES_MAX
from falkirk.theory.ids import EpochNumber

#: The beginnings of the column types that some targets can't store directly.
NESTED = ("struct", "array", "map")


class Target(Protocol):
    """A place to which epochs are released: `fk.Sink`, with the additional knowledge of Falkirk's own sinks."""

    def visible(self) -> EpochNumber:
        """Return the epoch, exclusive, up to which readers outside may have seen results."""

    def delivered(self) -> EpochNumber | None:
        """Return the epoch, exclusive, up to which it still has all delivered results; None: it can't report this.

        Called at a start, and before epochs are delivered. Raises: SparkError: `RELEASE_FAILED`: it does not answer.
        """

    def deliver(self, epoch: EpochNumber, rows: DataFrame, *, few: bool = False) -> DataFrame | None:
        """Deliver an epoch so that the sink has it completely and once, after any earlier attempt.

        Epochs are delivered in order.

        Args: rows: with the column ROW, which orders them. few: they are so few that one task is enough.
        Returns: the rows that the target can't have, as dead letters. The rows alone decide: each try returns the same.
        """


def sorted_by_place(rows: DataFrame, *, few: bool) -> DataFrame:
    """Return an epoch's rows by their places.

    Args: few: they are so few that one task is enough.
    """
    return rows.coalesce(1).sortWithinPartitions(ROW) if few else rows.orderBy(ROW)


def release_failed(where: str, error: Exception) -> SparkError:
    """Return the error after which a release is retried."""
    reason = "the disk is full" if is_full(error) else first_line(error)
    return RELEASE_FAILED_TARGET.error(topic=where, reason=reason)


def row_letters(rows: DataFrame, reason: Column, where: str, epoch: EpochNumber) -> DataFrame:
    """Return the rows that a table refused as dead letters, which have the row as JSON: (key, value, ROW)."""
    text = F.to_json(F.struct(*[F.col(f"`{c}`") for c in rows.columns if c != ROW]), JSON_OPTIONS)
    return letters(rows, F.lit(None).cast("string"), reason, where, epoch, text)


def outside_years(column: str) -> Column:
    """Return whether a date or time is outside the years 1 to 9999, which many programs can't read; or null."""
    return ~F.year(f"`{column}`").between(1, 9999)


def letters(
    rows: DataFrame, key: Column, reason: Column, where: str, epoch: EpochNumber, text: Column, sink: str | None = None
) -> DataFrame:
    """Return the rows that a target refused as dead letters: (key, value, ROW).

    Args: text: the row as text, as far as possible. sink: the name of the sink, if `where` may be on another cluster.
    """
    named = [] if sink is None else [F.lit(sink).alias("sink")]
    letter = F.struct(
        reason.alias("reason"), F.lit(where).alias("topic"), F.lit(epoch).alias("epoch"),
        F.substring(text, 1, RAW_BYTES_MAX).alias("value"), *named,
    )  # fmt: skip
    return rows.select(key.alias("key"), F.to_json(letter).alias("value"), ROW)
