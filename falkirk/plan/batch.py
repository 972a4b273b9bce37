"""Batches: the parts of an application that run as one DataFrame job per epoch, from logs to a log of epochs.

The user's function is called once on empty DataFrames, which tells what it returns; that it can run is known before
anything is read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from falkirk.app import Processor, Sink
from falkirk.cut import ByClock, Cut
from falkirk.endpoints import Console, Files, Kafka, Sql
from falkirk.errors import DefinitionError, GuaranteeError
from falkirk.location import SourceLocation
from falkirk.plan import avro, determinism, frames
from falkirk.plan.promises import check_key
from falkirk.plan.region import BatchLogs
from falkirk.policy import Eager, Lazy, Policy
from falkirk.stream import Body

#: How often the view of a live processor is brought up to date.
VIEW_EVERY_S = 1.0
#: The column with a row's offset.
PLACE = "__falkirk_place"


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
        placed: each row comes with its offset, in a column of ours.
    """

    name: str
    log: str
    topic: Kafka | None = None
    folder: Files | None = None
    reads_hop: bool = False
    view: bool = False
    schema: StructType
    placed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A region that runs as one DataFrame job per epoch.

    Args:
        name: unique in the application.
        log: the log of its epochs, in which what it sends stays until it was released and read.
        body, parameters: the user's function, and what it is called with, by name.
        cut: when an epoch is complete.
        schema, state: of what it returns, and of what it keeps from one epoch to the next, if anything.
        deterministic: what it has sent will never be taken back by itself: its results are recorded before they count,
            and its state is, too, or comes out the same on a replay.
        undetermined: those of its operations that may come out differently.
        sinks: where its results are released to.
        dead_letter_topic: where records that do not fit go, and results that are too large; None when neither can be.
        fingerprint: what must stay the same for its epochs to stay meaningful, by name.
    """

    name: str
    log: str
    body: Body
    parameters: tuple[str, ...]
    inputs: tuple[Input, ...]
    cut: Cut
    policy: Policy
    schema: StructType
    state: StructType | None
    deterministic: bool
    undetermined: tuple[str, ...]
    sinks: tuple[Sink, ...]
    dead_letter_topic: str | None
    where: SourceLocation
    fingerprint: dict[str, str]

    @property
    def released_to(self) -> str:
        """What its sinks are called together: they get the same epochs, each in order."""
        return f"sinks of {self.name}"

    @property
    def is_held(self) -> bool:
        """Whether anything leaves the application from here."""
        return bool(self.sinks) or self.dead_letter_topic is not None

    def logs(self) -> BatchLogs:
        """Return what must be known of it while nothing of it runs."""
        return BatchLogs(
            name=self.name,
            log=self.log,
            topics=tuple(i.log for i in self.inputs if i.topic is not None),
            files=tuple(i.log for i in self.inputs if i.folder is not None),
            sinks=tuple(sink.name for sink in self.sinks),
            dead_letters=self.dead_letter_topic,
        )

    def saves(self, epoch: int, since_s: float) -> bool:
        """Tell whether its policy saves the state at a complete epoch (Falkirk Wheel, §4.1).

        Args: since_s: seconds since the state was last saved.
        """
        if self.state is None or not isinstance(self.policy, Lazy):
            return True
        return self.policy.saves(epoch, since_s)


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


def with_place(schema: StructType) -> StructType:
    """Return the columns of rows that come with their offset."""
    return StructType([*schema.fields, StructField(PLACE, LongType())])


def view_of(processor: Processor, keys: tuple[str, ...], schema: StructType) -> Processor:
    """Return the batch that keeps the newest record of each key of a live processor, for those who read it as a view.

    A key's records are in one partition of the hop, so their offsets say which is the newest.
    """
    columns = [field.name for field in schema.fields]

    def newest(changes: DataFrame, view: DataFrame) -> DataFrame:
        record = F.struct(*[F.col(f"`{c}`") for c in columns])
        last = changes.groupBy(*[F.col(f"`{k}`") for k in keys]).agg(F.max_by(record, F.col(PLACE)).alias("record"))
        changed = last.select("record.*")
        joined = [view[f"`{k}`"].eqNullSafe(changed[f"`{k}`"]) for k in keys]
        return view.join(changed, joined, "left_anti").select(*columns).unionByName(changed)

    name = f"{processor.name}-view"
    return Processor(
        name=name,
        body=newest,
        reads=(processor.name, name),
        policy=Eager(),
        where=processor.where,
        cut=ByClock(every_s=VIEW_EVERY_S),
        state=", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in schema.fields),
    )


def plan_batch(
    processor: Processor,
    sinks: tuple[Sink, ...],
    inputs: tuple[Input, ...],
    session: SparkSession,
    *,
    dead_letter_topic: str | None,
) -> Batch:
    """Return the batch of a processor whose inputs are known.

    Raises: DefinitionError: `BATCH_INVALID`, `SCHEMA_INVALID`, `COLUMN_MISSING`, as `returned`.
    """
    state = None if processor.state is None else _schema(processor.state, session, processor.where)
    given: dict[str, DataFrame] = {i.name: session.createDataFrame([], i.schema) for i in inputs}
    if state is not None:
        given[processor.name] = session.createDataFrame([], state)
    try:
        with frames.quiet():
            result, kept = returned(processor.name, processor.body, processor.reads, given, state, processor.where)
    except (PySparkException, Py4JJavaError, TypeError, AttributeError) as error:
        raise DefinitionError(
            "BATCH_INVALID",
            f"batch {processor.name!r} does not run: {frames.first_line(error)}",
            where=processor.where,
            processor=processor.name,
        ) from error
    for sink in sinks:
        check_key(sink, result.columns)
        avro.check_sink(sink, result, result.columns)
    doubtful = {o for frame in (result, kept) if frame is not None for o in determinism.undetermined_in_batch(frame)}
    if doubtful and kept is not None and kept is not result:
        raise GuaranteeError(
            "STATE_APART",
            f"batch {processor.name!r} returns a result and a state, and {', '.join(sorted(doubtful))} may come out "
            "differently in the one and the other.",
            where=processor.where,
            hint="Return one DataFrame that is both, or leave that out.",
            operations=tuple(sorted(doubtful)),
            processor=processor.name,
        )
    saves_all = state is None or not isinstance(processor.policy, Lazy)
    return Batch(
        name=processor.name,
        log=epoch_log(processor.name),
        body=processor.body,
        parameters=processor.reads,
        inputs=inputs,
        cut=_cut(processor),
        policy=processor.policy,
        schema=result.schema,
        state=state,
        deterministic=saves_all or not doubtful,
        undetermined=tuple(sorted(doubtful)),
        sinks=sinks,
        dead_letter_topic=dead_letter_topic,
        where=processor.where,
        fingerprint={
            "reads": ", ".join(f"{i.log} (newest epoch)" if i.view else i.log for i in inputs),
            "state": "none" if state is None else state.simpleString(),
            "saves": "at each epoch" if saves_all else "by its policy",
            "writes": "; ".join(f"{s.name}: {address(s)}" for s in sinks) or "nothing outside",
        },
    )


def returned(
    name: str,
    body: Callable[..., Any],
    reads: tuple[str, ...],
    given: Mapping[str, DataFrame],
    state: StructType | None,
    where: object,
) -> tuple[DataFrame, DataFrame | None]:
    """Call a batch's function; return its result and its next state, if it keeps any.

    Raises: DefinitionError: `BATCH_INVALID`: it does not return what it should. Whatever it raises itself.
    """
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
    frames.check_names(result.columns, where)
    if state is not None and kept is not None:
        missing = [field.name for field in state.fields if field.name not in kept.columns]
        if missing:
            raise DefinitionError(
                "COLUMN_MISSING",
                f"the state of batch {name!r} has no column {missing[0]!r}.",
                where=where,
                hint=f"Columns here: {', '.join(kept.columns)}.",
                column=missing[0],
                columns=tuple(kept.columns),
            )
    return result, kept


def _schema(ddl: str, session: SparkSession, where: object) -> StructType:
    try:
        return session.createDataFrame([], ddl).schema
    except PySparkException as error:
        raise DefinitionError(
            "SCHEMA_INVALID",
            f"state={ddl!r} is not Spark DDL: {frames.first_line(error)}.",
            where=where,
            hint='Write columns as "id STRING, n LONG".',
            schema=ddl,
        ) from error


def _cut(processor: Processor) -> Cut:
    assert processor.cut is not None, "only a batch has epochs"
    return processor.cut


def address(sink: Sink) -> str:
    """Return where a sink is, without what is secret about it."""
    to = sink.to
    if isinstance(to, Kafka):
        return f"topic {to.topic}"
    if isinstance(to, Console):
        return "the terminal"
    return f"table {to.table}" if isinstance(to, Sql) else f"files in {to.path}"
