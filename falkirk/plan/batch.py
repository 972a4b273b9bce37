"""Batches: the parts of an application that run as one DataFrame job per epoch, from logs to a log of epochs.

The planner calls the user's function on empty DataFrames. This shows the columns that it returns, and errors appear
before any input is read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from falkirk.analysis.columns import require
from falkirk.analysis.escapes import watched
from falkirk.analysis.properties import Properties, of_batch
from falkirk.declare.cut import SLICE, ByClock, ByTime, Cut
from falkirk.declare.endpoints import Files, Kafka
from falkirk.declare.parts import Iteration, Processor, Sink
from falkirk.declare.policy import FullHistory, Lazy, Policy
from falkirk.declare.stream import Body
from falkirk.errors import DefinitionError
from falkirk.errors.location import SourceLocation
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.frames import avro
from falkirk.frames import stamped as frames
from falkirk.operators.call import Call, EpochContext, calling
from falkirk.operators.functions import schema_of
from falkirk.operators.iteration import iterating
from falkirk.operators.rehearsal import Rehearsal
from falkirk.plan.batch_determinism import Called, doubts_of
from falkirk.plan.fingerprint import WRITTEN_AS, of_session
from falkirk.plan.promises import check_key
from falkirk.plan.published import address, form
from falkirk.plan.region import BatchLogs

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
STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A log that a batch reads.

    Args:
        name: the parameter that gets its rows.
        log: the topic, or the log of epochs of another batch.
        topic: a topic, with its schema. folder: a folder whose files are the records. Neither: a log of epochs.
        reads_hop: the topic is internal.
        view: only its newest complete epoch is read.
        schema: the schema of the rows.
        sliced: it is a log of rows sorted by event time, and an epoch reads slices of it.
        stamped: the column with the stamp of each row, of `STAMP_TYPE`. `schema` has this column too.
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
        log: the log of its epochs. Results stay there until they were released and read.
        body, parameters: the user's function, and the names of its parameters.
        cut: decides when an epoch is complete.
        schema: the schema of the results. state: the schema of the state between epochs, or None.
        saves_all: the state is saved after each epoch, by its policy or because the results are the state.
        slots: the states of its operators, by slot. notes: the slots whose state is a text that names files.
        iteration: the settings of its loops, if it is an iteration.
        reason: the reason why a stream runs in micro-batches and not live.
        sorts: the planner has added it, and it sorts rows by event time for another batch.
        deterministic: it never takes back results by itself. Its results are recorded before they count, and its state
            is recorded too or is the same on a replay.
        undetermined: its operations that may differ on a replay. properties: its inferred properties.
        sinks: the sinks of its results.
        dead_letter_topic: receives records that do not fit and results that are too large; None: there can be neither.
        fingerprint: by name, the parts that must stay the same so that its epochs stay valid.
        is_unordered: its results have no order, because its last step groups them.
        makes_rows: its plan has rows that it makes itself, whose origin Spark does not know.
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
    sinks: tuple[Sink, ...]
    dead_letter_topic: str | None
    where: SourceLocation
    fingerprint: dict[str, str]
    is_unordered: bool = False
    makes_rows: bool = False
    is_direct: bool = False

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

    def saves(self, epoch: int, since_s: float) -> bool:
        """Return whether its policy saves the state at a complete epoch (Falkirk Wheel, §4.1).

        Args: since_s: seconds since the state was last saved.
        """
        return self.saves_all or not isinstance(self.policy, Lazy) or self.policy.saves(epoch, since_s)

    def saves_at_rest(self, since_s: float) -> bool:
        """Return whether its policy saves the state without a further epoch, because results may wait for it.

        Only a policy with a time interval does so.

        Args: since_s: seconds since the state was last saved.
        """
        lazy = self.policy
        by_the_clock = isinstance(lazy, Lazy) and lazy.when is None
        return not self.saves_all and by_the_clock and since_s >= lazy.interval_s


def stamp_column(given: Input, partition: Column, offset: Column, row: Column) -> Column:
    """Return the stamps of an input's rows, as `STAMP_TYPE`."""
    parts = (F.lit(given.name), partition, offset, row)
    named = [part.cast(f.dataType).alias(f.name) for part, f in zip(parts, STAMP_TYPE.fields, strict=True)]
    return F.struct(*named).alias(given.stamped or frames.STAMP)


