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
    """A log between two regions, partitioned by key. Its order is a recorded decision (strong productions on one edge).

    Args:
        topic: the internal topic.
        keys: the grouping expressions of the reader, as the user wrote them (column names or Columns). Empty: records
            keep their source partition.
        reason: why the planner added it, in one sentence.
    """

    topic: str
    keys: tuple[object, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionLogs:
    """The facts about a region that are needed while it does not run: its name and its topics.

    Args: repeats: released results may be released again. where: the line of its declaration, for messages.
    """

    name: str
    source: str
    output: str
    dead_letters: str
    repeats: bool
    where: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLogs:
    """The facts about a batch that are needed while it does not run.

    Args: name. log: the log of its epochs. topics, files: the topics and the logs of files that it reads. sinks: the
        names of its sinks. dead_letters: its dead-letter topic, if it can have dead letters. full_history: its whole
        history is kept.
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
    """The operations that may differ on a replay.

    Args: operations: by Catalyst's names. processor, where: the processor and the user's line with them. why: the
        reason why they matter. policy: a policy that makes results tentative even without such operations.
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
        source: the log that it reads. `reads_hop`: that log is internal, so its records are well-formed.
        node: the recorded steps from `source` on.
        output: the topic that it writes. `hop` is set if other regions read that topic.
        released_to: the sink's topic, if `output` is a held log. Results are copied there once they can't be taken back
            any more.
        record_bytes: the approximate size of a result, by the types of its columns.
        deterministic: its own steps give the same results in every replay of its input log.
        undetermined: the cause that makes its results tentative, in its own steps or in those of an upstream region.
        drawn: the operations in its steps that may differ on a replay without any contradiction between results.
        words: the user's assertions of determinism.
        delivery: its promise; a hop is always exactly-once.
        interval_s: the time between checkpoints.
        stateful: it has a keyed step, and so a shuffle.
        dead_letter_topic: receives records that do not fit. Only this region writes it.
        fingerprint: by name, the properties that must stay the same so that its checkpoint stays valid.
        policy: the policy of its processors. repeated_by: the acknowledged processor, here or upstream, that may repeat
            results.
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
        """Whether results that it sends again after a failure are published again."""
        return self.delivery is Delivery.REPEATED or isinstance(self.policy, Acknowledged)

    def logs(self) -> RegionLogs:
        """Return the facts that are needed about it while it does not run."""
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
