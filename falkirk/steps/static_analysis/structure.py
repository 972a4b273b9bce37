"""Structure: describes a Spark plan by values that are the same whenever one program is analysed, and that differ for
another program.

Spark's JSON of a plan has the operators, names and literals. Its text has parts that the JSON leaves out, such as
options. Both number columns across a whole process, so here columns are numbered by their first appearance. An input
is identified by its name, and rows of the program by their values.
"""

import json
import re
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice, pairwise
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame

#: Fields that differ from one analysis of the same program to the next.
_PASSING = {
    "jvmId", "rdd", "session", "metadata", "qualifier", "nonInheritableMetadataKeys", "createTime", "dataframeId",
    "randomSeed",
}  # fmt: skip
#: Fields that Spark numbers across a whole process, in any class.
_NUMBERED = {"cteId", "loopId"}
_NUMBERED_ID = (".CTERelationDef", ".UnionLoop", ".UnionLoopRef")
#: Texts that PySpark and Spark generate: names of views for DataFrames in `spark.sql`, memory addresses of binary
#: literals, and seeds.
_MADE_UP = re.compile(r"(?<=_pyspark_)[0-9a-f]{32}|(?<=\[B@)[0-9a-f]+|(?<=Some\()-?\d+(?=\))")
#: Leaves that JSON describes completely.
_WHOLE = ("Range", "OneRowRelation", "CTERelationRef", "UnionLoopRef")

#: Leaves with rows whose origin no plan shows.
OF_ROWS = ("LocalRelation", "LogicalRDD")
#: The name of leaves whose rows are constants in the text of SQL. Their values are in the plan.
IN_SQL = "in SQL"
#: The numbers of columns, common parts and lambdas' variables in a plan's text. They grow across a whole process.
_NUMBER = re.compile(r"#\d+|(?<=CTERelationDef )\d+|(?<=CTERelationRef )\d+|(?<=UnionLoop )\d+|(?<=UnionLoopRef )\d+")
_LAMBDA = re.compile(r"(?<=lambda )(\w+?)_\d+(?=#)")
#: The name of an observation, and the number of the DataFrame that observes it.
_OBSERVED = re.compile(r"^([\s:+-]*CollectMetrics )[^,]*(.*?)(, \d+)?$")
_OPERATOR = re.compile(r"^[\s:+-]*(?=\w)")

#: A cache of plans as JSON. A DataFrame's analysed plan never changes, and is read several times.
_WRITTEN: "weakref.WeakKeyDictionary[DataFrame, _Written]" = weakref.WeakKeyDictionary()
#: The class of the Java module that writes plans, in each JVM. Without this, py4j searches for it each time.
_WRITERS: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()
#: The names of fields that no analysis reads, for the Java module.
_IGNORED = ",".join(sorted(_PASSING))

Objects = list[tuple[dict[str, Any], Any]]
"""All objects in Spark's JSON: see `objects_in`."""
Leaf = tuple[str, int]
"""The data that a leaf of a plan reads, by its identity in the JVM. Spark copies leaves, but not their data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """An analysed plan. Args: tree: it as JSON. output: the names and identities of the result's columns. leaves: of it
    and of its subqueries.
    """

    tree: Any
    output: tuple[tuple[str, int], ...]
    leaves: tuple[Leaf, ...]


@dataclass(kw_only=True)
class KnownLeaves:
    """Known leaves of plans, by name: the name of an input, or of rows that the program makes itself."""

    names: dict[Leaf, str] = field(default_factory=dict)

    @classmethod
    def of(cls, frames: Mapping[str, DataFrame]) -> "KnownLeaves":
        """Return the leaves of DataFrames with these names."""
        leaves = cls()
        for name, data in frames.items():
            leaves.add(name, data)
        return leaves

    def add(self, name: str, data: DataFrame) -> None:
        """Give the leaves of a DataFrame a name, unless they have one."""
        for leaf in _written(data).leaves:
            self._add(name, leaf)

    def add_leaf(self, name: str, data: DataFrame, leaf: Any) -> None:
        """Give a leaf of a DataFrame, in the JVM, a name, unless it has one."""
        self._add(name, identity(data, leaf))

    def _add(self, name: str, leaf: Leaf) -> None:
        if leaf[0] not in _WHOLE:
            self.names.setdefault(leaf, name)

    def named(self, data: DataFrame) -> Iterator[tuple[str, str | None]]:
        """Yield the kind of each leaf of a DataFrame's plan, with its name; None: the leaf is unknown."""
        for leaf in _written(data).leaves:
            yield leaf[0], self.names.get(leaf)

    def unknown(self, data: DataFrame) -> frozenset[str]:
        """Return the kinds of the leaves in a DataFrame's plan whose rows have an unknown origin."""
        return frozenset({kind for kind, name in self.named(data) if name is None} & set(OF_ROWS))


def analyzed(data: DataFrame) -> Any:
    """Return a DataFrame's analysed plan, in the JVM."""
    return data._jdf.queryExecution().analyzed()


def plan_tree(data: DataFrame) -> Any:
    """Return a DataFrame's analysed plan as Spark's JSON. It is shared: do not change it."""
    return _written(data).tree


def output_of(data: DataFrame) -> tuple[tuple[str, int], ...]:
    """Return the names of a DataFrame's columns, each with Catalyst's identity (exprId)."""
    return _written(data).output


def _written(data: DataFrame) -> _Written:
    """Return a DataFrame's analysed plan: from the Java module, or from Spark if the session lacks it."""
    if (written := _WRITTEN.get(data)) is None:
        if (writer := _writer(data)) is None:
            written = by_spark(data)
        else:
            read = json.loads(zlib.decompress(writer.of(data._jdf, _IGNORED)))
            written = _Written(
                tree=read["tree"],
                output=tuple((name, number) for name, number in read["output"]),
                leaves=tuple(_leaf(kind, parts) for kind, parts in read["leaves"]),
            )
        _WRITTEN[data] = written
    return written


