"""Python in live regions: decides whether `map_rows`, `stateful` and UDFs run live, and what a replay may change.

A Python function counts as non-deterministic unless the user declares it with `fk.deterministic`. Its live results wait
for a checkpoint, which takes longer than a micro-batch. So without the declaration it runs live only where the user
asks for that, or where micro-batches are impossible.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.types import NullType, StructField, StructType, _parse_datatype_json_string

from falkirk.declare.asserting import DeterminismAssertion, assertion_of
from falkirk.declare.keys import key_columns
from falkirk.declare.nodes import CLOCKED, Step, functions_of
from falkirk.declare.parts import DeclaredProcessor
from falkirk.declare.policy import Acknowledged, Snapshots, duration_s
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.batch import OPTION_UNKNOWN_POISON
from falkirk.errors.conditions.plan import STEP_INVALID_STREAM
from falkirk.plan.event_time import JOIN, is_clocked
from falkirk.steps.live.python_command import START_S
from falkirk.steps.live.python_steps import added_keys, check_apart, check_types, schema_of
from falkirk.steps.live.python_udfs import TIMEOUT_S
from falkirk.steps.live.stamped import Frame
from falkirk.steps.static_analysis import udfs
from falkirk.steps.static_analysis.functions import CLOCK_TIMER
from falkirk.steps.static_analysis.udfs import ARROW, CALL, ONE_BY_ONE, KnownUdf

#: The steps that call a function of rows.
PYTHON_STEPS = ("map_rows", "stateful")
#: The steps whose columns may have UDFs.
_WITH_UDFS = ("select", "selectExpr", "where", "withColumns", "explode")
_BROADCASTS = "uses a broadcast variable, or is larger than 1 MB"
#: Spark's old conversion of values for UDFs, through pandas.
_LEGACY = "spark.sql.legacy.execution.pythonUDF.pandas.conversion.enabled"


def python_against_live(processor: DeclaredProcessor, steps: Sequence[Step]) -> str | None:
    """Return why a processor's Python function can't run live, or None. Args: steps: upstream first."""
    calls = [(step, udfs.of_values(step.arguments)) for step in steps]
    calling = [(step, known) for step, known in calls if step.operation in PYTHON_STEPS or known]
    if not calling:
        return None
    (step, _), operations = calling[0], {each.operation for each in steps}
    odd = next(((each, udf) for each, known in calling for udf in known if udf.kind not in ONE_BY_ONE), None)
    reason, undeclared = None, _undeclared(processor, calling)
    if JOIN in operations:
        reason = "and does not run live in a processor with a join()"
    elif odd is not None:
        step, reason = odd[0], f"and {odd[1].name}() takes more than one row at a time"
    elif undeclared is not None and not _must_be_live(processor, operations):
        step, reason = undeclared[0], f"and {undeclared[1]}, so live results would wait"
    return None if reason is None else f"{step.operation}() calls Python, {reason} ({step.where})"


def longest_call_s(steps: Sequence[Step], *, calls_udfs: bool) -> float:
    """Return the longest time in seconds that a record may wait for Python in a live region; 0: it calls none.

    A process that has not answered in time is replaced once (PythonCalls.java), and the next one needs time to start.
    """
    limits_s = [duration_s(step.arguments[1]["timeout"]) for step in steps if step.operation in PYTHON_STEPS]
    limits_s += [TIMEOUT_S] if calls_udfs else []
    return 2 * max(limits_s) + START_S if limits_s else 0.0


def _undeclared(
    processor: DeclaredProcessor, calling: Sequence[tuple[Step, Sequence[KnownUdf]]]
) -> tuple[Step, str] | None:
    """Return the first step with a function that counts as non-deterministic, and the reason; None: there is none."""
    if processor.assertion is not None:
        return None
    for step, known in calling:
        for function in functions_of(step):
            if assertion_of(function) is None:
                return step, f"{function_name(function)}() is not declared with fk.deterministic"
        for udf in known:
            if udf.is_random:
                return step, f"{udf.name}() is marked with asNondeterministic()"
            if udf.needs_broadcasts:
                return step, f"{udf.name}() {_BROADCASTS}"
            if udf.assertion is None:
                return step, f"{udf.name}() is not declared with fk.deterministic"
    return None


def _must_be_live(processor: DeclaredProcessor, operations: set[str]) -> bool:
    """Return whether the processor can't run in micro-batches, or is asked not to."""
    is_live = processor.engine == "live" or isinstance(processor.policy, Snapshots | Acknowledged)
    return is_live or bool(operations & {"agg", "count", CLOCKED})


def function_name(function: Any) -> str:
    """Return the name of a function that a step calls."""
    return str(getattr(function, "__name__", type(function).__name__))


