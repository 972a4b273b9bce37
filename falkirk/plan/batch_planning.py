"""Planning of batches: calls a batch's function on empty DataFrames, and infers all about it before anything runs.

The call shows the function's result and state, so a function that can't run is refused before anything is read.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from falkirk.declare.cut import SLICE, ByTime, Cut
from falkirk.declare.parts import DeclaredProcessor, DeclaredSink
from falkirk.declare.policy import Lazy
from falkirk.errors.conditions.plan import BATCH_INVALID, BATCH_INVALID_RESULT, POLICY_MISPLACED_LAZY
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.plan import mechanisms
from falkirk.plan.batch import SENDS, STAMP_TYPE, STATE_PART, Batch, BatchInput, kept_in_words
from falkirk.plan.batch_determinism import Called, differences_of
from falkirk.plan.fingerprint import READS, WRITTEN_AS, of_session
from falkirk.plan.lake import check_table_columns
from falkirk.plan.promises import check_sink_key
from falkirk.plan.published import form, place
from falkirk.steps.batch.call import Call, EpochContext, calling
from falkirk.steps.batch.iteration import iterating
from falkirk.steps.batch.rehearsal import Rehearsal
from falkirk.steps.dataframes import plans
from falkirk.steps.dataframes.empty import no_rows
from falkirk.steps.dataframes.names import STAMP
from falkirk.steps.dataframes.quiet import quiet
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.python_steps import schema_of
from falkirk.steps.sources.written import check_written
from falkirk.steps.static_analysis.columns import require_columns
from falkirk.steps.static_analysis.escapes import watched
from falkirk.steps.static_analysis.properties import batch_properties
from falkirk.theory.ids import LogId


def stamped(given: BatchInput, column: str, where: object) -> BatchInput:
    """Return an input whose rows come with their stamps. Raises: DefinitionError: `COLUMN_TWICE`."""
    frames.check_names([*given.schema.names, column], where, ours=(STAMP,))
    return replace(given, schema=StructType([*given.schema.fields, StructField(column, STAMP_TYPE)]), stamped=column)


def plan_batch(
    processor: DeclaredProcessor,
    sinks: tuple[DeclaredSink, ...],
    inputs: tuple[BatchInput, ...],
    session: SparkSession,
    *,
    dead_letter_topic: LogId,
    may_fail: bool,
    sorts: ByTime | None = None,
) -> Batch:
    """Return the batch of a processor whose inputs are known.

    Args: dead_letter_topic: for rows that do not fit. may_fail: there may be some, even if its function is correct.
    Raises: DefinitionError: `BATCH_INVALID`, `SCHEMA_INVALID`, `COLUMN_MISSING`, `POLICY_MISPLACED`, as `returned`.
        GuaranteeError: `STATE_APART`.
    """
    state = None if processor.state is None else schema_of(processor.state, "state", processor.where)
    given: dict[str, DataFrame] = {i.parameter: no_rows(session, i.schema) for i in inputs}
    if state is not None:
        given[processor.name] = no_rows(session, state)
    began = datetime.fromtimestamp(0, UTC) if isinstance(processor.cut, ByTime) else None
    body = iterating(processor)
    epoch = EpochContext(views={i.name: 0 for i in inputs if i.view}, begins=began, ends=began)

    def called(body: Callable[..., Any]) -> Called:
        rehearsal = Rehearsal(session, epoch)
        with watched(given) as watch:
            result, kept = returned(processor.name, body, processor.reads, given, state, processor.where, rehearsal)
        return Called(result=result, kept=kept, rehearsal=rehearsal, leaves=watch.leaves, escaped=watch.found)

    try:
        with quiet():
            call = called(body)
            differences = differences_of(processor, call, lambda: called(processor.body_again or body))
    except (*SPARK_ERRORS, TypeError, AttributeError) as error:
        raise BATCH_INVALID.error(
            where=processor.where, processor=processor.name, reason=first_line(error), advice=_hint(error)
        ) from error
    result, rehearsal = call.result, call.rehearsal
    for sink in sinks:
        check_sink_key(sink, result.columns)
        check_written(sink, result, result.columns)
        check_table_columns(sink, result.schema)
    slots = {slot: frame.schema for slot, frame in rehearsal.kept.items()}
    _check_policy(processor, stateful=state is not None or bool(slots) or bool(rehearsal.notes))
    memory = _kept(state, slots, rehearsal.notes)
    by_time = processor.cut if isinstance(processor.cut, ByTime) else sorts
    is_recorded = call.is_one and not slots and not rehearsal.notes
    saves_all = is_recorded or not isinstance(processor.policy, Lazy)
    is_stateful = state is not None or bool(slots)
    is_replayed = is_stateful and not saves_all and processor.iteration is None  # a loop's program is in its notes
    return Batch(
        name=processor.name,
        log=LogId.of_epochs(processor.name),
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
        passed=processor.passed,
        sorts=sorts,
        newest_of=processor.newest_of,
        deterministic=saves_all or not differences.in_state,
        undetermined=differences.operations,
        properties=batch_properties(
            differences.found,
            differences.operations,
            differences.assertions,
            kept_in_words(state, slots, processor.iteration),
        ),
        sinks=sinks,
        dead_letter_topic=dead_letter_topic if may_fail or rehearsal.letters else None,
        where=processor.where,
        is_unordered=plans.has_no_order(result),
        makes_rows=call.makes_rows(given),
        program=call.program_of_state() if is_replayed else "",
        fingerprint={
            SENDS: ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in result.schema.fields),
            READS: ", ".join(f"{i.log} (newest epoch)" if i.view else i.log for i in inputs),
            STATE_PART: memory or "none",
            "saves": "by its policy" if isinstance(processor.policy, Lazy) else "at each epoch",
            **({} if by_time is None else {"event time": str(by_time)}),
            "writes": "; ".join(f"{s.name}: {place(s.to)}" for s in sinks) or "nothing outside",
            WRITTEN_AS: "; ".join(f"{s.name}: {form(s.to)}" for s in sinks) or "nothing outside",
            **of_session(session),
        },
    )


#: The replacements of a stream's methods in a function that gets DataFrames.
_INSTEAD = {
    "map_rows": "fk.map_rows(rows, …)", "stateful": "fk.stateful(rows, …)", "explode": "F.explode(column) in a select",
}  # fmt: skip


def _hint(error: Exception) -> str:
    """Return what to do about a function that takes its DataFrame for a stream."""
    found = [_INSTEAD[n] for n in _INSTEAD if isinstance(error, AttributeError) and n in str(error)]
    return f"It is called with DataFrames: write {found[0]}." if found else ""


def returned(
    name: str,
    body: Callable[..., Any],
    reads: tuple[str, ...],
    given: Mapping[str, DataFrame],
    state: StructType | None,
    where: object,
    call: Call,
) -> tuple[DataFrame, DataFrame | None]:
    """Call a batch's function; return its result and its next state, if it keeps any. The state of its operators is
    in `call`.

    Raises: DefinitionError: `BATCH_INVALID`: it returns the wrong kind of value. Also the errors of the function.
    """
    with calling(call):
        found = body(*[given[parameter] for parameter in reads])
    result, kept = found if isinstance(found, tuple) and len(found) == 2 and state is not None else (found, None)
    if state is not None and kept is None:
        kept = result
    for frame, what in ((result, "a result"), (result if kept is None else kept, "a state")):
        if not isinstance(frame, DataFrame):
            raise BATCH_INVALID_RESULT.error(where=where, processor=name, name=type(frame).__name__, what=what)
    assert isinstance(result, DataFrame)
    frames.check_names(result.columns, where, ours=(STAMP, SLICE))
    if state is not None and kept is not None:
        require_columns(
            state.names, kept.columns, where, lambda column: f"the state of batch {name!r} has no column {column!r}."
        )
    return result, kept


def _check_policy(processor: DeclaredProcessor, *, stateful: bool) -> None:
    """See that a policy of states is that of a batch that has one. Raises: DefinitionError: `POLICY_MISPLACED`."""
    mechanisms.check_batched(processor, "it does not run live")
    if isinstance(processor.policy, Lazy) and not stateful:
        raise POLICY_MISPLACED_LAZY.error(where=processor.where, policy=processor.policy, processor=processor.name)


def _kept(state: StructType | None, slots: Mapping[str, StructType], notes: Mapping[str, str]) -> str:
    kept = ([] if state is None else [state.simpleString()]) + [f"{s}: {t.simpleString()}" for s, t in slots.items()]
    return "; ".join([*kept, *(f"{slot}: {shape}" for slot, shape in notes.items())])


def _cut(processor: DeclaredProcessor) -> Cut | ByTime:
    assert processor.cut is not None, "only a batch has epochs"
    return processor.cut
