"""Target: where the epochs of a batch are released to, whatever it is."""

from typing import Protocol

from pyspark.sql import DataFrame

from falkirk.coordinator.disk import is_full
from falkirk.errors import SparkError
from falkirk.plan.frames import first_line


class Target(Protocol):
    """Where epochs are released to."""

    def seen(self) -> int:
        """Return up to which epoch, exclusive, the outside may have seen anything."""

    def deliver(self, epoch: int, rows: DataFrame, *, few: bool = False) -> DataFrame | None:
        """See to it that all of an epoch is there, once, whatever an earlier try has done; return what is too large to
        be there, as dead letters. Epochs come in order.

        Args: few: the rows are so few that one task is enough.
        """


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
