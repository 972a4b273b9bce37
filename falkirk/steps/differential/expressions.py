"""Expressions: evaluates the steps of Spark's analysed plan on Arrow tables, without Spark.

It supports only functions and types whose results are the same in Arrow and in Spark. A step with any other function or
type raises `Unsuitable`, and Spark computes it. Values can be unsuitable too: a sum that overflows, a division by zero,
NaN. They raise `Unsuitable` or an error of Arrow, and Spark computes the step.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from falkirk.steps.static_analysis.lineage import column_identity
from falkirk.steps.static_analysis.structure import class_name, output_of, plan_tree


class Unsuitable(Exception):
    """Spark has to compute this step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """An expression. Args: name: Catalyst's class. value: a literal's value, or a column's identity."""

    name: str
    of: tuple["Expression", ...] = ()
    value: Any = None
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStep:
    """A projection to columns (name, identity, expression), or a filter."""

    kind: Literal["project", "filter"]
    columns: tuple[tuple[str, int, Expression], ...] = ()
    condition: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps on rows. Args: given: the input columns, with their identities. made: the output columns."""

    given: tuple[tuple[str, int], ...]
    steps: tuple[RowStep, ...]
    made: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, rows: DataFrame) -> "Steps":
        """Return the steps that made a DataFrame from an empty one. Raises: Unsuitable: Spark has to run them."""
        *nodes, first = plan_tree(rows)
        if class_name(first) not in ("LogicalRDD", "LocalRelation"):
            raise Unsuitable(class_name(first))
        given = tuple((str(one[0]["name"]), column_identity(one[0])) for one in first["output"])
        return cls(given=given, steps=tuple(map(_step, reversed(nodes))), made=output_of(rows))

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Run the steps. Raises: Unsuitable, pa.ArrowException: Spark has to run them."""
        columns = {identity: rows.column(name) for name, identity in self.given}
        count = rows.num_rows
        for step in self.steps:
            if step.kind == "filter":
                assert step.condition is not None
                mask = pc.fill_null(_value(step.condition, columns, count), False)
                columns = {identity: column.filter(mask) for identity, column in columns.items()}
                count = len(next(iter(columns.values()))) if columns else 0
            else:
                made = {identity: _value(one, columns, count) for _, identity, one in step.columns}
                columns = made
        return pa.table([columns[identity] for _, identity in self.made], names=[name for name, _ in self.made])


# -- from Spark's plan -------------------------------------------------------------------------------------------------

_TYPES = {
    "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64(), "double": pa.float64(),
    "string": pa.string(), "boolean": pa.bool_(),
}  # fmt: skip
#: Widening casts of numbers, which Arrow and Spark do in the same way.
_WIDER = {
    ("byte", "short"), ("byte", "integer"), ("byte", "long"), ("byte", "double"), ("short", "integer"),
    ("short", "long"), ("short", "double"), ("integer", "long"), ("integer", "double"), ("long", "double"),
}  # fmt: skip


def _step(node: Mapping[str, Any]) -> RowStep:
    kind = class_name(node)
    if kind == "Project":
        columns = []
        for one in node["projectList"]:
            expression, rest = _parsed(list(one))
            if rest or expression.name not in ("Alias", "AttributeReference"):
                raise Unsuitable(expression.name)
            columns.append((str(one[0]["name"]), column_identity(one[0]), expression))
        return RowStep(kind="project", columns=tuple(columns))
    if kind == "Filter":
        return RowStep(kind="filter", condition=_parsed(list(node["condition"]))[0])
    raise Unsuitable(kind)


