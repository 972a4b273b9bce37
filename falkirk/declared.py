"""Declared: what an application consists of once it is declared."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from falkirk.asserting import Word, word_of
from falkirk.cut import ByTime, Cut
from falkirk.endpoints import Endpoint, Kafka
from falkirk.location import SourceLocation
from falkirk.policy import Delivery, Policy
from falkirk.stream import Body

#: What is told of an iteration's epoch: how many rounds its loops took, how many had not come to rest, and of how many
#: Spark jobs it was.
ROUNDS, UNFINISHED, JOBS = "rounds", "unfinished", "jobs"


class Latest:
    """Marks a parameter of a batch: ``def answers(queries, weights: fk.Latest)`` reads the newest complete epoch of
    `weights`. Which one it was is recorded before it is used, so that a replay reads the same."""


class Stamped:
    """Marks a parameter of a batch: ``def clicks(events: fk.Stamped)`` has one column more, ``stamp``, a struct of
    (source, partition, offset, row) that says where each row comes from and orders those of one partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """That a batch's parameters are collections that change, and loops run over them.

    Args: rounds: of each loop, at most, unless it says otherwise. until: a number in a loop that goes on where it was
        is left alone when it moves by no more. sends: what changes in its result, or all of it.
    """

    rounds: int
    until: float
    sends: Literal["changes", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """A declared processor: its body, what it reads by name, its policy and where it was declared.

    Args: cut: when an epoch of a batch is complete; None: it is live. views: those of `reads` of which it reads the
        newest epoch. stamped: those whose rows it gets with their stamps, with the column's name. state: of a batch
        that reads what it returned at the epoch before, its columns as Spark DDL. engine: of a stream, where it is to
        run; engine_reason: why it runs in micro-batches. iteration: of a batch that is one.
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
    iteration: Iteration | None = None

    @property
    def word(self) -> Word | None:
        """What the user vouches for of its function, if anything."""
        return word_of(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """A declared output: the processor whose records it takes, where to, and what its readers are promised."""

    name: str
    reads: str
    to: Endpoint
    delivery: Delivery
    where: SourceLocation

    @property
    def topic(self) -> Kafka:
        """The topic of a sink that is one, as those of live processors are."""
        assert isinstance(self.to, Kafka), "a live processor writes topics"
        return self.to
