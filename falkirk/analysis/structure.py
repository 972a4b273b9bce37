"""Structure: a plan of Spark's as values that are the same whenever one program is analysed, and others for another
program.

Spark's JSON of a plan has the operators, names and literals; its text has what the JSON leaves out, such as options.
Both number columns on through a whole process, so that columns are numbered here by where they first appear. Leaves
are known by what they are: an input by its name, rows of the program's own by their values.
"""

import json
import re
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from pyspark.sql import DataFrame

#: Fields that differ from one analysis of the same program to the next.
_PASSING = {
    "jvmId", "rdd", "session", "metadata", "qualifier", "nonInheritableMetadataKeys", "createTime", "dataframeId",
    "randomSeed",
}  # fmt: skip
#: What Spark numbers on and on, in whichever class.
_NUMBERED = {"cteId", "loopId"}
_NUMBERED_ID = (".CTERelationDef", ".UnionLoop", ".UnionLoopRef")
#: Names that PySpark makes up, of a view for a DataFrame within `spark.sql`; where in memory a binary literal is; seeds
#: that Spark draws.
_MADE_UP = re.compile(r"(?<=_pyspark_)[0-9a-f]{32}|(?<=\[B@)[0-9a-f]+|(?<=Some\()-?\d+(?=\))")
#: Leaves of which JSON has all there is to know.
_WHOLE = ("Range", "OneRowRelation", "CTERelationRef", "UnionLoopRef")

#: Leaves that are rows, of which no plan says where they come from.
OF_ROWS = ("LocalRelation", "LogicalRDD")
#: The name of those that are written in SQL's text as constants; their values are in the plan.
IN_SQL = "in SQL"
#: In a plan's text: columns, common parts and lambdas' variables, which are numbered on and on.
_NUMBER = re.compile(r"#\d+|(?<=CTERelationDef )\d+|(?<=CTERelationRef )\d+|(?<=UnionLoop )\d+|(?<=UnionLoopRef )\d+")
_LAMBDA = re.compile(r"(?<=lambda )(\w+?)_\d+(?=#)")
#: The name of an observation, and the number of the DataFrame that asks for it.
_OBSERVED = re.compile(r"^([\s:+-]*CollectMetrics )[^,]*(.*?)(, \d+)?$")
_OPERATOR = re.compile(r"^[\s:+-]*(?=\w)")

#: JSON of plans that were read before. A DataFrame's analysed plan never changes, and is asked for several times.
_TREES: "weakref.WeakKeyDictionary[DataFrame, Any]" = weakref.WeakKeyDictionary()

Leaf = tuple[str, int]
"""What a leaf of a plan reads, by its identity in the JVM: Spark copies leaves, but not what they read."""


@dataclass(kw_only=True)
class Leaves:
    """Leaves of plans that are known, each by a name: an input's, or that of rows which the program makes itself."""

    names: dict[Leaf, str] = field(default_factory=dict)

    @classmethod
    def of(cls, frames: Mapping[str, DataFrame]) -> "Leaves":
        """Return the leaves of DataFrames as known by their names."""
        leaves = cls()
        for name, data in frames.items():
            leaves.add(name, data)
        return leaves

    def add(self, name: str, data: DataFrame) -> None:
        """Let the leaves of a DataFrame be known by a name, unless they are known by another."""
        for leaf in leaves_of(analyzed(data)):
            self.add_leaf(name, data, leaf)

    def add_leaf(self, name: str, data: DataFrame, leaf: Any) -> None:
        """Let a leaf of a DataFrame be known by a name, unless it is known by another."""
        if leaf.getClass().getSimpleName() not in _WHOLE:
            self.names.setdefault(identity(data, leaf), name)

    def named(self, data: DataFrame) -> Iterator[tuple[Any, str | None]]:
        """Yield the leaves of a DataFrame's plan with their names; None: it is not known."""
        for leaf in leaves_of(analyzed(data)):
            yield leaf, self.names.get(identity(data, leaf))

    def unknown(self, data: DataFrame) -> frozenset[str]:
        """Return the kinds of rows in a DataFrame's plan of which nobody knows where they come from."""
        kinds = {str(leaf.getClass().getSimpleName()) for leaf, name in self.named(data) if name is None}
        return frozenset(kinds & set(OF_ROWS))


def analyzed(data: DataFrame) -> Any:
    """Return a DataFrame's analysed plan, in the JVM."""
    return data._jdf.queryExecution().analyzed()


