"""Python UDFs: takes the user-defined functions out of the columns of a live step, and lets Python processes call them.

A round of calls becomes one column with their results, computed before the step, once for each good row. Spark's
micro-batches compute UDFs in the same way: before the step, and for all rows, even under `when`. If a function fails,
the row becomes a bad one. While Falkirk plans, the UDFs stay, so that the inference sees them.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import DataType, NullType, StringType, StructField, StructType, _parse_datatype_json_string

from falkirk.steps.dataframes.names import BAD, TIME
from falkirk.steps.live.effects import mark
from falkirk.steps.live.python_command import command
from falkirk.steps.live.python_steps import letter

_ANSWER = "__falkirk_udf"
#: How long a call may take.
TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class _Call:
    """A call of a round. Args: number: its place in the round."""

    number: int
    commands: tuple[bytes, ...]
    uses_arrow: bool
    arguments: tuple[Column, ...]
    types: tuple[DataType, ...]
    names: tuple[str, ...]
    result: DataType


def without_udfs(
    data: DataFrame, columns: Sequence[str | Column], users: Sequence[str], *, named: bool, is_alone: bool
) -> tuple[DataFrame, list[Column]]:
    """Return the rows with the results of the UDFs in some columns, and these columns without UDFs.

    Args: users: the names of the user's columns. named: whether the columns keep their names. is_alone: see
        `effects.mark`.
    Raises: TypeError: a UDF takes or returns a type that can't be passed to Python.
    """
    found = [F.col(each) if isinstance(each, str) else each for each in columns]
    jvm: Any = data.sparkSession._jvm
    for number in itertools.count():
        calls = jvm.org.falkirk.UdfRound.of(data._jdf, [each._jc for each in found])
        if not calls.size():
            break
        data, found = _answered(data, calls, f"{_ANSWER}{number}", users, named=named, is_alone=is_alone)
    return data, found


def without_answers(data: DataFrame) -> DataFrame:
    """Return rows without the results of UDFs."""
    answers = [name for name in data.columns if name.startswith(_ANSWER)]
    return data.drop(*answers) if answers else data


def _answered(
    data: DataFrame, calls: Any, name: str, users: Sequence[str], *, named: bool, is_alone: bool
) -> tuple[DataFrame, list[Column]]:
    """Return the rows with the results of a round of calls, and the columns of the step without these calls."""
    from falkirk.steps.dataframes.user_function import TEXT_MAX
    from falkirk.steps.live.udf_worker import SETTINGS, Udf, UdfCalls  # importing pyarrow is slow

    session: Any = data.sparkSession
    known = sorted((_call(calls, number) for number in range(calls.size())), key=lambda call: call.uses_arrow)
    kinds = [[call for call in known if call.uses_arrow is uses_arrow] for uses_arrow in (False, True)]
    given, results = [_given(kind) for kind in kinds], _numbered([call.result for call in known])
    split = len(kinds[0])
    settings = {ours: session.conf.get(theirs, default) == "true" for ours, (theirs, default) in SETTINGS.items()}
    plain, arrow = (
        tuple(
            Udf(commands=call.commands, places=tuple(range(at, at + len(call.types))), names=call.names)
            for call, at in zip(kind, itertools.accumulate((len(each.types) for each in kind), initial=0), strict=False)
        )
        for kind in kinds
    )
    worker = UdfCalls(
        plain=plain, arrow=arrow, given=given[1], results=StructType(results.fields[split:]), settings=settings
    )
    arguments = [argument for call in known for argument in call.arguments]
    asked = F.struct(*[argument.alias(f"_{i}") for i, argument in enumerate(arguments)])
    answers = session._jvm.org.falkirk.PythonUdfs.answers(
        asked._jc, command(session, worker, TIMEOUT_S), [each.json() for each in given],
        [StructType(part).json() for part in (results.fields[:split], results.fields[split:])],
        settings["binary_as_bytes"],
    )  # fmt: skip
    answer = F.when(F.col(BAD).isNull(), ClassicColumn(answers)).alias(name)
    rows = data.select(*[F.col(f"`{each}`") for each in data.columns], answer)
    text = F.to_json(F.struct(*[F.col(f"`{each}`") for each in users]), {"ignoreNullFields": "false"})
    row = F.substring(text, 1, TEXT_MAX)
    reason = F.col(f"{name}.reason")
    ours = {
        BAD: letter(rows, mark(is_alone), reason, row, F.col(f"{name}.traceback")),
        TIME: F.when(reason.isNull(), F.col(TIME)),  # a bad row with a time would be a time row
    }
    kept = [ours[each].alias(each) if each in ours else F.col(f"`{each}`") for each in rows.columns]
    rows = rows.select(*kept)  # without an alias, a column keeps its identity
    paths = {call.number: f"{name}.results._{place}" for place, call in enumerate(known)}
    left = calls.columns([paths[number] for number in range(len(known))], named)
    return rows, [ClassicColumn(each) for each in left]


def _call(calls: Any, number: int) -> _Call:
    arguments = [ClassicColumn(each) for each in calls.arguments(number)]
    types = [_parse_datatype_json_string(each) for each in calls.types(number)]
    empty = [isinstance(kind, NullType) for kind in types]  # a literal NULL, whose type nobody sees
    return _Call(
        number=number,
        commands=tuple(bytes(each) for each in calls.commands(number)),
        uses_arrow=bool(calls.usesArrow(number)),
        arguments=tuple(each.cast("string") if none else each for each, none in zip(arguments, empty, strict=True)),
        types=tuple(StringType() if none else kind for kind, none in zip(types, empty, strict=True)),
        names=tuple(calls.names(number)),
        result=_parse_datatype_json_string(calls.result(number)),
    )


def _given(kind: Sequence[_Call]) -> StructType:
    return _numbered([each for call in kind for each in call.types])


def _numbered(types: Sequence[DataType]) -> StructType:
    return StructType([StructField(f"_{i}", each) for i, each in enumerate(types)])
