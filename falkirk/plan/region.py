"""Regions: the parts of an application that each run as one Spark query, from one log to one log."""

from collections.abc import Iterator
from dataclasses import dataclass

from falkirk.declare.asserting import DeterminismAssertion
from falkirk.declare.endpoints import Kafka
from falkirk.declare.joins import passed
from falkirk.declare.nodes import LOOKUP, Node, SourceNode, Step, all_steps_of, is_ordered
from falkirk.declare.policy import DEFAULT_POLICY, Acknowledged, Delivery, Lazy, Policy
from falkirk.errors.location import SourceLocation
from falkirk.plan.fingerprint import IN_ORDER, KEYED, keyed_step_kind
from falkirk.plan.reasons import (
    ANYWHERE,
    IN_STATE,
    Reason,
    Undetermined,
    duration_text,
    listed,
    of_assertions,
    of_independent,
    of_undetermined,
    same,
)
from falkirk.plan.step_reasons import cost_of_order, of_chain, of_joins, of_step
from falkirk.plan.unit import numbered_sources
from falkirk.recovery.protocol.layout import Stage
from falkirk.steps.live.lookups import PlannedView, views_of
from falkirk.steps.static_analysis.functions import CLOCK_TIMER, entry_of, operation_name
from falkirk.theory.ids import LogId
from falkirk.theory.objective import Choice

