"""Units: the parts of an application that run, fail and roll back by themselves, as planned."""

from collections.abc import Iterator
from typing import Protocol

from falkirk.errors.location import SourceLocation
from falkirk.plan.reasons import Reason


class Unit(Protocol):
    """A live region, a batch or an iteration: it reads logs and writes one log.

    Attributes:
        name: unique in the application.
        processors: those that it runs.
        reads, writes: logs, by name.
        where: the user's line.
        deterministic: whether a replay of its input gives the same results.
    """

    @property
    def name(self) -> str: ...

    @property
    def processors(self) -> tuple[str, ...]: ...

    @property
    def reads(self) -> tuple[str, ...]: ...

    @property
    def writes(self) -> str: ...

    @property
    def where(self) -> SourceLocation: ...

    @property
    def deterministic(self) -> bool: ...

    def awaited_s(self, spare: int) -> float | None:
        """Return how long its next checkpoint takes at most, with as many spare ones; None: nobody can tell."""
        ...

    def reasons(self, *, waits: bool) -> Iterator[Reason]:
        """Yield why results are published when they are. Args: waits: those that depend on it wait for a checkpoint."""
        ...

    def advice(self) -> Iterator[str]:
        """Yield changes with which results would be published earlier."""
        ...

    def durable(self) -> Iterator[str]:
        """Yield the durable data, and their places."""
        ...

    def costs(self) -> Iterator[str]:
        """Yield the costs of its promise."""
        ...
