"""Refusals: refuses steps that pass Spark's analysis, but that Spark would refuse or fail at once the query runs."""

from collections import Counter
from dataclasses import replace

from falkirk.analysis.determinism import operations
from falkirk.declare.application import Application
from falkirk.declare.cut import ByRows
from falkirk.declare.parts import Processor
from falkirk.declare.stream import Step
from falkirk.errors import DefinitionError
from falkirk.frames import stamped as frames
from falkirk.frames.stamped import Frame

#: For operations by Catalyst's names: a description, and an alternative.
_NOT_LIVE = {
    "PythonUDF": ("a Python function", "Use pyspark.sql.functions or SQL: Real-time Mode runs nothing else."),
    "PythonUDAF": ("a Python function", "Use pyspark.sql.functions or SQL: Real-time Mode runs nothing else."),
    "MonotonicallyIncreasingID": ("monotonically_increasing_id()", "Use uuid(), or number the records upstream."),
}
#: In a stream these are the time of the batch, which Spark does not support inside an aggregate.
_BATCH_TIMES = ("CurrentTimestamp", "CurrentDate", "LocalTimestamp")


def check_live(before: Frame, step: Step, had: Counter[str], has: Counter[str]) -> None:
    """Check that a step can be part of a live region.

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


def check_not_files(app: Application, name: str, where: object) -> None:
    """Refuse a live reader of a folder.

    Raises: DefinitionError: `FILES_READ_LIVE`.
    """
    if name in app.folders:
        raise DefinitionError(
            "FILES_READ_LIVE",
            f"{name!r} is a folder of files, and a live processor or sink reads it.",
            where=where,
            hint="Let a batch, or a processor under @app.stream(fk.Eager()), read it.",
            upstream=name,
        )


def check_batch_of_files(name: str, reader: Processor, where: object) -> None:
    """Check that a batch can read a folder in the requested way.

    Raises: DefinitionError: `CUT_INVALID`, `VIEW_HAS_NO_EPOCHS`.
    """
    if name in reader.views:
        raise DefinitionError(
            "VIEW_HAS_NO_EPOCHS",
            f"{reader.name!r} reads the newest of {name!r}, which is a folder of files and has no epochs.",
            where=where,
            hint=f"Let a batch with state= read {name!r}, and read the newest of that.",
            upstream=name,
        )
    if isinstance(reader.cut, ByRows):
        raise DefinitionError(
            "CUT_INVALID",
            f"{reader.name!r} counts rows, but the number of rows in the files of {name!r} is unknown before they are "
            "read.",
            where=where,
            hint='Write @app.batch(every="1 minute"), or @app.stream(fk.Eager()): an epoch as soon as there is a file.',
            upstream=name,
        )


def _invalid(step: Step, what: str, instead: str) -> DefinitionError:
    return DefinitionError(
        "STEP_INVALID", f"{step.operation}(): {what}.", where=step.where, hint=instead, operation=step.operation
    )
