"""Lineage: finds in Spark's analysed plan the expressions from which each column is made.

A column that is only passed through keeps its identity (exprId). So the identities lead to everything on which a column
depends, even if its name changes on the way.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame

from falkirk.steps.static_analysis import clocks
from falkirk.steps.static_analysis.structure import class_name, objects_in, output_of, plan_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageExpression:
    """An expression. Args: operations: Catalyst's classes in it. reads: the identities of the columns in it."""

    operations: frozenset[str]
    reads: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """The expressions from which columns are made.

    Args: made: the expressions by a column's identity. conditions: the conditions of filters, which decide whether a
        row exists. output: the columns of the result, by name.
    """

    made: dict[int, LineageExpression] = field(default_factory=dict)
    conditions: tuple[LineageExpression, ...] = ()
    output: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, data: DataFrame) -> "Lineage":
        """Return the lineage of a DataFrame's columns."""
        made: dict[int, LineageExpression] = {}
        conditions, nodes = [], plan_tree(data)
        for node in nodes:
            if "condition" in node and isinstance(node["condition"], list):
                conditions.append(_expression(node["condition"]))
            if "generator" in node:
                generator = _expression(node["generator"])
                made |= {column_identity(one[0]): generator for one in node["generatorOutput"]}
            for several in (node.get("projectList"), node.get("aggregateExpressions")):
                for one in several or ():
                    if class_name(one[0]) == "Alias":
                        made[column_identity(one[0])] = _expression(one[1:])
        _add_unions(made, nodes)
        return cls(made=made, conditions=tuple(conditions), output=dict(output_of(data)))

    def operations(self, columns: Iterable[str], *, rows: bool) -> frozenset[str]:
        """Return all operations on which columns of the output depend.

        Args: rows: also include the operations that decide which rows exist.
        """
        waiting = [self.output[column] for column in columns]
        found: set[str] = set()
        if rows:
            for condition in self.conditions:
                found |= condition.operations
                waiting += condition.reads
        seen: set[int] = set()
        while waiting:
            identity = waiting.pop()
            if identity in seen or identity not in self.made:
                continue
            seen.add(identity)
            found |= self.made[identity].operations
            waiting += self.made[identity].reads
        return frozenset(found)


def _add_unions(made: dict[int, LineageExpression], nodes: Sequence[Mapping[str, Any]]) -> None:
    """Let each column of a union depend on those of all sides. It has the identity of the first side's column.

    Args: nodes: the operators of a plan, each before its parts. Sides that are no projections are left out.
    """
    for place, node in enumerate(nodes):
        if class_name(node) != "Union":
            continue
        sides, at = [], place + 1
        for _ in range(int(node["num-children"])):
            sides.append([column_identity(one[0]) for one in nodes[at].get("projectList", ())])
            at = _end_of(nodes, at)
        for first, *others in zip(*sides, strict=False):
            known = made.get(first, LineageExpression(operations=frozenset(), reads=frozenset()))
            made[first] = replace(known, reads=known.reads | {*others})


def _end_of(nodes: Sequence[Mapping[str, Any]], place: int) -> int:
    """Return the place after an operator and its parts."""
    end = place + 1
    for _ in range(int(nodes[place].get("num-children", 0))):
        end = _end_of(nodes, end)
    return end


def _expression(nodes: list[Any]) -> LineageExpression:
    objects = objects_in(nodes)
    parts = [part for part, _ in objects if isinstance(part.get("class"), str)]
    reads = {column_identity(part) for part in parts if class_name(part) == "AttributeReference"}
    return LineageExpression(
        operations=frozenset((*map(class_name, parts), *clocks.in_plan(objects))), reads=frozenset(reads)
    )


def column_identity(node: Mapping[str, Any]) -> int:
    """Return the identity of a column, which steps that pass it through keep."""
    return int(node["exprId"]["id"])
