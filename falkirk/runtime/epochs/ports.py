"""Ports: the parts outside this folder that a batch needs."""

from typing import Protocol

from pyspark.sql import DataFrame

from falkirk.theory.ids import EpochNumber


class ReleaserPort(Protocol):
    """The release of a batch's results to its sinks, as the batch sees it (`sinks/release.py`).

    Attributes: detail: the reason why the release does not progress; empty while it does.
    """

    detail: str

    def send(self, epoch: EpochNumber, rows: DataFrame, *, few: bool) -> DataFrame | None:
        """Deliver an epoch to the only topic before it is recorded; return the rows that are too large."""

    def found(self) -> EpochNumber:
        """Return the epoch, exclusive, up to which the only topic has results."""

    def has_taken(self) -> str:
        """Return the name of a sink that already has epochs; "" if none has."""

    def behind(self) -> int:
        """Return how many epochs may be released, but are not yet."""

    def released(self) -> EpochNumber:
        """Return the epoch, exclusive, up to which this process has published all."""