def _writer(data: DataFrame) -> Any:
    """Return the class of the Java module that writes plans; None: the session lacks it."""
    jvm: Any = data.sparkSession._jvm
    if (writer := _WRITERS.get(jvm)) is None and isinstance(found := jvm.org.falkirk.PlanJson, JavaClass):
        writer = _WRITERS[jvm] = found
    return writer


def by_spark(data: DataFrame) -> _Written:
    """Return a DataFrame's analysed plan as Spark writes it, with all fields."""
    plan = analyzed(data)
    output = plan.output()
    columns = (output.apply(i) for i in range(output.size()))
    named = tuple((str(column.name()), int(column.exprId().id())) for column in columns)
    leaves = tuple(identity(data, leaf) for leaf in leaves_of(plan))
    return _Written(tree=json.loads(str(plan.toJSON())), output=named, leaves=leaves)


def objects_in(tree: Any) -> Objects:
    """Return all objects in a plan or an expression as Spark's JSON, each with the rest of its list.

    None follows the last one of a list, and `...` one that is in no list. Plans have thousands of values, so this is a
    loop and visits no texts and numbers.
    """
    found: Objects = [(tree, ...)] if isinstance(tree, dict) else []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            for value in node.values():
                if isinstance(value, dict):
                    found.append((value, ...))
                    waiting.append(value)
                elif isinstance(value, list):
                    waiting.append(value)
        elif isinstance(node, list):
            for value, following in pairwise((*node, None)):
                if isinstance(value, dict):
                    found.append((value, following))
                    waiting.append(value)
                elif isinstance(value, list):
                    waiting.append(value)
    return found


def leaves_of(plan: Any) -> Iterator[Any]:
    """Yield the leaves of a plan in the JVM, including those of its subqueries."""
    inner = plan.subqueriesAll()
    for each in (plan, *(inner.apply(i) for i in range(inner.size()))):
        leaves = each.collectLeaves()
        yield from (leaves.apply(i) for i in range(leaves.size()))


def identity(data: DataFrame, leaf: Any) -> Leaf:
    """Return the identity of the data of a leaf in the JVM."""
    system: Any = data.sparkSession._jvm.System  # type: ignore[union-attr]
    parts = [int(system.identityHashCode(leaf.productElement(i))) for i in range(min(2, leaf.productArity()))]
    return _leaf(str(leaf.getClass().getSimpleName()), parts)


def _leaf(kind: str, parts: list[int]) -> Leaf:
    """Return the identity of a leaf's data: its first part without its columns, because these differ in each copy.

    Args: parts: the identities of its first two parts, if it has as many.
    """
    return (kind, 0) if kind in _WHOLE or not parts else (kind, parts[1 if kind in OF_ROWS else 0])


def structure_of(data: DataFrame, leaves: KnownLeaves, tree: Any = None) -> list[Any]:
    """Return the structure of a DataFrame's plan. Args: tree: its JSON, if the caller has it."""
    read = [_rows(data, n) if name in (None, IN_SQL) else name for n, (_, name) in enumerate(leaves.named(data))]
    return [lasting(plan_tree(data) if tree is None else tree), _lasting_text(_text(data)), read]


def _text(data: DataFrame) -> str:
    writer = _writer(data)
    return str(analyzed(data).toString()) if writer is None else zlib.decompress(writer.text(data._jdf)).decode()


def digest(structure: Any) -> str:
    """Return the digest of a structure."""
    return sha256(json.dumps(structure, sort_keys=True).encode()).hexdigest()[:16]


def lasting(value: Any, numbers: dict[Any, int] | None = None) -> Any:
    """Return a plan, as Spark's JSON, without the parts that differ from one analysis to the next.

    Args: numbers: the new numbers of its columns and common parts, from 0.
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
        kept["name"] = str(value["name"]).rpartition("_")[0]  # PySpark numbers them across a whole process
    return kept


def class_name(node: Mapping[str, Any]) -> str:
    """Return Catalyst's class of a node of a plan, or of an expression."""
    return str(node.get("class", "")).rpartition(".")[2]


def _is_read(node: Mapping[str, Any], name: str) -> bool:
    """Return whether a node is a leaf of a plan whose JSON depends on this reading."""
    is_leaf = node.get("num-children") == 0 and ".expressions." not in name
    return is_leaf and class_name(node) not in _WHOLE


def _rows(data: DataFrame, number: int) -> str:
    """Return the values of rows that a leaf of a plan contains."""
    kind, _ = _written(data).leaves[number]
    leaf = next(islice(leaves_of(analyzed(data)), number, None)) if kind == "LocalRelation" else None
    return kind if leaf is None else f"{kind} {leaf.data().toString()}"


def _lasting_text(text: str) -> list[str]:
    """Return a plan's text without its leaves and without the parts that differ from one analysis to the next."""
    numbers: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"#{len(numbers)}")

    lines = [_OBSERVED.sub(r"\1\2", _LAMBDA.sub(r"\1", line)) for line in _inner(text.splitlines())]
    return [_NUMBER.sub(numbered, _MADE_UP.sub("", line)) for line in lines]


def _inner(lines: list[str]) -> Iterable[str]:
    """Return the lines of a plan's text without leaves. After a leaf, no line is indented further."""
    depths = [len(found[0]) if (found := _OPERATOR.match(line)) else 0 for line in lines]
    return [line for line, depth, after in zip(lines, depths, [*depths[1:], 0], strict=True) if after > depth]
