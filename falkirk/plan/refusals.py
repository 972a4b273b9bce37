"""Refusals: steps that Spark analyses well and that it would refuse, or fail at, only once the query runs live."""

from collections import Counter
from dataclasses import replace

from falkirk.errors import DefinitionError
from falkirk.plan import frames
from falkirk.plan.determinism import operations
from falkirk.plan.frames import Frame
from falkirk.stream import Step

#: By Catalyst's names of the operations: what they are, and what to do instead.
_NOT_LIVE = {
    "PythonUDF": ("a Python function", "Use pyspark.sql.functions or SQL: Real-time Mode runs nothing else."),
    "PythonUDAF": ("a Python function", "Use pyspark.sql.functions or SQL: Real-time Mode runs nothing else."),
    "MonotonicallyIncreasingID": ("monotonically_increasing_id()", "Use uuid(), or number the records upstream."),
}
#: In a stream they stand for the time of the batch, which Spark does not take inside an aggregate.
_BATCH_TIMES = ("CurrentTimestamp", "CurrentDate", "LocalTimestamp")


def check_live(before: Frame, step: Step, had: Counter[str], has: Counter[str]) -> None:
    """See that a step can be part of a live region.

    Args: had, has: the operations before the step and after it.
    Raises: DefinitionError: `GENERATOR_IN_SELECT`, `STEP_INVALID`.
    """
    if has["Generate"] > had["Generate"] and step.operation != "explode":
        raise DefinitionError(
            "GENERATOR_IN_SELECT",
            f"{step.operation}() makes several records of one, which need sub-indexes.",
            where=step.where,
            hint="Use stream.explode(column, name).",
            operation=step.operation,
        )
    for name, (what, instead) in _NOT_LIVE.items():
        if has[name] > had[name]:
            raise _invalid(step, f"{what} can't run live", instead)
    if step.operation == "agg" and any(has[name] > had[name] for name in _BATCH_TIMES):
        keyless = operations(frames.apply(before, replace(step, arguments=((), step.arguments[1]))).data)
        if any(keyless[name] > had[name] for name in _BATCH_TIMES):
            instead = 'Put it into a column first: withColumn("now", F.current_timestamp()).'
            raise _invalid(step, "the current time can't stand inside an aggregate", instead)


def _invalid(step: Step, what: str, instead: str) -> DefinitionError:
    return DefinitionError(
        "STEP_INVALID", f"{step.operation}(): {what}.", where=step.where, hint=instead, operation=step.operation
    )