def epoch_log(processor: str) -> str:
    """Return the name of a batch's log of epochs. No topic can have such a name."""
    return f"epochs:{processor}"


def is_epoch_log(log: str) -> bool:
    """Return whether a log is a log of epochs, not a topic."""
    return log.startswith("epochs:")


def stamped(given: Input, column: str, where: object) -> Input:
    """Return an input with a column for the stamps of its rows. Raises: DefinitionError: `COLUMN_TWICE`."""
    frames.check_names([*given.schema.names, column], where, ours=(frames.STAMP,))
    return replace(given, schema=StructType([*given.schema.fields, StructField(column, STAMP_TYPE)]), stamped=column)


def file_log(source: str) -> str:
    """Return the name of the log whose records are the files of a source."""
    return f"files:{source}"


def is_file_log(log: str) -> bool:
    """Return whether a log is a log of files, not a topic."""
    return log.startswith("files:")


def plan_batch(
    processor: Processor,
    sinks: tuple[Sink, ...],
    inputs: tuple[Input, ...],
    session: SparkSession,
    *,
    dead_letter_topic: str,
    may_fail: bool,
    sorts: ByTime | None = None,
) -> Batch:
    """Return the batch of a processor whose inputs are known.

    Args: dead_letter_topic: receives records that do not fit. may_fail: its inputs or sinks may have such records.
    Raises: DefinitionError: `BATCH_INVALID`, `SCHEMA_INVALID`, `COLUMN_MISSING`, `POLICY_MISPLACED`, as `returned`.
        GuaranteeError: `STATE_APART`.
    """
    state = None if processor.state is None else schema_of(processor.state, "state", processor.where)
    given: dict[str, DataFrame] = {i.name: session.createDataFrame([], i.schema) for i in inputs}
    if state is not None:
        given[processor.name] = session.createDataFrame([], state)
    began = datetime.fromtimestamp(0, UTC) if isinstance(processor.cut, ByTime) else None
    body = iterating(processor)
    epoch = EpochContext(views={i.name: 0 for i in inputs if i.view}, begins=began, ends=began)

    def called() -> Called:
        rehearsal = Rehearsal(session, epoch)
        with watched(given) as watch:
            result, kept = returned(processor.name, body, processor.reads, given, state, processor.where, rehearsal)
        return Called(result=result, kept=kept, rehearsal=rehearsal, leaves=watch.leaves, escaped=watch.found)

    try:
        with frames.quiet():
            call = called()
            doubts = doubts_of(processor, call, called)
    except (*SPARK_ERRORS, TypeError, AttributeError) as error:
        raise DefinitionError(
            "BATCH_INVALID",
            f"batch {processor.name!r} does not run: {first_line(error)}",
            where=processor.where,
            hint=_hint(error),
            processor=processor.name,
        ) from error
    result, rehearsal = call.result, call.rehearsal
    for sink in sinks:
        check_key(sink, result.columns)
        avro.check_sink(sink, result, result.columns)
    slots = {slot: frame.schema for slot, frame in rehearsal.kept.items()}
    _check_policy(processor, stateful=state is not None or bool(slots) or bool(rehearsal.notes))
    memory = _kept(state, slots, rehearsal.notes)
    by_time = processor.cut if isinstance(processor.cut, ByTime) else sorts
    is_recorded = call.is_one and not slots and not rehearsal.notes
    saves_all = is_recorded or not isinstance(processor.policy, Lazy)
    return Batch(
        name=processor.name,
        log=epoch_log(processor.name),
        body=body,
        parameters=processor.reads,
        inputs=inputs,
        cut=_cut(processor),
        policy=processor.policy,
        schema=result.schema,
        state=state,
        saves_all=saves_all,
        slots=slots,
        notes=tuple(rehearsal.notes),
        iteration=processor.iteration,
        reason=processor.engine_reason,
        sorts=sorts,
        deterministic=saves_all or not doubts.in_state,
        undetermined=doubts.operations,
        properties=of_batch(
            doubts.found, doubts.operations, doubts.words, kept_in_words(state, slots, processor.iteration)
        ),
        sinks=sinks,
        dead_letter_topic=dead_letter_topic if may_fail or rehearsal.letters else None,
        where=processor.where,
        is_unordered=frames.has_no_order(result),
        makes_rows=call.makes_rows(given),
        fingerprint={
            SENDS: ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in result.schema.fields),
            "reads": ", ".join(f"{i.log} (newest epoch)" if i.view else i.log for i in inputs),
            STATE: memory or "none",
            "saves": "by its policy" if isinstance(processor.policy, Lazy) else "at each epoch",
            **({} if by_time is None else {"event time": str(by_time)}),
            "writes": "; ".join(f"{s.name}: {address(s)}" for s in sinks) or "nothing outside",
            WRITTEN_AS: "; ".join(f"{s.name}: {form(s.to)}" for s in sinks) or "nothing outside",
            **of_session(session),
        },
    )


