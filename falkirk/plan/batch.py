"""Batches: the parts of an application that run as one DataFrame job per epoch, from logs to a log of epochs.

The planner calls the user's function on empty DataFrames. This shows the columns that it returns, and errors appear
before any input is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from falkirk.declare.cut import ByClock, ByTime, Cut
from falkirk.declare.endpoints import Files, Kafka
from falkirk.declare.parts import DeclaredSink, Iteration
from falkirk.declare.policy import FullHistory, Lazy, Policy
from falkirk.declare.stream import Body
from falkirk.errors.location import SourceLocation
from falkirk.plan.reasons import (
    Reason,
    Undetermined,
    background,
    differing,
    differs_in_place,
    duration_text,
    of_assertions,
    same,
)
from falkirk.plan.region import BatchLogs
from falkirk.recovery.protocol.layout import Stage, TimeDomain
from falkirk.steps.dataframes.casts import cast
from falkirk.steps.dataframes.names import STAMP
from falkirk.steps.static_analysis.properties import Properties
from falkirk.theory.ids import EpochNumber, LogId

#: The type of the stamps in a parameter that is marked `fk.Stamped`. For a row of a topic, `row` is 0. For a row of
#: another batch, `partition` is 0 and `offset` is the number of the epoch.
STAMP_TYPE = StructType(
    [
        StructField("source", StringType()), StructField("partition", IntegerType()), StructField("offset", LongType()),
        StructField("row", LongType()),
    ]
)  # fmt: skip


#: The part of a fingerprint with the columns of the epochs. Columns may be added later.
SENDS = "sends"
#: The part with the batch's state, and with the program of an iteration.
STATE_PART = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInput:
    """A log that a batch reads.

    Args:
        name: the parameter that gets its rows, or for a topic of a list the name of that topic's source.
        log: the topic, or the log of epochs of another batch.
        topic: a topic, with its schema. folder: a folder whose files are the records. Neither: a log of epochs.
        reads_hop: the topic is internal.
        view: only its newest complete epoch is read.
        schema: the schema of the rows.
        sliced: it is a log of rows sorted by event time, and an epoch reads slices of it.
        stamped: the column with the stamp of each row, of `STAMP_TYPE`. `schema` has this column too.
        list_name: the source with several topics that this topic belongs to.
    """

    name: str
    log: LogId
    topic: Kafka | None = None
    folder: Files | None = None
    reads_hop: bool = False
    view: bool = False
    sliced: bool = False
    schema: StructType
    stamped: str | None = None
    list_name: str | None = None

    @property
    def parameter(self) -> str:
        """The parameter that gets its rows."""
        return self.list_name or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A region that runs as one DataFrame job per epoch.

    Args:
        name: unique in the application.
        log: the log of its epochs. Results stay there until they were released and read.
        body, parameters: the user's function, and the names of its parameters.
        cut: decides when an epoch is complete.
        schema: the schema of the results. state: the schema of the state between epochs, or None.
        saves_all: the state is saved after each epoch, by its policy or because the results are the state.
        slots: the states of its operators, by slot. notes: the slots whose state is a text that names files.
        iteration: the settings of its loops, if it is an iteration.
        reason: the reason why a stream runs in micro-batches and not live. passed: see Unit.
        sorts: the planner has added it, and it sorts rows by event time for another batch.
        newest_of: the planner has added it, and it keeps the newest records of this live processor for its views.
        deterministic: its own failures make no result invalid. Its results are recorded before they count, and its
            state is recorded too or is the same on a replay.
        undetermined: its operations that may differ on a replay. properties: its inferred properties.
        sinks: the sinks of its results.
        dead_letter_topic: receives records that do not fit and results that are too large; None: there can be neither.
        fingerprint: by name, the parts that must stay the same so that its epochs stay valid.
        is_unordered: its results have no order, because its last step groups them.
        makes_rows: its plan has rows that it makes itself, whose origin Spark does not know.
        program: a digest of all that decides its state, if states that are not saved are computed again; else "".
        is_direct: its results go straight to its topic (`falkirk/plan/direct.py`).
        is_view: others read its newest epoch, and wait until there is one.
    """

    name: str
    log: LogId
    body: Body
    parameters: tuple[str, ...]
    inputs: tuple[BatchInput, ...]
    cut: Cut | ByTime
    policy: Policy
    schema: StructType
    state: StructType | None
    saves_all: bool
    slots: Mapping[str, StructType]
    notes: tuple[str, ...]
    iteration: Iteration | None
    reason: str
    passed: tuple[str, ...] = ()
    sorts: ByTime | None
    newest_of: str
    deterministic: bool
    undetermined: tuple[str, ...]
    properties: Properties
    sinks: tuple[DeclaredSink, ...]
    dead_letter_topic: LogId | None
    where: SourceLocation
    fingerprint: dict[str, str]
    is_unordered: bool = False
    makes_rows: bool = False
    program: str = ""
    is_direct: bool = False
    is_view: bool = False

    @property
    def released_to(self) -> str:
        """The common name of its sinks. They receive the same epochs, each in order."""
        return f"sinks of {self.name}"

    @property
    def is_stateful(self) -> bool:
        """Whether it has a state between epochs. Then its epochs run one after the other."""
        return self.state is not None or bool(self.slots) or bool(self.notes)

    @property
    def is_held(self) -> bool:
        """Whether its results or dead letters leave the application."""
        return bool(self.sinks) or self.dead_letter_topic is not None

    @property
    def interval_s(self) -> float:
        """The time from the arrival of a record until it need not be read again, as far as the clock decides it."""
        waits_s = self.cut.every_s if isinstance(self.cut, ByClock) else 0.0
        saves_by_the_clock = self.is_stateful and isinstance(self.policy, Lazy) and self.policy.when is None
        return waits_s + (self.policy.interval_s if saves_by_the_clock else 0.0)

    @property
    def saved_when(self) -> str:
        """When its state is saved, in a few words."""
        if self.saves_all or not isinstance(self.policy, Lazy):
            return "after each epoch"
        return (
            f"every {duration_text(self.policy.interval_s)}"
            if self.policy.when is None
            else "after the epochs that its policy chooses"
        )

    def logs(self) -> BatchLogs:
        """Return the facts that are needed about it while it does not run."""
        return BatchLogs(
            name=self.name,
            log=self.log,
            topics=tuple(i.log for i in self.inputs if i.topic is not None),
            files=tuple(i.log for i in self.inputs if i.folder is not None),
            sinks=tuple(sink.name for sink in self.sinks),
            dead_letters=self.dead_letter_topic,
            full_history=isinstance(self.policy, FullHistory),
        )

    def saves(self, epoch: EpochNumber, since_s: float) -> bool:
        """Return whether its policy saves the state at a complete epoch (Falkirk Wheel, §4.1).

        Args: since_s: seconds since the state was last saved.
        """
        return self.saves_all or not isinstance(self.policy, Lazy) or self.policy.saves(epoch, since_s)

    @property
    def is_saved_by_clock(self) -> bool:
        """Whether its policy saves the state at an interval."""
        return not self.saves_all and isinstance(self.policy, Lazy) and self.policy.when is None

    def saves_at_rest(self, since_s: float) -> bool:
        """Return whether its policy saves the state without a further epoch, because results may wait for it.

        Only a policy with a time interval does so.

        Args: since_s: seconds since the state was last saved.
        """
        lazy = self.policy
        return self.is_saved_by_clock and isinstance(lazy, Lazy) and since_s >= lazy.interval_s

    def reasons(self, *, waits: bool = True) -> Iterator[Reason]:
        """Yield the reasons of one self."""
        name = self.name
        yield from of_assertions(self.properties.assertions, name)
        if self.reason:
            yield Reason(
                kind="micro-batches", processor=name, where=self.where,
                text=f"{name} runs in micro-batches, because {self.reason}.",
            )  # fmt: skip
        if not self.undetermined:
            direct = " So its results need not be recorded before they are published." if self.is_direct else ""
            yield Reason(
                kind="deterministic", processor=name, short="deterministic", text=f"{same([name])}{direct}",
            )  # fmt: skip
            return
        cause = Undetermined(operations=self.undetermined, processor=name, where=self.where)
        differs, because = differing(self.undetermined, within=name), background(self.undetermined)
        if not self.deterministic:
            yield Reason(
                kind="unsaved", processor=name, operations=self.undetermined, where=self.where,
                short=differs_in_place(cause),
                text=f"{differs}{because}. The state of {name} depends on this, and {name} does not save its state "
                "after every epoch. So results wait until it is saved.",
            )  # fmt: skip
            return
        state = " and state" if self.saves_all and self.is_stateful else ""
        unchanged = "" if self.saves_all else " Its state is the same on replay."
        yield Reason(
            kind="recorded", processor=name, operations=self.undetermined, where=self.where,
            short=differs_in_place(cause, ", but each epoch is recorded before it is published"),
            text=f"{differs}{because}, but Falkirk records the results{state} of an epoch before it publishes any of "
            f"them.{unchanged}",
        )  # fmt: skip

    def durable(self) -> Iterator[str]:
        """Yield the durable data, and their places."""
        outside = [i for i in self.inputs if i.folder is not None or (i.topic is not None and not i.reads_hop)]
        yield from dict.fromkeys(f"input: {i.name if i.topic is None else f'topic {i.topic.topic}'}" for i in outside)
        kept = "in the home, and its results in their topic" if self.is_direct else "and its results, in the home"
        yield f"{self.name}: which input each epoch reads, {kept}"
        if self.is_stateful:
            yield f"{self.name}: state, saved in the home {self.saved_when}"

    def costs(self) -> Iterator[str]:
        """Yield the costs of its promise."""
        written = "recorded in the home" + (", and then written to the sinks" if self.sinks else "")
        written = "written once, directly to its topic" if self.is_direct else written
        took = "a few tenths of a second" if self.iteration is None else "longer with many rounds"
        yield f"{self.name}: a few Spark jobs for each epoch, {took}; each result is {written}"

    def awaited_s(self, spare: int) -> float | None:
        """Return how long it takes at most until its state is saved, if its policy goes by the clock."""
        by_the_clock = isinstance(self.policy, Lazy) and self.policy.when is None
        return self.policy.interval_s if by_the_clock else None

    def advice(self) -> Iterator[str]:
        """Yield changes with which results would be published earlier."""
        yield f"Give {self.name} the policy fk.Eager(): its state is then saved after each epoch."

    @property
    def reads(self) -> tuple[LogId, ...]:
        """The logs that it reads."""
        return tuple(given.log for given in self.inputs)

    @property
    def writes(self) -> LogId:
        """The log that it writes."""
        return self.log

    @property
    def processors(self) -> tuple[str, ...]:
        """The one processor that it runs."""
        return (self.name,)

    @property
    def held_for(self) -> str | None:
        """See Unit: its sinks, if anything leaves the application."""
        return self.released_to if self.is_held else None

    @property
    def tracked(self) -> tuple[LogId, ...]:
        """See Unit. Each sink itself knows the epochs that it has."""
        return (*self.reads, self.writes)

    @property
    def written(self) -> tuple[LogId, ...]:
        """See Unit."""
        dead = () if self.dead_letter_topic is None else (self.dead_letter_topic,)
        return (*(sink.to.log for sink in self.sinks if isinstance(sink.to, Kafka)), *dead)

    @property
    def may_change_steps(self) -> bool:
        """See Unit: its fingerprint has no steps."""
        return False

    def stage(self) -> Stage:
        """See Unit."""
        return Stage(
            name=self.name,
            inputs=tuple(dict.fromkeys(self.reads)),
            output=self.writes,
            deterministic=self.deterministic,
            views=tuple(i.log for i in self.inputs if i.view),
            times=TimeDomain.EPOCHS if self.iteration is None else TimeDomain.ROUNDS,
        )


def by_parameter(inputs: Sequence[BatchInput], rows: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Return the rows of inputs by parameter: those of a list of topics together. Args: rows: by the inputs' names."""
    found: dict[str, DataFrame] = {}
    for each in inputs:
        before, mine = found.get(each.parameter), rows[each.name]
        found[each.parameter] = mine if before is None else before.union(mine)
    return found


def stamp_column(given: BatchInput, partition: Column, offset: Column, row: Column) -> Column:
    """Return the stamps of an input's rows, as `STAMP_TYPE`."""
    parts = (F.lit(given.name), partition, offset, row)
    named = [cast(part, f.dataType).alias(f.name) for part, f in zip(parts, STAMP_TYPE.fields, strict=True)]
    return F.struct(*named).alias(given.stamped or STAMP)


def kept_in_words(
    state: StructType | None, slots: Mapping[str, StructType], iteration: Iteration | None
) -> str:  # fmt: skip
    """Return the state of a batch between epochs, in words; "" if it has none."""
    kept = [] if state is None else [*state.names]
    kept += [f"the state of {slot.rpartition('-')[0]}" for slot in slots]
    if iteration is not None:
        kept.append(f"the state of its loops, which run at most {iteration.rounds:,} rounds")
    return ", ".join(kept)
