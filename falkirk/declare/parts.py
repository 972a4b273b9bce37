"""Defines the parts of a declared application: processors, sinks and iterations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from falkirk.declare.asserting import DeterminismAssertion, assertion_of
from falkirk.declare.cut import ByTime, Cut
from falkirk.declare.endpoints import Endpoint, Kafka
from falkirk.declare.policy import Delivery, Policy
from falkirk.declare.stream import Body
from falkirk.errors.location import SourceLocation

#: Facts about an epoch of an iteration: the rounds of its loops, how many loops did not finish, and the Spark jobs.
ROUNDS, UNFINISHED, JOBS = "rounds", "unfinished", "jobs"


class Stamped:
    """Marks a parameter of a batch that gets an additional column: ``def clicks(events: fk.Stamped)``.

    The column ``stamp`` is a struct of (source, partition, offset, row). It names the origin of each row, and orders
    the rows of one partition.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """Marks a batch as an iteration: its parameters are collections that change, and loops run over them.

    Args: rounds: the limit for each loop, unless the loop sets another. until: in a loop that resumes from its former
        result, numbers that change by at most this amount stay unchanged. sends: the changes of the result, or the
        whole result.
    """

    rounds: int
    until: float
    sends: Literal["changes", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredProcessor:
    """A declared processor: its body, the names that it reads, its policy and its location.

    Args: cut: when an epoch of a batch is complete; None: the processor is live. views: the names in `reads` of which
        it reads the newest epoch; a live processor looks rows up there. stamped: the names in `reads` whose rows have
        stamps, with the name of the stamp column. state: the columns of a batch's state as Spark DDL; None: the batch
        has no state. engine: where a stream should run. engine_reason: why a stream runs in micro-batches. passed: for
        such a stream, the tables of as-of joins. body_again: for such a stream, the steps that its function recorded at
        a second call, which are compared with those in `body`. iteration: the loop's options; None: the batch is not an
        iteration. newest_of: for a batch that the planner adds, the live processor of which it keeps the newest record
        of each key; else "".
    """

    name: str
    body: Body
    reads: tuple[str, ...]
    policy: Policy
    where: SourceLocation
    cut: Cut | ByTime | None = None
    views: frozenset[str] = frozenset()
    stamped: Mapping[str, str] = field(default_factory=dict)
    state: str | None = None
    engine: Literal["live", "micro-batch"] | None = None
    engine_reason: str = ""
    passed: tuple[str, ...] = ()
    body_again: Body | None = None
    iteration: Iteration | None = None
    newest_of: str = ""

    @property
    def assertion(self) -> DeterminismAssertion | None:
        """The user's assertion about the processor's function, or None."""
        return assertion_of(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSink:
    """A declared sink: the processor whose records it gets, the target, and the promise to readers."""

    name: str
    reads: str
    to: Endpoint
    delivery: Delivery
    where: SourceLocation

    @property
    def topic(self) -> Kafka:
        """The topic of the sink; sinks of live processors always have one."""
        assert isinstance(self.to, Kafka), "a live processor writes only topics"
        return self.to