def _hint(error: Exception) -> str:
    """Return the hint for a function that uses its DataFrame like a stream."""
    found = [n for n in ("map_rows", "stateful") if isinstance(error, AttributeError) and n in str(error)]
    return f"It is called with DataFrames: write fk.{found[0]}(rows, …)." if found else ""


def returned(
    name: str,
    body: Callable[..., Any],
    reads: tuple[str, ...],
    given: Mapping[str, DataFrame],
    state: StructType | None,
    where: object,
    call: Call,
) -> tuple[DataFrame, DataFrame | None]:
    """Call a batch's function; return its result and its next state, or None if it has no state.

    The states of its operators are in `call`.

    Raises: DefinitionError: `BATCH_INVALID`: it does not return a DataFrame. Errors of the function.
    """
    with calling(call):
        found = body(*[given[parameter] for parameter in reads])
    result, kept = found if isinstance(found, tuple) and len(found) == 2 and state is not None else (found, None)
    if state is not None and kept is None:
        kept = result
    for frame, what in ((result, "a result"), (result if kept is None else kept, "a state")):
        if not isinstance(frame, DataFrame):
            raise DefinitionError(
                "BATCH_INVALID",
                f"batch {name!r} returns {type(frame).__name__} as {what}.",
                where=where,
                hint="Return a DataFrame, or with state= a DataFrame or (result, state).",
                processor=name,
            )
    assert isinstance(result, DataFrame)
    frames.check_names(result.columns, where, ours=(frames.STAMP, SLICE))
    if state is not None and kept is not None:
        require(
            state.names, kept.columns, where, lambda column: f"the state of batch {name!r} has no column {column!r}."
        )
    return result, kept


def _check_policy(processor: Processor, *, stateful: bool) -> None:
    """Refuse a policy for states if the batch has no state. Raises: DefinitionError: `POLICY_MISPLACED`."""
    if isinstance(processor.policy, Lazy) and not stateful:
        raise DefinitionError(
            "POLICY_MISPLACED",
            f"batch {processor.name!r} has no state that fk.Lazy() could save.",
            where=processor.where,
            hint="Use fk.LogSends() or fk.FullHistory(), or give it state=.",
            policy=processor.policy,
        )


def kept_in_words(
    state: StructType | None, slots: Mapping[str, StructType], iteration: Iteration | None
) -> str:  # fmt: skip
    """Return the state of a batch between epochs, in words; "" if it has none."""
    kept = [] if state is None else [*state.names]
    kept += [f"the state of {slot.rpartition('-')[0]}" for slot in slots]
    if iteration is not None:
        kept.append(f"the state of its loops, of at most {iteration.rounds:,} rounds")
    return ", ".join(kept)


def _kept(state: StructType | None, slots: Mapping[str, StructType], notes: Mapping[str, str]) -> str:
    kept = ([] if state is None else [state.simpleString()]) + [f"{s}: {t.simpleString()}" for s, t in slots.items()]
    return "; ".join([*kept, *(f"{slot}: {shape}" for slot, shape in notes.items())])


def _cut(processor: Processor) -> Cut | ByTime:
    assert processor.cut is not None, "only a batch has epochs"
    return processor.cut
