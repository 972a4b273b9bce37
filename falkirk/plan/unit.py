"""Units: the parts of an application that run, fail and roll back by themselves, as planned."""

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeVar

from falkirk.errors.location import SourceLocation
from falkirk.plan.reasons import Reason
from falkirk.recovery.protocol.layout import Stage
from falkirk.theory.ids import LogId

T = TypeVar("T")


def numbered_sources(first: T, joined: tuple[T, ...], others: tuple[T, ...]) -> tuple[T, ...]:
    """Return the sources of a live region. The number of a source in a stamp is its place here.

    Args: joined: the right sources of joins, in their order. others: those of a union besides the first.
    """
    return (first, *joined, *others)


class Unit(Protocol):
    """A live region, a batch or an iteration: it reads logs and writes one log.

    Attributes:
        name: unique in the application.
        processors: those that it runs.
        reads, writes: logs, by name.
        where: the user's line.
        deterministic: whether a replay of its input gives the same results.
        passed: the tables of as-of joins, and the inputs of `stateful(order=)`. Their event time has to pass a
            record before its result is computed.
        fingerprint: by name, the properties that must stay the same so that its checkpoints stay valid.
        may_change_steps: a change of its steps can't contradict published results, because these wait for a checkpoint
            or are published again.
        held_for: the name of those for whom its log holds results until they may be released; None: readers see them
            in the log at once.
        tracked: the logs by whose positions the recovery protocol decides.
        written: the topics that it writes outside the home.
    """

    @property
    def name(self) -> str: ...

    @property
    def processors(self) -> tuple[str, ...]: ...

    @property
    def reads(self) -> tuple[LogId, ...]: ...

    @property
    def writes(self) -> LogId: ...

    @property
    def where(self) -> SourceLocation: ...

    @property
    def deterministic(self) -> bool: ...

    @property
    def passed(self) -> tuple[str, ...]: ...

    @property
    def fingerprint(self) -> Mapping[str, str]: ...

    @property
    def may_change_steps(self) -> bool: ...

    @property
    def held_for(self) -> str | None: ...

    @property
    def tracked(self) -> tuple[LogId, ...]: ...

    @property
    def written(self) -> tuple[LogId, ...]: ...

    def stage(self) -> Stage:
        """Return it as a part of the graph on which the recovery protocol decides."""
        ...

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


class UnitLogs(Protocol):
    """The facts about a unit that are needed while it does not run.

    Attributes: dead_letters: the topic of its dead letters; None: it has none. stamps_letters: the headers of these
        letters name their inputs.
    """

    @property
    def name(self) -> str: ...

    @property
    def dead_letters(self) -> LogId | None: ...

    @property
    def stamps_letters(self) -> bool: ...
