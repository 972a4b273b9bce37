"""Refusals: refuses steps that pass Spark's analysis, but that would fail as soon as the query runs."""

from collections import Counter
from dataclasses import replace

from falkirk.declare.application import Application
from falkirk.declare.cut import ByRows
from falkirk.declare.nodes import Step
from falkirk.declare.parts import DeclaredProcessor
from falkirk.errors.conditions.plan import (
    CUT_INVALID_FILES,
    FILES_READ_LIVE,
    GENERATOR_IN_SELECT,
    VIEW_HAS_NO_EPOCHS_FILES,
)
from falkirk.plan.python_steps import PYTHON_STEPS, invalid_step
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.aggregates import aggregates_of
from falkirk.steps.live.stamped import Frame
from falkirk.steps.static_analysis.determinism import DISTINCT, operations
from falkirk.steps.static_analysis.functions import PRESENT

#: For operations by Catalyst's names: a description, and an alternative.
_NOT_LIVE = {
    "PythonUDAF": ("an aggregate in Python", "Use aggregates of pyspark.sql.functions or SQL, or stateful()."),
    DISTINCT: ("an aggregate of distinct values", "Use approx_count_distinct(), or a batch (fk.Eager())."),
    "MonotonicallyIncreasingID": ("monotonically_increasing_id()", "Use uuid(), or number the records upstream."),
}
#: In a stream these are the time of the batch, which Spark does not support inside an aggregate. In windows they would
#: be the time of the start (Aggregates.java).
_BATCH_TIMES = ("CurrentTimestamp", "Now", "CurrentDate", "CurrentTime", "LocalTimestamp", PRESENT)


def check_live_step(before: Frame, step: Step, had: Counter[str], has: Counter[str]) -> None:
    """Check that a step can be part of a live region.

    Args: had, has: the operations before the step and after it.
    Raises: DefinitionError: `GENERATOR_IN_SELECT`, `STEP_INVALID`.
    """
    if step.operation in PYTHON_STEPS:
        return  # it calls Python beside Spark
    if has["Generate"] > had["Generate"] and step.operation != "explode":
        raise GENERATOR_IN_SELECT.error(where=step.where, operation=step.operation)
    for name, (what, instead) in _NOT_LIVE.items():
        if has[name] > had[name]:
            raise invalid_step(step, f"{what} can't run live", instead)
    if step.operation in ("agg", "windows") and any(has[name] > had[name] for name in _BATCH_TIMES):
        if step.operation == "agg":
            keyless = operations(frames.apply(before, replace(step, arguments=((), step.arguments[1]))).data)
        else:
            keyless = operations(before.data.agg(*aggregates_of(step.arguments[1])))
        if any(keyless[name] > had[name] for name in _BATCH_TIMES):
            instead = 'Put it into a column first: withColumn("now", F.current_timestamp()).'
            raise invalid_step(step, "the current time can't stand inside an aggregate", instead)


def check_not_files(app: Application, name: str, where: object) -> None:
    """Refuse a live reader of a folder. Raises: DefinitionError: `FILES_READ_LIVE`."""
    if name in app.folders:
        raise FILES_READ_LIVE.error(where=where, upstream=name)


def check_batch_of_files(name: str, reader: DeclaredProcessor, where: object) -> None:
    """Check that a batch can read a folder in the requested way.

    Raises: DefinitionError: `CUT_INVALID`, `VIEW_HAS_NO_EPOCHS`.
    """
    if name in reader.views:
        raise VIEW_HAS_NO_EPOCHS_FILES.error(where=where, upstream=name, reader=reader.name)
    if isinstance(reader.cut, ByRows):
        raise CUT_INVALID_FILES.error(where=where, upstream=name, reader=reader.name)
