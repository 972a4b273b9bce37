"""A run of any system, described by its input places, output places, key and model.

check_described(Described(inputs=("kafka:orders",), outputs=("kafka:totals",), keys=("user",), model="count"))
"""

import re
import runpy
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from falkirk.checker.content import content_of, group_key
from falkirk.checker.keyed import check_keyed, check_rules, check_stateless
from falkirk.checker.model import (
    AggregateFunction,
    AggregateModel,
    Count,
    DistinctModel,
    Latest,
    Max,
    Min,
    Model,
    StatelessModel,
    Sum,
)
from falkirk.checker.record_keys import record_keys_of
from falkirk.checker.rows import Reading
from falkirk.checker.rules import Rule
from falkirk.checker.run import InputRow, OutputRow, Values
from falkirk.checker.spill import Space
from falkirk.checker.verdict import RuleVerdict, Verdict
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.checker import COLUMN_MISSING_ROWS, MODEL_INVALID, NO_ROWS, PLACE_TWICE, PLACE_TWICE_LOG

_AGGREGATES: dict[str, Callable[[str], AggregateFunction]] = {"sum": Sum, "min": Min, "max": Max, "latest": Latest}
_CALL = re.compile(r"(?:(\w+)\s*=\s*)?(\w+)(?:\(\s*([\w.*]*)\s*\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A run of any system.

    Args:
        inputs, outputs: places, in the notation of `falkirk.checker.rows`.
        keys: the columns that group rows. They have the same names in inputs and outputs.
        model: how outputs are computed from inputs, in the notation of `model_of`. None: outputs equal inputs.
        rules: conditions on each key's outputs. final: whether the outputs keep only the last row of each key.
        record_keys: the columns whose values are the keys of the records in output topics. Without any, a model of the
            user's with a method `record_key` says which key a record should have.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    keys: Sequence[str] = ()
    model: str | None = None
    rules: Sequence[Rule] = ()
    final: bool = False
    record_keys: Sequence[str] = ()


def check_described(
    run: Described, reading: Reading, *, space: Space, anomalies_shown: int = 20
) -> Verdict | tuple[RuleVerdict, ...]:
    """Return the verdict on a run, or, for a run without inputs, the verdicts of its rules.

    Raises: DefinitionError: `MODEL_INVALID`, `RUN_INCOMPLETE`, `PLACE_INVALID`, `PLACE_TWICE`, `COLUMN_MISSING`.
        LogError: `NO_ROWS`; as `Reading.rows`.
    """
    if (run.rules or run.final) and not run.keys:
        raise _incomplete(
            "rules and --final need a key, and --key names no column.", "Name the key's columns with --key."
        )
    if not run.inputs and (run.model or not run.rules):
        raise _incomplete("no input is given to compare the outputs with.", "Add --input, or a rule.")
    if run.record_keys and not (run.inputs and any(where.startswith("kafka:") for where in run.outputs)):
        raise _incomplete(
            "record keys are compared in output topics, with the rows that the inputs give.",
            "Add --input and --output kafka:TOPIC, or leave out --record-key.",
        )
    model = model_of(run.model, run.keys) if run.inputs else None
    _refuse_twice(run, reading)
    found = _judge(run, model, reading, space, anomalies_shown)
    # Only now everything is read: an unfinished generator has not counted its rows.
    reading.sight.check()
    _refuse_nothing(run, model, reading)
    return replace(found, read=reading.sight.read()) if isinstance(found, Verdict) else found


def _judge(
    run: Described, model: Model[Any] | None, reading: Reading, space: Space, anomalies_shown: int
) -> Verdict | tuple[RuleVerdict, ...]:
    keys, record_keys = tuple(run.keys), record_keys_of(run.record_keys, model)
    outputs = (
        OutputRow(key=_key(values, keys), place=place, values=values)
        for where in run.outputs
        for place, values in reading.rows(where, record_keys)
    )
    if model is None:
        return check_rules(outputs, run.rules, anomalies_shown=anomalies_shown, space=space)
    inputs = _inputs(run, reading)
    if isinstance(model, StatelessModel) and not keys:
        return check_stateless(inputs, outputs, anomalies_shown=anomalies_shown, space=space)
    return check_keyed(
        inputs, outputs, model, rules=run.rules, final=run.final, anomalies_shown=anomalies_shown, space=space
    )


def _refuse_twice(run: Described, reading: Reading) -> None:
    """Refuse a log that is named twice: a duplicate on both sides would look right.

    Raises: DefinitionError: `PLACE_TWICE`.
    """
    named: dict[Hashable, str] = {}
    for where in (*run.inputs, *run.outputs):
        for log, name in reading.logs(where):
            if log in named:
                raise PLACE_TWICE_LOG.error(log=name, place=where, named=named[log])
            named[log] = where
    for side in (run.inputs, run.outputs):
        # Rows identify their tables only by name.
        tables = Counter(where.partition("#")[2].partition(":")[0] for where in side if "://" in where)
        if any(count > 1 for count in tables.values()):
            again = max(tables, key=lambda table: tables[table])
            raise PLACE_TWICE.error(log=again)


def _refuse_nothing(run: Described, model: Model[Any] | None, reading: Reading) -> None:
    """Refuse a run without rows, and columns that no row has.

    Raises: LogError: `NO_ROWS`. DefinitionError: `COLUMN_MISSING`.
    """
    seen = reading.sight.seen
    if not any(each.rows for each in seen.values()):
        raise NO_ROWS.error(
            places=sorted(seen),
            passed_over=[name for each in seen.values() for name in each.passed_over],
            seen=", ".join(seen),
        )
    read = [function.column for function in model.aggregates.values()] if isinstance(model, AggregateModel) else []
    for side, wanted in ((run.inputs, (*run.keys, *read)), (run.outputs, (*run.keys, *run.record_keys))):
        columns = {column for where in side for column in seen[where].columns} - reading.ignored
        missing = [name for name in wanted if name is not None and name not in columns]
        if missing and any(seen[where].rows for where in side):
            raise COLUMN_MISSING_ROWS.error(columns=missing, side=", ".join(side))


def _inputs(run: Described, reading: Reading) -> Iterator[InputRow]:
    for where in run.inputs:
        for place, values in reading.rows(where):
            yield InputRow(key=_key(values, tuple(run.keys)), place=place, row=values)


def _key(values: Values, keys: tuple[str, ...]) -> Hashable:
    """Return the key in the columns `keys`: a value, or a tuple of several; None without columns."""
    if not keys:
        return None
    found = [content_of(group_key(values.get(key))) for key in keys]
    return found[0] if len(keys) == 1 else tuple(found)


def _incomplete(message: str, hint: str) -> DefinitionError:
    return DefinitionError("RUN_INCOMPLETE", message, hint=hint)


def model_of(text: str | None, keys: Sequence[str]) -> Model[Any]:
    """Return the model that `text` describes.

    ``count, total=sum(amount), max(price)``: aggregates with their names, by default Spark's names (``count``,
    ``max(price)``); ``distinct``: the first row of each key; ``stateless`` or None: each row unchanged;
    ``FILE.py:name``: your own `Model`, an instance or a class.

    Raises: DefinitionError: `MODEL_INVALID`.
    """
    text = "stateless" if text is None else text.strip()
    if text == "stateless":
        return StatelessModel()
    if text == "distinct":
        if not keys:
            raise _invalid(text, "distinct needs a key")
        return DistinctModel()
    file, _, name = text.rpartition(":")
    if file.endswith(".py"):
        return _own(Path(file), name)
    aggregates: dict[str, AggregateFunction] = {}
    for part in text.split(","):
        call = _CALL.fullmatch(part.strip())
        if call is None:
            raise _invalid(text, f"{part.strip()!r} is not an aggregate")
        given, function, column = call.groups()
        if function == "count":
            aggregates[given or ("count" if column in (None, "", "*") else f"count({column})")] = Count(
                None if column in (None, "", "*") else column
            )
        elif function in _AGGREGATES and column:
            default = column if function == "latest" else f"{function}({column})"
            aggregates[given or default] = _AGGREGATES[function](column)
        else:
            raise _invalid(text, f"{part.strip()!r} is not an aggregate")
    return AggregateModel(list(keys), aggregates)


def _own(file: Path, name: str) -> Model[Any]:
    if not file.is_file():
        raise _invalid(f"{file}:{name}", f"there is no file {file}")
    found = runpy.run_path(str(file)).get(name)
    model: Any = found() if isinstance(found, type) else found
    members = ("every_row_answers", "ordered", "initial", "step", "effect", "echo", "echo_of")
    missing = [member for member in members if not hasattr(model, member)]
    if missing:
        raise _invalid(f"{file}:{name}", f"{name} is not a falkirk.checker.Model: it lacks {', '.join(missing)}")
    own: Model[Any] = model
    return own


def _invalid(text: str, why: str) -> DefinitionError:
    return MODEL_INVALID.error(model=text, why=why)