def declaration(step: Step) -> DeterminismAssertion | None:
    """Return the user's assertion that the functions of a step are deterministic.

    None: the step calls no function of rows, or one without an assertion.
    """
    assertions = [assertion_of(function) for function in functions_of(step)]
    return assertions[0] if assertions and None not in assertions else None


def check_options(step: Step) -> None:
    """Check the options of a step that calls Python, and that UDFs are in steps that may have them.

    Raises: DefinitionError: `SCHEMA_INVALID`, `OPTION_UNKNOWN`, `STEP_INVALID`.
    """
    if step.operation not in PYTHON_STEPS:
        if step.operation not in _WITH_UDFS and udfs.of_values(step.arguments):
            raise _misplaced(step)
        return
    options = step.arguments[1]
    for name in ("returns", "state"):
        if name in options:
            schema = schema_of(options[name], name, step.where)
            if name == "returns":
                check_apart(added_keys(options), schema, options[name], step.where)
    if options["poison"] not in ("dead-letter", "fail"):
        raise OPTION_UNKNOWN_POISON.error(where=step.where, option="poison", value=options["poison"])


def _misplaced(step: Step) -> DefinitionError:
    return invalid_step(
        step, "a Python function can't stand in this step", 'Put its result into a column first: withColumn("x", …).'
    )


def invalid_step(step: Step, what: str, advice: str) -> DefinitionError:
    """Return the error for a step that can't run live. Args: what: a clause. advice: a sentence."""
    return STEP_INVALID_STREAM.error(where=step.where, operation=step.operation, what=what, advice=advice)


def udfs_of(
    before: Frame, after: Frame, step: Step, had: Counter[str], has: Counter[str], *, is_join: bool
) -> tuple[KnownUdf, ...]:
    """Return the UDFs that a live step calls. Args: had, has: the operations before the step and after it.

    Raises: DefinitionError: `STEP_INVALID`: a live region can't call one of them.
    """
    if step.operation in PYTHON_STEPS or has[CALL] <= had[CALL]:
        return ()
    known = {udf.identity for udf in udfs.of_plan(before.data)}
    found = tuple(udf for udf in udfs.of_plan(after.data) if udf.identity not in known)
    session, what, advice = after.data.sparkSession, "", 'Use engine="micro-batch".'
    if step.operation not in _WITH_UDFS:
        raise _misplaced(step)
    for udf in found:
        if udf.kind not in ONE_BY_ONE:
            what = f"{udf.name}() takes more than one row at a time, and a live region calls it with one"
        elif udf.needs_broadcasts:
            what = f"{udf.name}() {_BROADCASTS}"
        elif is_join:
            what = f"{udf.name}() is Python, which does not run live in a processor with a join()"
        elif udf.kind == ARROW and session.conf.get(_LEGACY, "false") == "true":
            what, advice = f"{udf.name}() needs {_LEGACY}=false", "Change the setting."
        elif udf.kind == ARROW:
            what, advice = _unknown_type(udf), "Use another type, or F.udf(…, useArrow=False)."
        if what:
            raise invalid_step(step, what, advice)
    return found


def _unknown_type(udf: KnownUdf) -> str:
    """Return what is wrong with the types of a UDF, or an empty text."""
    kinds = [_parse_datatype_json_string(each) for each in udf.types]
    known = [kind for kind in kinds if not isinstance(kind, NullType)]
    try:
        check_types(StructType([StructField(f"_{i}", kind) for i, kind in enumerate(known)]))
    except TypeError as error:
        return f"{udf.name}() can't run live: {error}"
    return ""


def grouped_by(step: Step) -> tuple[Any, ...]:
    """Return the key of a step with a state, as the user wrote it."""
    return key_columns(step.arguments[1]["key"]) if step.operation == "stateful" else tuple(step.arguments[0])


def operations_after(step: Step, had: Counter[str], has: Counter[str], called: Sequence[KnownUdf] = ()) -> Counter[str]:
    """Return the operations after a step, without functions that the user declares deterministic.

    Expressions around a function of rows only pass rows on: the function alone counts.

    Args: had: those before it. has: those in its plan. called: the UDFs that it calls.
    """
    if step.operation in PYTHON_STEPS:
        own = Counter({CLOCK_TIMER: 1}) if is_clocked(step) else Counter[str]()
        return had + own if declaration(step) is not None else had + own + Counter({CALL: 1})
    if not called or any(udf.assertion is None for udf in called):
        return has
    return Counter({**has, CALL: had[CALL]})


def step_assertions(step: Step, called: Sequence[KnownUdf]) -> Iterator[DeterminismAssertion]:
    """Yield the user's assertions about the functions that a step calls."""
    own = functions_of(step) if declaration(step) is not None else ()
    for each in (*map(assertion_of, own), *(udf.assertion for udf in called)):
        if each is not None:
            yield each