def _parsed(nodes: list[Any]) -> tuple[Expression, list[Any]]:
    """Return the first expression of a list of nodes, in which each node precedes its parts, and the other nodes."""
    node, *rest = nodes
    name, parts = class_name(node), []
    for _ in range(node["num-children"]):
        part, rest = _parsed(rest)
        parts.append(part)
    spoken = node.get("dataType", "")
    of = spoken if isinstance(spoken, str) else "nested"
    if name == "AttributeReference":
        return Expression(name=name, value=column_identity(node), type=of), rest
    if name == "Literal":
        return Expression(name=name, value=_literal(node["value"], of), type=of), rest
    if name == "Cast" and parts[0].type == "void" and of in _TYPES:
        return Expression(name="Literal", type=of), rest
    if name == "Cast" and (parts[0].type, of) in _WIDER:
        return Expression(name=name, of=tuple(parts), type=of), rest
    if name == "Cast" and parts[0].type == of:
        return parts[0], rest
    if name == "Alias" and parts[0].type != "void":
        return Expression(name=name, of=tuple(parts), type=parts[0].type), rest
    if name not in _FUNCTIONS:
        raise Unsuitable(name)
    if any(part.type not in _TYPES for part in parts):
        raise Unsuitable(f"{name} of {[part.type for part in parts]}")
    return Expression(name=name, of=tuple(parts), type=_type_of(name, parts)), rest


def _type_of(name: str, parts: list[Expression]) -> str:
    if name in _TRUTHS:
        return "boolean"
    return parts[1].type if name in ("If", "CaseWhen") else parts[0].type


def _literal(value: Any, of: str) -> Any:
    if of not in (*_TYPES, "void"):
        raise Unsuitable(of)
    if value is None or of == "string":
        return value
    return value == "true" if of == "boolean" else float(value) if of == "double" else int(value)


# -- over Arrow --------------------------------------------------------------------------------------------------------


def _value(expression: Expression, columns: Mapping[int, Any], count: int) -> Any:
    if expression.name == "AttributeReference":
        return columns[expression.value]
    if expression.name == "Alias":
        return _value(expression.of[0], columns, count)
    if expression.name == "Literal":
        return pa.repeat(pa.scalar(expression.value, _TYPES[expression.type]), count)
    parts = [_value(part, columns, count) for part in expression.of]
    if expression.name == "Cast":
        return pc.cast(parts[0], _TYPES[expression.type])
    if any(pa.types.is_floating(p.type) and pc.any(pc.is_nan(p)).as_py() for p in parts):
        raise Unsuitable("NaN")
    return _FUNCTIONS[expression.name](*parts)


def _divided(one: Any, other: Any) -> Any:
    if not pa.types.is_floating(other.type) or pc.any(pc.equal(other, 0.0)).as_py():
        raise Unsuitable("a division by zero")
    return pc.divide(one, other)


def _chosen(*parts: Any) -> Any:
    """CASE WHEN: conditions and values alternate; a last single part is ELSE."""
    found = parts[-1] if len(parts) % 2 else pa.nulls(len(parts[0]), parts[1].type)
    pairs: Iterator[tuple[Any, Any]] = zip(parts[0 : len(parts) // 2 * 2 : 2], parts[1::2], strict=True)
    for condition, value in reversed([*pairs]):
        found = pc.if_else(pc.fill_null(condition, False), value, found)
    return found


def _same(one: Any, other: Any) -> Any:
    both = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(pc.fill_null(pc.equal(one, other), False), both)


_TRUTHS = {
    "EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "And", "Or", "Not",
    "IsNull", "IsNotNull",
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": pc.add_checked, "Subtract": pc.subtract_checked, "Multiply": pc.multiply_checked, "Divide": _divided,
    "UnaryMinus": pc.negate_checked, "Abs": pc.abs_checked,
    "EqualTo": pc.equal, "EqualNullSafe": _same, "LessThan": pc.less, "LessThanOrEqual": pc.less_equal,
    "GreaterThan": pc.greater, "GreaterThanOrEqual": pc.greater_equal,
    "And": pc.and_kleene, "Or": pc.or_kleene, "Not": pc.invert,
    "IsNull": pc.is_null, "IsNotNull": pc.is_valid, "Coalesce": pc.coalesce,
    "Least": pc.min_element_wise, "Greatest": pc.max_element_wise,
    "If": lambda condition, one, other: pc.if_else(pc.fill_null(condition, False), one, other), "CaseWhen": _chosen,
}  # fmt: skip
