"""Regions: the parts of an application that each run as one Spark query, from one log to one log."""

from dataclasses import dataclass

from falkirk.analysis.functions import spoken
from falkirk.declare.asserting import Word
from falkirk.declare.endpoints import Kafka
from falkirk.declare.policy import DEFAULT_POLICY, Acknowledged, Delivery, Policy
from falkirk.declare.stream import Node, SourceNode, Step, steps_of
from falkirk.errors.location import SourceLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A log between two regions, partitioned by key: its order is the recorded decision (strong productions on one
    edge).

    Args:
        topic: the internal topic.
        keys: the grouping expressions of the reader, as the user wrote them (column names or Columns); empty: the
            source partition is kept.
        reason: why the planner put it there, in one sentence.
    """

    topic: str
    keys: tuple[object, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionLogs:
    """What must be known of a region while nothing of it runs: its name and the topics around it.

    Args: repeats: what it has released may be released again. where: it was declared, for messages.
    """

    name: str
    source: str
    output: str
    dead_letters: str
    repeats: bool
    where: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLogs:
    """What must be known of a batch while nothing of it runs.

    Args: name. log: of its epochs. topics, files: the topics and the logs of files that it reads. sinks: the names of
        those that it writes. dead_letters: the topic of what does not fit, if it reads anything that may not.
        full_history: all that it has read is kept.
    """

    name: str
    log: str
    topics: tuple[str, ...]
    sinks: tuple[str, ...]
    dead_letters: str | None
    files: tuple[str, ...] = ()
    full_history: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Undetermined:
    """What may come out differently on a replay.

    Args: operations: by Catalyst's names. processor, where: in which it is, at which line of the user's. why: it
        matters. policy: the one that counts checkpoints alone, whether or not anything may.
    """

    operations: tuple[str, ...]
    processor: str
    where: SourceLocation
    why: str = ""
    policy: str = ""

    def __str__(self) -> str:
        told = [*map(spoken, self.operations), *([self.policy] if self.policy else [])]
        return f"{', '.join(told)} in {self.processor!r} ({self.where.place})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One or more fused processors that run as one Real-time Mode query.

    Args:
        name: unique in the application; part of its folder, client ids and internal topics.
        source: the log it reads. `reads_hop`: that log is internal, so its records are well-formed.
        node: the recorded steps from `source` on.
        output: the topic it writes. `hop` is set when that topic is read by other regions.
        released_to: the sink's topic, when `output` is an internal log of results that are held back: they are copied
            there once they can't be taken back any more.
        record_bytes: about how large a result is, by the types of its columns.
        deterministic: its own steps give the same on every replay of the log that it reads.
        undetermined: what makes its results tentative, in its own steps or in those of a region before it.
        drawn: what may come out differently in its own steps without anybody being able to tell.
        words: what its user vouches for.
        delivery: what it promises; a hop is always exactly-once.
        interval_s: between checkpoints.
        stateful: it has a keyed step, hence a shuffle.
        dead_letter_topic: where records that do not fit go; written by this region alone.
        fingerprint: what must stay the same for the checkpoint to stay meaningful, by name.
        policy: of its processors. repeated_by: the acknowledged processor, here or before, that may send again.
    """

    name: str
    processors: tuple[str, ...]
    source: SourceNode
    reads_hop: bool
    node: Node
    output: Kafka
    hop: Hop | None
    released_to: Kafka | None
    record_bytes: int
    deterministic: bool
    undetermined: Undetermined | None
    drawn: tuple[Undetermined, ...]
    words: tuple[Word, ...]
    delivery: Delivery
    interval_s: float
    stateful: bool
    where: SourceLocation
    dead_letter_topic: str
    fingerprint: dict[str, str]
    policy: Policy = DEFAULT_POLICY
    repeated_by: str | None = None

    @property
    def repeats(self) -> bool:
        """Whether what it sends again after a failure is not held back."""
        return self.delivery is Delivery.REPEATED or isinstance(self.policy, Acknowledged)

    def logs(self) -> RegionLogs:
        """Return what must be known of it while nothing of it runs."""
        return RegionLogs(
            name=self.name,
            source=self.source.topic.topic,
            output=self.output.topic,
            dead_letters=self.dead_letter_topic,
            repeats=self.repeats,
            where=self.where,
        )

    def steps(self) -> tuple[Step, ...]:
        """The recorded steps, oldest first."""
        return steps_of(self.node)
