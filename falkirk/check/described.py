"""A run described in words, of any system: which rows went in, which came out, by what key, and what was to be done.

check_described(Described(inputs=("kafka:orders",), outputs=("kafka:totals",), keys=("user",), model="count"))
"""

import re
import runpy
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falkirk.check.content import content
from falkirk.check.keyed import check_keyed, check_rules, check_stateless
from falkirk.check.model import (
    Aggregate,
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
from falkirk.check.piles import Space
from falkirk.check.rows import Reading
from falkirk.check.rules import Rule
from falkirk.check.run import Input, Output, Values
from falkirk.check.verdict import RuleVerdict, Verdict
from falkirk.errors import DefinitionError

_AGGREGATES: dict[str, Callable[[str], Aggregate]] = {"sum": Sum, "min": Min, "max": Max, "latest": Latest}
_CALL = re.compile(r"(?:(\w+)\s*=\s*)?(\w+)(?:\(\s*([\w.*]*)\s*\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A run of any system.

    Args:
        inputs, outputs: places, as `falkirk.check.rows` writes them.
        keys: the columns by which rows belong together; they have the same names in inputs and outputs.
        model: what the system was to do, as `model_of` reads it; None: nothing, so that rows come out as they went in.
        rules: what must hold of each key's outputs. final: whether the outputs keep only the last of each key.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    keys: Sequence[str] = ()
    model: str | None = None
    rules: Sequence[Rule] = ()
    final: bool = False


def check_described(
    run: Described, reading: Reading, *, space: Space, anomalies_shown: int = 20
) -> Verdict | tuple[RuleVerdict, ...]:
    """Return the verdict on a run; of one that names no inputs, what its rules say.

    Raises: DefinitionError: `MODEL_INVALID`, `RUN_INCOMPLETE`, `PLACE_INVALID`; LogError as `Reading.rows`.
    """
    keys = tuple(run.keys)
    outputs = (
        Output(key=_key(values, keys), place=place, values=values)
        for where in run.outputs
        for place, values in reading.rows(where)
    )
    if (run.rules or run.final) and not keys:
        raise _incomplete("Rules and --final are about the outputs of a key.", "Name its columns with --key.")
    if not run.inputs:
        if not run.rules or run.model:
            raise _incomplete(
                "With no inputs there is nothing to compare the outputs with.", "Name --input, or a rule."
            )
        return check_rules(outputs, run.rules, anomalies_shown=anomalies_shown, space=space)
    model = model_of(run.model, keys)
    inputs = _inputs(run, reading)
    if isinstance(model, StatelessModel) and not keys:
        return check_stateless(inputs, outputs, anomalies_shown=anomalies_shown, space=space)
    return check_keyed(
        inputs, outputs, model, rules=run.rules, final=run.final, anomalies_shown=anomalies_shown, space=space
    )


def _inputs(run: Described, reading: Reading) -> Iterator[Input]:
    for where in run.inputs:
        for place, values in reading.rows(where):
            yield Input(key=_key(values, tuple(run.keys)), place=place, row=values)


def _key(values: Values, keys: tuple[str, ...]) -> Hashable:
    """Return the key that the columns `keys` make: a value, or several; None without columns."""
    if not keys:
        return None
    return content(values.get(keys[0])) if len(keys) == 1 else tuple([content(values.get(key)) for key in keys])


def _incomplete(message: str, hint: str) -> DefinitionError:
    return DefinitionError("RUN_INCOMPLETE", message, hint=hint)


def model_of(text: str | None, keys: Sequence[str]) -> Model[Any]:
    """Return the model that `text` describes.

    ``count, total=sum(amount), max(price)``: aggregates under their names, by default as Spark names them
    (``count``, ``max(price)``); ``distinct``: the first row of each key; ``stateless`` or None: each row as it is;
    ``FILE.py:name``: a `Model` of one's own, or a class of it.

    Raises: DefinitionError: `MODEL_INVALID`.
    """
    text = "stateless" if text is None else text.strip()
    if text == "stateless":
        return StatelessModel()
    if text == "distinct":
        if not keys:
            raise _invalid(text, "distinct is by key")
        return DistinctModel()
    file, _, name = text.rpartition(":")
    if file.endswith(".py"):
        return _own(Path(file), name)
    aggregates: dict[str, Aggregate] = {}
    for part in text.split(","):
        call = _CALL.fullmatch(part.strip())
        if call is None:
            raise _invalid(text, f"{part.strip()!r} is no aggregate")
        given, function, column = call.groups()
        if function == "count":
            aggregates[given or ("count" if column in (None, "", "*") else f"count({column})")] = Count(
                None if column in (None, "", "*") else column
            )
        elif function in _AGGREGATES and column:
            default = column if function == "latest" else f"{function}({column})"
            aggregates[given or default] = _AGGREGATES[function](column)
        else:
            raise _invalid(text, f"{part.strip()!r} is no aggregate")
    return AggregateModel(list(keys), aggregates)


def _own(file: Path, name: str) -> Model[Any]:
    if not file.is_file():
        raise _invalid(f"{file}:{name}", f"there is no file {file}")
    found = runpy.run_path(str(file)).get(name)
    model: Any = found() if isinstance(found, type) else found
    members = ("every_row_answers", "ordered", "initial", "step", "effect", "echo", "echo_of")
    missing = [member for member in members if not hasattr(model, member)]
    if missing:
        raise _invalid(f"{file}:{name}", f"{name} is no falkirk.check.Model: it has no {', '.join(missing)}")
    own: Model[Any] = model
    return own


def _invalid(text: str, why: str) -> DefinitionError:
    return DefinitionError(
        "MODEL_INVALID",
        f"{text!r} describes no model: {why}.",
        hint="Write count, sum(amount) and the like, distinct, stateless, or FILE.py:name.",
        model=text,
    )