#: The memory of one stamp in a barrier that compares sets.
_STAMP_BYTES = 500


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

    Args: repeats: released results may be released again. where: the line of its declaration, for messages. joined: the
        sources of the right sides of its joins. others: the sources that its unions add. keyed_step: its last step with
        a state, or its windows, if it has one. keyed_by: the columns of its log by which the last one groups; None:
        unknown. chain: its steps with a state, if it has several. filters: a step before the last one drops records.
        steps: the lines of its steps, in order. views: the logs of the views that it looks up.
    """

    name: str
    source: LogId
    output: LogId
    dead_letters: LogId
    repeats: bool
    where: object = None
    joined: tuple[LogId, ...] = ()
    others: tuple[LogId, ...] = ()
    keyed_step: str = ""
    keyed_by: tuple[str, ...] | None = None
    chain: tuple[str, ...] = ()
    filters: bool = False
    steps: tuple[str, ...] = ()
    views: tuple[LogId, ...] = ()

    @property
    def sources(self) -> tuple[LogId, ...]:
        """The logs that it reads. The number of a source is its place here."""
        return numbered_sources(self.source, self.joined, self.others)

    @property
    def reorders(self) -> bool:
        """Whether its results leave in another order than that of their stamps, so that the barrier compares sets."""
        return bool(self.joined) or self.keyed_step == IN_ORDER

    @property
    def stamps_letters(self) -> bool:
        """See UnitLogs."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLogs:
    """The facts about a batch that are needed while it does not run.

    Args: name. log: the log of its epochs. topics, files: the topics and the logs of files that it reads. sinks: the
        names of its sinks. dead_letters: its dead-letter topic, if it can have dead letters. full_history: its whole
        history is kept.
    """

    name: str
    log: LogId
    topics: tuple[LogId, ...]
    sinks: tuple[str, ...]
    dead_letters: LogId | None
    files: tuple[LogId, ...] = ()
    full_history: bool = False

    @property
    def stamps_letters(self) -> bool:
        """See UnitLogs."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One or more fused processors that run as one Real-time Mode query.

    Args:
        name: unique in the application; part of its folder, client ids and internal topics.
        source: the log that it reads. `reads_hop`: all its logs are internal, so their records are
            well-formed.
        node: the recorded steps from `source` on.
        output: the topic that it writes. `hop` is set if other regions read that topic.
        released_to: the sink's topic, if `output` is a held log. Results are copied there once they can't become
            invalid any more.
        record_bytes: the approximate size of a result, by the types of its columns.
        deterministic: its own steps give the same results in every replay of its input log.
        undetermined: the cause that makes its results tentative, in its own steps or in those of an upstream region.
        varying: the operations in its steps that may differ on a replay without any contradiction between results.
        assertions: the user's assertions of determinism.
        delivery: its promise; a hop is always exactly-once.
        interval_s: the time between checkpoints.
        stateful: it has a keyed step, and so a shuffle.
        dead_letter_topic: receives records that do not fit. Only this region writes it.
        fingerprint: by name, the properties that must stay the same so that its checkpoint stays valid.
        policy: the policy of its processors. repeated_by: the acknowledged processor, here or upstream, that may repeat
            results.
        transactional: it writes in short transactions, with which the broker refuses former writers.
        transactional_letters: only its dead letters do.
        joined: the sources of the right sides of its joins, in their order. Then `source` is that of the left side.
        join_places: for each join after the first, which columns of its key choose the state partition.
        others: the sources that its unions add, in the order of their numbers.
        keyed_by: the columns of its log by which its last keyed step groups; None: unknown.
        sharded_by: which columns of its first key choose the state partition, if it has several keyed steps.
        longest_call_s: the longest time that a record may wait for Python; 0: it calls none.
        choice: how `interval_s` was chosen, if the policy has an objective: see objective.py.
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
    varying: tuple[Undetermined, ...]
    assertions: tuple[DeterminismAssertion, ...]
    delivery: Delivery
    interval_s: float
    stateful: bool
    where: SourceLocation
    dead_letter_topic: LogId
    fingerprint: dict[str, str]
    policy: Policy = DEFAULT_POLICY
    repeated_by: str | None = None
    transactional: bool = False
    transactional_letters: bool = False
    joined: tuple[SourceNode, ...] = ()
    join_places: tuple[tuple[int, ...], ...] = ()
    others: tuple[SourceNode, ...] = ()
    keyed_by: tuple[str, ...] | None = None
    sharded_by: tuple[int, ...] = ()
    longest_call_s: float = 0.0
    choice: Choice | None = None

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """The logs that it reads. The number of a source is its place here."""
        return numbered_sources(self.source, self.joined, self.others)

    @property
    def views(self) -> tuple[PlannedView, ...]:
        """The views that it looks up."""
        return views_of(self.steps())

    @property
    def reorders(self) -> bool:
        """See RegionLogs."""
        return bool(self.joined) or any(map(is_ordered, self.steps()))

    @property
    def repeats(self) -> bool:
        """Whether results that it sends again after a failure are published again."""
        return self.delivery is Delivery.REPEATED or isinstance(self.policy, Acknowledged)

    @property
    def twins(self) -> bool:
        """Whether two queries compute its results: see falkirk/runtime/spark/live/twin.py."""
        return isinstance(self.policy, Lazy) and self.policy.twins

    @property
    def has_objective(self) -> bool:
        """Whether its interval is chosen, at each start, for a time in which it is to recover."""
        return isinstance(self.policy, Lazy) and self.policy.recover_within is not None

    @property
    def slowest_interval_s(self) -> float:
        """The longest time between checkpoints that any start of the region may have."""
        return self.interval_s if self.choice is None else self.choice.greatest_s

    def logs(self) -> RegionLogs:
        """Return the facts that are needed about it while it does not run."""
        operations = [step.operation for step in self.steps()]
        places = [place for place, operation in enumerate(operations) if operation in KEYED]
        kinds = [keyed_step_kind(self.steps()[place]) for place in places]
        return RegionLogs(
            name=self.name,
            source=self.source.topic.log,
            output=self.output.log,
            dead_letters=self.dead_letter_topic,
            repeats=self.repeats,
            where=self.where,
            joined=tuple(each.topic.log for each in self.joined),
            others=tuple(each.topic.log for each in self.others),
            keyed_step="windows" if "windows" in operations else kinds[-1] if kinds else "",
            keyed_by=self.keyed_by,
            chain=tuple(kinds) if kinds[1:] else (),
            filters=bool(places[1:]) or (bool(places) and "where" in operations[: places[0]]),
            steps=tuple(dict.fromkeys(str(step.where) for step in self.steps())),
            views=tuple(view.log for view in self.views),
        )

    def steps(self) -> tuple[Step, ...]:
        """The recorded steps, each after its parent. Those of the right side of a join are not among them."""
        return all_steps_of(self.node)

    @property
    def passed(self) -> tuple[str, ...]:
        """See Unit."""
        return passed(self.steps())

    def reasons(self, *, waits: bool) -> Iterator[Reason]:
        """Yield the reasons of one self. Args: waits: the results that depend on it wait for a checkpoint."""
        name = ", ".join(self.processors) or self.name
        if self.deterministic and not self.varying and not self.assertions and self.processors:
            yield Reason(
                kind="deterministic", processor=name, short="deterministic",
                text=same([name]),
            )  # fmt: skip
        yield from of_assertions(self.assertions, name)
        for each in self.varying:
            yield of_independent(each, repeats=self.repeats)
        own = None if self.deterministic else self.undetermined
        if own is not None:
            yield of_undetermined(own, self.name, waits=waits)
        first = True  # of the lookups: the others only refer to it
        for step in self.steps():
            yield from of_step(step, name, self.source.topic.topic, in_full=first)
            first = first and step.operation != LOOKUP
        if self.sharded_by:
            yield of_chain([step for step in self.steps() if step.operation in KEYED], name)
        if self.joined[1:]:
            yield of_joins([step for step in self.steps() if step.operation == "timedJoin"], name)
        if self.hop is not None:
            yield Reason(
                kind="hop", processor=name, where=self.where,
                text=f"{self.name} writes an internal topic (a hop), because {self.hop.reason}.",
            )  # fmt: skip

    def repeated_by_policy(self) -> Iterator[Reason]:
        """Yield why results are repeated after a failure although they do not differ, if they are."""
        if isinstance(self.policy, Acknowledged) or self.repeated_by is not None:
            who = self.repeated_by or self.name
            yield Reason(
                kind="repeated", processor=who, short=f"fk.Acknowledged() on {who}", where=self.where,
                text=f"{who} has the policy fk.Acknowledged. After a failure, {who} reads the input since its last "
                "acknowledgement again, and publishes those results again.",
            )  # fmt: skip
        elif self.delivery is Delivery.REPEATED:
            yield Reason(
                kind="repeated", processor=self.name, short='delivery="repeated"', where=self.where,
                text='The sink has delivery="repeated": results after the last checkpoint are published again '
                "after a failure.",
            )  # fmt: skip

    def durable(self) -> Iterator[str]:
        """Yield the durable data, and their places."""
        if outside := [each.topic.topic for each in self.sources if not each.is_hop]:
            yield f"input: topic {' and topic '.join(outside)}"
        kept = "state and offsets" if self.stateful else "offsets"
        yield f"{self.name}: {kept} in the home, every {duration_text(self.interval_s)}"
        if self.hop is not None:
            yield f"hop {self.hop.topic}: each record, until all readers of the hop have saved a checkpoint after it"

    def costs(self) -> Iterator[str]:
        """Yield the costs of its promise."""
        if self.hop is not None:
            yield f"{self.name}: each record is also written to the hop, about {self.record_bytes} bytes"
        if self.released_to is not None:
            yield f"{self.name}: each result is written twice, about {self.record_bytes} bytes, first to the held log"
        yield from (f"{self.name}: {cost_of_order(step)}" for step in self.steps() if is_ordered(step))
        if self.reorders:
            yield (
                f"{self.name}: after a failure, Falkirk keeps the stamp of each result since the last checkpoint in "
                f"memory, about {_STAMP_BYTES} bytes each"
            )
        if names := [view.name for view in self.views]:
            newest = f"the newest results of {listed(names)}"
            yield f"{self.name}: the JVM has {newest} in memory, and loads them after each epoch"
        if self.twins:
            yield f"{self.name}: twins take twice the slots and memory, and up to twice the processor time"
            return
        yield (
            f"{self.name}: every {duration_text(self.interval_s)}, a checkpoint delays the records that arrive "
            "meanwhile by 0.2 to 1 s"
        )

    def awaited_s(self, spare: int) -> float:
        """Return how long its next checkpoint takes at most, with as many spare ones if it needs any."""
        return self.interval_s * (1 if self.deterministic else 1 + spare)

    def advice(self) -> Iterator[str]:
        """Yield changes with which results would be published earlier."""
        cause = self.undetermined
        if cause is None or cause.policy:
            return
        for name in cause.operations:
            if entry_of(name).instead:
                yield f"{operation_name(name)}: {entry_of(name).instead}."
        if cause.why in (IN_STATE, ANYWHERE) and CLOCK_TIMER not in cause.operations:
            yield (
                f"Or give {cause.processor} the policy fk.LogSends(): its values are then written to an internal topic "
                "before the state uses them, and results are published as soon as they are in that topic."
            )

    @property
    def reads(self) -> tuple[LogId, ...]:
        """The logs that it reads, those of views included."""
        return (*(each.topic.log for each in self.sources), *(view.log for view in self.views))

    @property
    def writes(self) -> LogId:
        """The log that it writes."""
        return self.output.log

    @property
    def held_for(self) -> str | None:
        """See Unit: the topic to which its results are copied."""
        return None if self.released_to is None else self.released_to.topic

    @property
    def tracked(self) -> tuple[LogId, ...]:
        """See Unit: the topic to which its results are copied is tracked too."""
        copied = () if self.released_to is None else (self.released_to.log,)
        return (*self.reads, self.writes, *copied)

    @property
    def written(self) -> tuple[LogId, ...]:
        """See Unit."""
        copied = () if self.released_to is None else (self.released_to.log,)
        return (self.writes, self.dead_letter_topic, *copied)

    @property
    def may_change_steps(self) -> bool:
        """See Unit. With records that wait, it may not: its state has rows that the former steps made."""
        return not self.reorders and (self.undetermined is not None or self.repeats)

    def stage(self) -> Stage:
        """See Unit. A repeated result may differ, so readers are not promised equal ones."""
        return Stage(
            name=self.name, inputs=self.reads, output=self.writes, deterministic=self.deterministic or self.repeats,
            views=tuple(view.log for view in self.views),
        )  # fmt: skip