def tree_of(data: DataFrame) -> Any:
    """Return a DataFrame's analysed plan as Spark's JSON. It is shared: do not change it."""
    if (tree := _TREES.get(data)) is None:
        tree = _TREES[data] = json.loads(str(analyzed(data).toJSON()))
    return tree


def leaves_of(plan: Any) -> Iterator[Any]:
    """Yield the leaves of a plan in the JVM, those of its subqueries included."""
    inner = plan.subqueriesAll()
    for each in (plan, *(inner.apply(i) for i in range(inner.size()))):
        leaves = each.collectLeaves()
        yield from (leaves.apply(i) for i in range(leaves.size()))


def identity(data: DataFrame, leaf: Any) -> Leaf:
    """Return what a leaf reads: the first of its parts that is not its columns, which are others in each copy."""
    kind = str(leaf.getClass().getSimpleName())
    if kind in _WHOLE or leaf.productArity() == 0:
        return kind, 0
    session: Any = data.sparkSession
    read = leaf.productElement(1 if kind in OF_ROWS else 0)
    return kind, int(session._jvm.System.identityHashCode(read))


def structure_of(data: DataFrame, leaves: Leaves, tree: Any = None) -> list[Any]:
    """Return the structure of a DataFrame's plan. Args: tree: its JSON, if it is there already."""
    text = str(analyzed(data).toString())
    read = [_rows(leaf) if name in (None, IN_SQL) else name for leaf, name in leaves.named(data)]
    return [lasting(tree_of(data) if tree is None else tree), _lasting_text(text), read]


def digest(structure: Any) -> str:
    """Return what stands for a structure."""
    return sha256(json.dumps(structure, sort_keys=True).encode()).hexdigest()[:16]


def lasting(value: Any, numbers: dict[Any, int] | None = None) -> Any:
    """Return a plan, as Spark's JSON, without what differs from one analysis to the next.

    Args: numbers: those of its columns and common parts, by which they are called from here on: they count from 0.
    """
    numbers = {} if numbers is None else numbers
    if isinstance(value, str):
        return _MADE_UP.sub("", value)
    if isinstance(value, list):
        return [lasting(inner, numbers) for inner in value]
    if not isinstance(value, dict):
        return value
    if str(value.get("product-class", "")).endswith(".ExprId"):
        return numbers.setdefault(("column", value["id"]), len(numbers))
    name = str(value.get("class", ""))
    if _is_read(value, name):
        return ["leaf", lasting(value.get("output", []), numbers)]
    numbered = _NUMBERED | {"id"} if name.endswith(_NUMBERED_ID) else _NUMBERED
    passing = _PASSING | {"name"} if name.endswith(".CollectMetrics") else _PASSING
    kept = {
        key: numbers.setdefault(inner, len(numbers)) if key in numbered else lasting(inner, numbers)
        for key, inner in value.items()
        if key not in passing and not (key in ("splits", "numSlices") and name.endswith(".Range"))
    }
    if name.endswith(".NamedLambdaVariable"):
        kept["name"] = str(value["name"]).rpartition("_")[0]  # PySpark numbers them all, on and on
    return kept


def name_of(node: Mapping[str, Any]) -> str:
    """Return Catalyst's class of a node of a plan, or of an expression."""
    return str(node.get("class", "")).rpartition(".")[2]


def _is_read(node: Mapping[str, Any], name: str) -> bool:
    """Whether a node is a leaf of a plan whose JSON says how it is read this time."""
    is_leaf = node.get("num-children") == 0 and ".expressions." not in name
    return is_leaf and name_of(node) not in _WHOLE


def _rows(leaf: Any) -> str:
    """Return the values of rows that are in a plan itself."""
    kind = str(leaf.getClass().getSimpleName())
    return f"{kind} {leaf.data().toString()}" if kind == "LocalRelation" else kind


def _lasting_text(text: str) -> list[str]:
    """Return a plan's text without its leaves, and without what differs from one analysis to the next."""
    numbers: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"#{len(numbers)}")

    lines = [_OBSERVED.sub(r"\1\2", _LAMBDA.sub(r"\1", line)) for line in _inner(text.splitlines())]
    return [_NUMBER.sub(numbered, _MADE_UP.sub("", line)) for line in lines]


def _inner(lines: list[str]) -> Iterable[str]:
    """Return the lines of a plan's text that are not of leaves: a leaf is followed by nothing that is further in."""
    depths = [len(found[0]) if (found := _OPERATOR.match(line)) else 0 for line in lines]
    return [line for line, depth, after in zip(lines, depths, [*depths[1:], 0], strict=True) if after > depth]
