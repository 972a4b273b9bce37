"""Formula: writes the expression that computes a column as text, down to the columns that a region reads.

The text is the same whenever the same steps are analysed, and changes if any of them computes the column differently.
Steps that only pass a column through are not in it. A long formula is replaced by its beginning and a digest. Otherwise
a column that is used twice in each of twenty steps would be written a million times.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from pyspark.sql import DataFrame

from falkirk.steps.static_analysis.functions import Nature, entry_of
from falkirk.steps.static_analysis.lineage import column_identity
from falkirk.steps.static_analysis.structure import class_name, output_of, plan_tree

_Nodes = Sequence[dict[str, Any]]
#: Fields of an expression that differ from one analysis to the next, or that only point to its parts.
_LEFT_OUT = frozenset(
    {
        "class", "num-children", "exprId", "resultId", "qualifier", "metadata", "nonInheritableMetadataKeys", "child",
        "left", "right", "children", "randomSeed",
    }
)  # fmt: skip
#: A formula with more than `_LONG` characters is replaced by its first `_BEGINNING` ones and a digest.
_LONG, _BEGINNING = 200, 80


def formulas(data: DataFrame, began: Mapping[int, str]) -> tuple[dict[str, str], list[str]]:
    """Return the formulas of a DataFrame's columns, by name, and those of its grouping keys.

    Args: began: the names of the columns at which formulas end, by Catalyst's identity.
    """
    nodes, writer = plan_tree(data), _Writer(began=began)
    writer.read(nodes)
    grouping = [one for node in nodes for one in node.get("groupingExpressions", ())]
    return _columns(data, writer), [_short(writer.text(one)) for one in grouping]


def deciding_formulas(data: DataFrame, names: Collection[str], began: Mapping[int, str]) -> str:
    """Return the formulas of columns, and of the conditions and generators that decide which rows exist.

    Args: names: the names of the columns. began: see `formulas`.
    """
    nodes, writer = plan_tree(data), _Writer(began=began)
    writer.read(nodes)
    rows = {f"where {writer.text(node['condition'])}" for node in nodes if class_name(node) == "Filter"}
    rows |= {f"each of {writer.text(node['generator'])}" for node in nodes if "generator" in node}
    columns = [f"{name}: {text}" for name, text in _columns(data, writer).items() if name in names]
    return "; ".join([*columns, *sorted(rows)])


def _columns(data: DataFrame, writer: "_Writer") -> dict[str, str]:
    return {name: writer.column(identity, name) for name, identity in output_of(data)}


@dataclass(kw_only=True)
class _Writer:
    """Writes formulas.

    Args: made: for each column, its expression and the number of its result there. written: the formulas so far.
    """

    began: Mapping[int, str]
    made: dict[int, tuple[_Nodes, str]] = field(default_factory=dict)
    written: dict[int, str] = field(default_factory=dict)
    lambdas: dict[int, str] = field(default_factory=dict)

    def read(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        """Add the columns that the operators of a plan make."""
        for node in nodes:
            if "generator" in node:
                for i, one in enumerate(node["generatorOutput"]):
                    self.made.setdefault(column_identity(one[0]), (node["generator"], f"[{i}]"))
            for several in (node.get("projectList"), node.get("aggregateExpressions")):
                for one in several or ():
                    if class_name(one[0]) == "Alias":
                        self.made.setdefault(column_identity(one[0]), (one[1:], ""))

    def column(self, identity: int, name: str, kind: object = "") -> str:
        """Return the formula of a column."""
        if identity in self.began or identity not in self.made:
            return f"{self.began.get(identity, name)} {kind}".strip()
        if identity not in self.written:
            nodes, which = self.made[identity]
            self.written[identity] = _short(self.text(nodes) + which)
        return self.written[identity]

    def text(self, nodes: _Nodes) -> str:
        """Return the formula of an expression, given as its nodes, each before its parts.

        The parameters of its lambdas are numbered from 0, independent of other formulas.
        """
        before, self.lambdas = self.lambdas, {}
        try:
            return self._written(iter(nodes))
        finally:
            self.lambdas = before

    def _written(self, nodes: Any) -> str:
        node = next(nodes)
        name = class_name(node)
        parts = [self._written(nodes) for _ in range(int(node.get("num-children", 0)))]
        if name == "AttributeReference":
            return self.column(column_identity(node), node["name"], _plain(node["dataType"]))
        if name == "Alias":
            return parts[0]
        if name == "Literal":
            value = "" if node["dataType"] == "binary" else f"{node['value']!r} "  # of binary it is a memory address
            return f"{value}{_plain(node['dataType'])}"
        if name == "NamedLambdaVariable":
            return self.lambdas.setdefault(column_identity(node), f"λ{len(self.lambdas)}")
        if entry_of(name).nature is Nature.DIFFERENT:  # PySpark generates a new seed for it each time
            return f"{name}()"
        if name == "In":  # the values may come from a set, whose order differs per process
            parts = [parts[0], *sorted(parts[1:])]
        fields = [f"{key}={self._field(value)}" for key, value in sorted(node.items()) if key not in _LEFT_OUT]
        return f"{name}({', '.join([*parts, *fields])})"

    def _field(self, value: Any) -> str:
        """Return a field of an expression. It may contain nested expressions, like the branches of a `CASE`."""
        if isinstance(value, list) and value and isinstance(value[0], dict) and "class" in value[0]:
            return self._written(iter(value))
        if isinstance(value, list):
            return f"[{', '.join(map(self._field, value))}]"
        if isinstance(value, dict):
            return ", ".join(f"{k}={self._field(inner)}" for k, inner in sorted(value.items()) if k not in _LEFT_OUT)
        return _plain(value)


def _short(text: str) -> str:
    if len(text) <= _LONG:
        return text
    return f"{text[:_BEGINNING]}… ({sha256(text.encode()).hexdigest()[:16]})"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
