"""Batches: the parts of an application that run as one DataFrame job per epoch, from logs to a log of epochs.

The user's function is called once on empty DataFrames, which tells what it returns; that it can run is known before
anything is read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from falkirk.analysis.properties import Properties
from falkirk.declare.cut import ByClock, ByTime, Cut
from falkirk.declare.endpoints import Files, Kafka
from falkirk.declare.parts import Iteration, Output
from falkirk.declare.policy import FullHistory, Lazy, Policy
from falkirk.declare.stream import Body
from falkirk.errors.location import SourceLocation
from falkirk.frames import stamped as frames
from falkirk.plan.reasons import Reason, Undetermined, background, differing, in_place, same
from falkirk.plan.region import BatchLogs

#: What says where a row comes from, of a parameter that is marked `fk.Stamped`: of a topic's row `row` is 0, of
#: another batch's `partition` is 0 and `offset` the number of the epoch.
STAMP_TYPE = StructType(
    [
        StructField("source", StringType()), StructField("partition", IntegerType()), StructField("offset", LongType()),
        StructField("row", LongType()),
    ]
)  # fmt: skip


#: The part of a fingerprint that says which columns there are in epochs; further ones may come to them.
SENDS = "sends"
#: The part that says what it keeps, and of an iteration by which program.
STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A log that a batch reads.

    Args:
        name: of the parameter that gets its rows.
        log: the topic, or the log of epochs of another batch.
        topic: a topic, with its schema. folder: of files, which are its records. Neither: a log of epochs.
        reads_hop: a topic of ours.
        view: only its newest complete epoch is read.
        schema: of the rows.
        sliced: it is a log of rows that are sorted by event time, of which an epoch reads slices.
        stamped: the column, of `STAMP_TYPE`, in which each row comes with its stamp; `schema` has it as well.
    """

    name: str
    log: str
    topic: Kafka | None = None
    folder: Files | None = None
    reads_hop: bool = False
    view: bool = False
    sliced: bool = False
    schema: StructType
    stamped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A region that runs as one DataFrame job per epoch.

    Args:
        name: unique in the application.
        log: the log of its epochs, in which what it sends stays until it was released and read.
        body, parameters: the user's function, and what it is called with, by name.
        cut: when an epoch is complete.
        schema, state: of what it returns, and of what it keeps from one epoch to the next, if anything.
        saves_all: the state is there after each epoch, by its policy or because the results are it.
        slots: what its operators keep, by slot. notes: the slots of which it is a text that names files.
        iteration: how its loops go, of one that is an iteration.
        reason: why it runs in micro-batches, of a stream that might have run live.
        sorts: it is the planner's, and sorts rows by event time for another.
        deterministic: what it has sent will never be taken back by itself: its results are recorded before they count,
            and its state is, too, or comes out the same on a replay.
        undetermined: those of its operations that may come out differently. properties: what is known of it.
        sinks: where its results are released to.
        dead_letter_topic: where records that do not fit go, and results that are too large; None when neither can be.
        fingerprint: what must stay the same for its epochs to stay meaningful, by name.
        is_unordered: its results are in no order, since it groups them last.
        makes_rows: there are rows in its plan that it makes itself, of which Spark does not say what they are.
        is_direct: its results go straight to its topic (`falkirk/plan/direct.py`).
    """

    name: str
    log: str
    body: Body
    parameters: tuple[str, ...]
    inputs: tuple[Input, ...]
    cut: Cut | ByTime
    policy: Policy
    schema: StructType
    state: StructType | None
    saves_all: bool
    slots: Mapping[str, StructType]
    notes: tuple[str, ...]
    iteration: Iteration | None
    reason: str
    sorts: ByTime | None
    deterministic: bool
    undetermined: tuple[str, ...]
    properties: Properties
    sinks: tuple[Output, ...]
    dead_letter_topic: str | None
    where: SourceLocation
    fingerprint: dict[str, str]
    is_unordered: bool = False
    makes_rows: bool = False
    is_direct: bool = False

    @property
    def released_to(self) -> str:
        """What its sinks are called together: they get the same epochs, each in order."""
        return f"sinks of {self.name}"

    @property
    def is_stateful(self) -> bool:
        """Whether it keeps anything from one epoch to the next: then one epoch is run after the other."""
        return self.state is not None or bool(self.slots) or bool(self.notes)

    @property
    def is_held(self) -> bool:
        """Whether anything leaves the application from here."""
        return bool(self.sinks) or self.dead_letter_topic is not None

    @property
    def interval_s(self) -> float:
        """From when something has come until it need not be read again, as far as the clock says."""
        waits_s = self.cut.every_s if isinstance(self.cut, ByClock) else 0.0
        saves_by_the_clock = self.is_stateful and isinstance(self.policy, Lazy) and self.policy.when is None
        return waits_s + (self.policy.interval_s if saves_by_the_clock else 0.0)

    def logs(self) -> BatchLogs:
        """Return what must be known of it while nothing of it runs."""
        return BatchLogs(
            name=self.name,
            log=self.log,
            topics=tuple(i.log for i in self.inputs if i.topic is not None),
            files=tuple(i.log for i in self.inputs if i.folder is not None),
            sinks=tuple(sink.name for sink in self.sinks),
            dead_letters=self.dead_letter_topic,
            full_history=isinstance(self.policy, FullHistory),
        )

    def saves(self, epoch: int, since_s: float) -> bool:
        """Tell whether its policy saves the state at a complete epoch (Falkirk Wheel, §4.1).

        Args: since_s: seconds since the state was last saved.
        """
        return self.saves_all or not isinstance(self.policy, Lazy) or self.policy.saves(epoch, since_s)

    def saves_at_rest(self, since_s: float) -> bool:
        """Tell whether its policy saves the state though no epoch comes at which to: by the clock alone, since results
        may wait for it. Args: since_s: seconds since the state was last saved."""
        lazy = self.policy
        by_the_clock = isinstance(lazy, Lazy) and lazy.when is None
        return not self.saves_all and by_the_clock and since_s >= lazy.interval_s

    def reasons(self, *, waits: bool = True) -> Iterator[Reason]:
        """Yield the reasons of one self."""
        name = self.name
        for word in self.properties.words:
            yield Reason(
                kind="declared",
                processor=name,
                short="declared deterministic",
                where=word.where,
                text=f"{name}: {word}.",
            )
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
        differs, because = differing(self.undetermined), background(self.undetermined)
        if not self.deterministic:
            yield Reason(
                kind="unsaved", processor=name, operations=self.undetermined, short=in_place(cause), where=self.where,
                text=f"{differs}, and the state of {name}, which depends on it, is not saved with each epoch. So "
                f"results wait until the state is saved.{because}",
            )  # fmt: skip
            return
        state = " and state" if self.saves_all and self.is_stateful else ""
        unchanged = "" if self.saves_all else " Its state is the same on replay."
        yield Reason(
            kind="recorded", processor=name, operations=self.undetermined, short="its epochs are recorded",
            where=self.where,
            text=f"{differs}, but Falkirk records the results{state} of an epoch before it publishes any of them."
            f"{unchanged}{because}",
        )  # fmt: skip

    def durable(self) -> Iterator[str]:
        """Yield what is durable, and where."""
        outside = [i for i in self.inputs if i.folder is not None or (i.topic is not None and not i.reads_hop)]
        yield from dict.fromkeys(f"input: {i.name}" for i in outside)
        kept = "cut in the home, its results in their topic" if self.is_direct else "cut and results in the home"
        yield f"{self.name}: each epoch's {kept}"
        if self.is_stateful:
            yield f"{self.name}: its state in the home, {self.fingerprint['saves']}"

    def costs(self) -> Iterator[str]:
        """Yield what its promise costs."""
        written = "written to its log, and from there to the output" if self.sinks else "written to its log"
        written = "written once, directly to its topic" if self.is_direct else written
        yield f"{self.name}: a few Spark jobs for each epoch, some tenths of a second; each result is {written}"

    def awaited_s(self, spare: int) -> float | None:
        """Return how long it takes at most until its state is saved, if its policy goes by the clock."""
        by_the_clock = isinstance(self.policy, Lazy) and self.policy.when is None
        return self.policy.interval_s if by_the_clock else None

    def advice(self) -> Iterator[str]:
        """Yield what would let results be published earlier."""
        yield f"Declare {self.name!r} under fk.Eager(): its state is then saved at each epoch."

    @property
    def reads(self) -> tuple[str, ...]:
        """The logs that it reads."""
        return tuple(given.log for given in self.inputs)

    @property
    def writes(self) -> str:
        """The log that it writes."""
        return self.log

    @property
    def processors(self) -> tuple[str, ...]:
        """The one processor that it runs."""
        return (self.name,)


def stamp_column(given: Input, partition: Column, offset: Column, row: Column) -> Column:
    """Return the stamps of an input's rows, as `STAMP_TYPE`."""
    parts = (F.lit(given.name), partition, offset, row)
    named = [part.cast(f.dataType).alias(f.name) for part, f in zip(parts, STAMP_TYPE.fields, strict=True)]
    return F.struct(*named).alias(given.stamped or frames.STAMP)


def epoch_log(processor: str) -> str:
    """Return what the log of a batch's epochs is called; no topic can have such a name."""
    return f"epochs:{processor}"


def is_epoch_log(log: str) -> bool:
    """Tell a log of epochs from a topic."""
    return log.startswith("epochs:")


def file_log(source: str) -> str:
    """Return what the log is called whose records are the files of a source."""
    return f"files:{source}"


def is_file_log(log: str) -> bool:
    """Tell a log of files from a topic."""
    return log.startswith("files:")


def kept_in_words(
    state: StructType | None, slots: Mapping[str, StructType], iteration: Iteration | None
) -> str:  # fmt: skip
    """Return the state of a batch between epochs, in words; "" if it has none."""
    kept = [] if state is None else [*state.names]
    kept += [f"the state of {slot.rpartition('-')[0]}" for slot in slots]
    if iteration is not None:
        kept.append(f"the state of its loops, of at most {iteration.rounds:,} rounds")
    return ", ".join(kept)
