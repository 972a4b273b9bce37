"""Ports: the parts outside this folder that a batch needs."""

from collections.abc import Sequence
from typing import Any, Protocol

from pyspark.sql import DataFrame

from falkirk.runtime.spark.epochs.repeated_job import RepeatedJob
from falkirk.theory.ids import EpochNumber


class ReleaserPort(Protocol):
    """The release of a batch's results to its sinks, as the batch sees it (`sinks/release.py`).

    Attributes: detail: the reason why the release does not progress; empty while it does.
    """

    detail: str

    @property
    def has_compared(self) -> bool:
        """Whether all sinks were compared with this home since it was opened."""

    def send(self, epoch: EpochNumber, rows: DataFrame, *, few: bool) -> DataFrame | None:
        """Deliver an epoch to the only topic before it is recorded; return the rows that are too large.

        Raises: HomeError: `SINK_AHEAD`. SparkError: `RELEASE_FAILED`.
        """

    def job(self, result: DataFrame, rows: DataFrame, observed: Sequence[str]) -> RepeatedJob | None:
        """Return a job that delivers epochs to the only topic; None: these rows have none. See `TopicTarget.job`."""

    def repeat(self, epoch: EpochNumber, ranges: str, job: RepeatedJob) -> dict[str, dict[str, Any]] | None:
        """Deliver an epoch with a job, as `send`; None: it did not. See `TopicTarget.deliver_repeated`."""

    def found(self) -> EpochNumber:
        """Return the epoch, exclusive, up to which the only topic has results."""

    def has_taken(self) -> str:
        """Return the name of a sink that already has epochs; "" if none has."""

    def backlog(self) -> int:
        """Return how many epochs may be released, but are not yet."""

    def released(self) -> EpochNumber:
        """Return the epoch, exclusive, up to which this process has published all."""


class RunPort(Protocol):
    """One incarnation of a batch, as its region sees it.

    Attributes: error: the error that ended it; None while it runs.
    """

    error: Exception | None

    def leave_off(self) -> None:
        """Decide and start no further epoch."""

    def drain(self, timeout_s: float) -> None:
        """Let running epochs finish, and start no further epoch."""

    def save_last(self, timeout_s: float) -> None:
        """Save the state after the last complete epoch if it is in no file; decide and start no further epoch."""

    def stop(self, timeout_s: float) -> bool:
        """Stop it, so that it records nothing from now on; return whether its thread and its epochs have ended."""
