"""Collections: multisets of rows that change, with which a user writes an iteration.

A collection is a multiset of rows at each epoch. Falkirk stores and sends only its changes. Each operator is
incremental over epochs and over the rounds of loops: a change of a row costs only the rows that depend on it.
Source: Falkirk Wheel, §2.2; McSherry et al., Differential Dataflow (CIDR 2013).
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DayTimeIntervalType,
    DoubleType,
    LongType,
    StructField,
    StructType,
)

from falkirk.declare.keys import key_columns
from falkirk.errors.conditions.differential import (
    AGGREGATE_INVALID,
    KEYS_DIFFER,
    ROUNDS_INVALID,
    ROWS_INVALID,
    UNTIL_IN_ITERATE,
)
from falkirk.errors.location import SourceLocation, caller
from falkirk.steps.dataframes.empty import no_rows
from falkirk.steps.dataframes.names import PREFIX
from falkirk.steps.differential.checks import applied, check_same_columns, checked
from falkirk.steps.differential.graph import (
    Concat,
    Entered,
    Joined,
    Left,
    LoopGraph,
    LoopNode,
    LoopVariable,
    Mapped,
    Reduced,
    Result,
    Scope,
    loop_left,
)  # fmt: skip
from falkirk.steps.differential.operators import Aggregate, Group, Join, Reduce, Top
from falkirk.steps.differential.rows import DIFFERENCE
from falkirk.steps.differential.rows import rounds as timing
from falkirk.steps.differential.schemas import timed_schema
from falkirk.steps.differential.tried import Tried
from falkirk.steps.live.stamped import check_names, is_star
from falkirk.steps.static_analysis.columns import require_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """The defaults of loops: the greatest number of rounds, and the tolerance of floating-point sums.

    Args: is_vouched: whether the user has declared that everything in the iteration is deterministic.
    """

    rounds: int = 1_000
    until: float = 0.0
    is_vouched: bool = False


_PLAIN = LoopLimits()
limits: ContextVar[LoopLimits] = ContextVar("limits", default=_PLAIN)


class Collection:
    """Rows that change.

    Args: like: an empty DataFrame with the same columns; Spark infers from it the type of an expression over them.
    """

    def __init__(self, node: LoopNode, like: DataFrame) -> None:
        self._node, self._like = node, like

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self._like.columns)

    @property
    def schema(self) -> StructType:
        """The names and types of its columns."""
        return self._like.schema

    # -- row by row ---------------------------------------------------------------------------------------------------

    def select(self, *columns: "str | Column") -> "Collection":
        """Return a collection of expressions over each row.

        Raises: DefinitionError: `STEP_INVALID`; `NON_DETERMINISTIC`: a removed row must equal the row that was added.
        """
        plain = [c for entry in columns for c in (self._users() if is_star(entry) else [entry])]
        return self._mapped("select", lambda rows: rows.select(*plain, *_ours(rows)))

    def where(self, condition: "str | Column") -> "Collection":
        """Return the rows for which a condition holds. Raises: as `select`."""
        return self._mapped("where", lambda rows: rows.where(condition))

    def withColumns(self, columns: dict[str, Column]) -> "Collection":
        """Return the rows with columns added or replaced. Raises: as `select`."""
        return self._mapped("withColumns", lambda rows: rows.withColumns(columns))

    def withColumnRenamed(self, existing: str, new: str) -> "Collection":
        """Return the rows with a column renamed. Raises: DefinitionError: `COLUMN_MISSING`."""
        self._require([existing], "withColumnRenamed")
        return self._mapped("withColumnRenamed", lambda rows: rows.withColumnRenamed(existing, new))

    def negate(self) -> "Collection":
        """Return the same rows with negated counts. `concat` with them subtracts one collection from another."""
        minus = {DIFFERENCE: -F.col(DIFFERENCE)}

        def how(rows: DataFrame) -> DataFrame:
            return rows.withColumns(minus)

        tried = Tried.on(self._given(), how)
        node = Mapped(scope=self._node.scope, schema=self.schema, of=self._node, how=how, tried=tried)
        return Collection(node, self._like)

    def concat(self, *others: "Collection") -> "Collection":
        """Return the rows of all collections; the counts of equal rows are added.

        Raises: DefinitionError: `COLUMNS_DIFFER`.
        """
        where, scope = caller(), _innermost(self, *others)
        nodes = [self._node]
        says = "concat(): {first} and {other} are different columns."
        hint = "Give them the same columns and types with select()."
        for other in others:
            check_same_columns(self.schema, other.schema, says, hint, where)
            nodes.append(other._node)
        entered = tuple(_entered(node, scope) for node in nodes)
        return Collection(Concat(scope=scope, schema=self.schema, of=entered), self._like)

    # -- with memory --------------------------------------------------------------------------------------------------

    def join(self, other: "Collection", on: "str | Sequence[str]") -> "Collection":
        """Return each pair of rows with equal keys: the keys, and the other columns of both.

        Raises: DefinitionError: `COLUMN_MISSING`, `COLUMN_TWICE`, `KEYS_DIFFER`, `TYPE_UNSUITABLE`.
        """
        return self._joined(other, [*key_columns(on)], "join", caller())

    def _joined(self, other: "Collection", keys: list[str], operation: str, where: SourceLocation) -> "Collection":
        self._require(keys, operation, where)
        other._require(keys, operation, where)
        for key in keys:
            mine, theirs = self.schema[key].dataType, other.schema[key].dataType
            if mine != theirs:
                raise KEYS_DIFFER.error(
                    where=where, column=key, operation=operation, here=mine.simpleString(), there=theirs.simpleString()
                )
        left, right = ([c for c in side.columns if c not in keys] for side in (self, other))
        check_names([*keys, *left, *right], where)
        fields = [*(self.schema[c] for c in (*keys, *left)), *(other.schema[c] for c in right)]
        scope = _innermost(self, other)
        operator = Join(keys=tuple(keys), left=tuple(left), right=tuple(right))
        of = (_entered(self._node, scope), _entered(other._node, scope))
        return self._made(Joined(scope=scope, schema=checked(fields, where), of=of, operator=operator))

    def semijoin(self, other: "Collection", on: "str | Sequence[str]") -> "Collection":
        """Return the rows whose key occurs in the other collection. Raises: as `join`."""
        return self._semijoined(other, [*key_columns(on)], "semijoin", caller())

    def _semijoined(self, other: "Collection", keys: list[str], operation: str, where: SourceLocation) -> "Collection":
        other._require(keys, operation, where)
        return self._joined(other.select(*keys).distinct(), keys, operation, where).select(*self.columns)

    def antijoin(self, other: "Collection", on: "str | Sequence[str]") -> "Collection":
        """Return the rows whose key does not occur in the other collection. Raises: as `join`."""
        return self.concat(self._semijoined(other, [*key_columns(on)], "antijoin", caller()).negate())

    def distinct(self) -> "Collection":
        """Return each row once. Raises: DefinitionError: `TYPE_UNSUITABLE`."""
        return self._reduced(self.columns, [], Group(), caller())

    def groupBy(self, *keys: str) -> "Grouped":
        """Return the rows by key; without keys, all of them as one group. Raises: DefinitionError: `COLUMN_MISSING`."""
        where = caller()
        self._require(keys, "groupBy", where)
        return Grouped(self, list(keys), where)

    def iterate(self, body: "Callable[[Collection], Collection]", rounds: int | None = None) -> "Collection":
        """Return the result of applying a body repeatedly until nothing changes, beginning with these rows.

        Args: body: receives the result of the previous round, and may read other collections. rounds: the greatest
            number of rounds. The number of rounds done, and whether the loop converged, are reported with the result.
        Raises: DefinitionError: `COLUMNS_DIFFER`: the body returns other columns than it receives; `ROUNDS_INVALID`;
            `TYPE_UNSUITABLE`.
        """
        return _loop(self, self._like, self._node.scope, body, rounds, restarts=True, where=caller())

    def graph(self) -> LoopGraph:
        """Return the graph of this collection. Raises: DefinitionError: `LOOP_LEFT`: it was made in a loop's body."""
        if self._node.scope.parent is not None:
            raise loop_left()
        return LoopGraph(result=Result(scope=self._node.scope, schema=self._node.schema, of=self._node))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _made(self, node: LoopNode) -> "Collection":
        return Collection(node, no_rows(self._like.sparkSession, node.schema))

    def _users(self) -> list[Column]:
        return [F.col(f"`{name}`") for name in self.columns]

    def _require(self, names: Sequence[str], operation: str, where: SourceLocation | None = None) -> None:
        require_columns(
            names, self.columns, where or caller(), lambda name: f"{operation}(): there is no column {name!r}."
        )

    def _mapped(self, operation: str, how: Callable[[DataFrame], DataFrame]) -> "Collection":
        where = caller()
        is_vouched = limits.get().is_vouched
        like, tried = applied(operation, how, self._like, self._given(), where, is_vouched=is_vouched)
        node = Mapped(scope=self._node.scope, schema=like.schema, of=self._node, how=how, tried=tried, where=where)
        return Collection(node, like)

    def _given(self) -> DataFrame:
        """Return no rows with the columns of this collection, and Falkirk's."""
        return no_rows(self._like.sparkSession, timed_schema(self.schema, self._node.scope.depth))

    def _reduced(self, keys: list[str], results: list[StructField], how: Group | Top, where: object) -> "Collection":
        values = [c for c in self.columns if c not in keys]
        if isinstance(how, Group):
            values = [c for c in values if c in {a.column for a in how.aggregates}]
        schema = checked([*(self.schema[k] for k in keys), *results], where)
        checked([self.schema[v] for v in values], where)
        operator = Reduce(
            keys=tuple(keys), values=tuple(values), results=tuple(f.name for f in results), how=how,
        )  # fmt: skip
        return self._made(Reduced(scope=self._node.scope, schema=schema, of=self._node, operator=operator))


class Grouped:
    """Rows by key."""

    def __init__(self, of: Collection, keys: list[str], where: SourceLocation) -> None:
        self._of, self._keys, self._where = of, keys, where

    def count(self, name: str = "count") -> Collection:
        """Return the number of rows of each key."""
        return self.agg({name: ("count", "")})

    def sum(self, column: str, name: str = "", tolerance: float | None = None) -> Collection:
        """Return the sum of a column. Args: tolerance: as of `agg`."""
        return self.agg({name or column: ("sum", column)}, tolerance=tolerance)

    def min(self, column: str, name: str = "") -> Collection:
        """Return the least value of a column."""
        return self.agg({name or column: ("min", column)})

    def max(self, column: str, name: str = "") -> Collection:
        """Return the greatest value of a column."""
        return self.agg({name or column: ("max", column)})

    def agg(self, results: dict[str, tuple[Any, str]], tolerance: float | None = None) -> Collection:
        """Return one row for each key that has rows: the keys, and one column for each name in `results`.

        Args: results: by name, a `(kind, column)`; the kinds are `count`, `sum`, `min` and `max`. tolerance: a
            floating-point result that moves by no more keeps its old value, so that a loop converges. The default in a
            `fixpoint` is the iteration's `until`.
        Raises: DefinitionError: `COLUMN_MISSING`, `COLUMN_TWICE`, `AGGREGATE_INVALID`, `TYPE_UNSUITABLE`;
            `UNTIL_IN_ITERATE`: the iteration has an `until`, and this sum is in a loop that ignores it.
        """
        fields, aggregates = [], []
        for name, (kind, column) in results.items():
            if kind != "count":
                self._of._require([column], "agg", self._where)
            fields.append(StructField(name, self._type(kind, column)))
            aggregates.append(Aggregate(kind=kind, column=column, name=name))
        check_names([*self._keys, *results], self._where)
        if tolerance is None:
            tolerance = self._until([a.name for a, f in zip(aggregates, fields, strict=True) if _is_rounded(a, f)])
        how = Group(aggregates=tuple(aggregates), tolerance=tolerance)
        return self._of._reduced(self._keys, fields, how, self._where)

    def _until(self, rounded: list[str]) -> float:
        """Return the tolerance of results for which the user gave none. The result of `iterate` is defined by its
        number of rounds, so a tolerance in its body must be explicit. Args: rounded: floating-point sums."""
        scope, until = self._of._node.scope, limits.get().until
        if not scope.restarts:
            return until
        if until and scope.depth and rounded:
            raise UNTIL_IN_ITERATE.error(where=self._where, column=rounded[0], until=until)
        return 0.0

    def _type(self, kind: str, column: str) -> DataType:
        if kind == "count":
            return LongType()
        given = self._of.schema[column].dataType
        if kind in ("min", "max") and not isinstance(given, DayTimeIntervalType):
            return given
        number = given.simpleString()
        if kind == "sum" and number in ("tinyint", "smallint", "int", "bigint"):
            return LongType()
        if kind == "sum" and number in ("float", "double"):
            return DoubleType()
        raise AGGREGATE_INVALID.error(where=self._where, kind=kind, column=column, number=number)

    def top(self, rows: int, *by: str) -> Collection:
        """Return the first rows of each key.

        Args: by: columns, the greatest value first; with a `+` before the name, the least first. The other columns
            order rows that are equal in these. Nulls are less than all other values, as in Spark.

        Raises: DefinitionError: `COLUMN_MISSING`, `ROWS_INVALID`, `TYPE_UNSUITABLE`.
        """
        if not isinstance(rows, int) or rows < 1:
            raise ROWS_INVALID.error(where=self._where, rows=rows)
        order = tuple((name.removeprefix("+"), not name.startswith("+")) for name in by)
        self._of._require([name for name, _ in order], "top", self._where)
        others = [self._of.schema[c] for c in self._of.columns if c not in self._keys]
        return self._of._reduced(self._keys, others, Top(by=order, rows=rows), self._where)


def _is_rounded(aggregate: Aggregate, result: StructField) -> bool:
    return aggregate.kind == "sum" and isinstance(result.dataType, DoubleType)


def fixpoint(like: Collection, body: Callable[[Collection], Collection], rounds: int | None = None) -> Collection:
    """Return the result of applying a body repeatedly until nothing changes. Each epoch begins with the result of the
    former epoch, and the first one with no rows.

    It is for loops that reach the same result from every start, as PageRank does. An epoch then costs only the way from
    one result to the next. For other loops use `iterate`, for example for shortest paths if edges can be removed.

    Args: like: a collection with the columns that the body receives and returns. rounds: the greatest number of rounds
        in an epoch; the next epoch continues with the remaining changes.
    Raises: DefinitionError: as `Collection.iterate`.
    """
    return _loop(None, like._like, like._node.scope, body, rounds, restarts=False, where=caller())


def entering_later(rows: Collection, loop: Collection, in_round: Column) -> Collection:
    """Return rows from outside a loop as its body reads them, but each from a later round on.

    The loop has the same result if its body has, with some of these rows missing, a result on the way to the final one.
    Args: loop: the collection that the body receives. in_round: the round, a small whole number.
    """
    scope = loop._node.scope
    entered = Collection(_entered(rows._node, scope), rows._like)
    later = {timing(scope.depth)[-1]: in_round.cast("int")}

    def how(some: DataFrame) -> DataFrame:
        return some.withColumns(later)

    tried = Tried.on(entered._given(), how)
    return Collection(Mapped(scope=scope, schema=rows.schema, of=entered._node, how=how, tried=tried), rows._like)


def _loop(
    start: Collection | None, like: DataFrame, around: Scope, body: Callable[[Collection], Collection],
    rounds: int | None, *, restarts: bool, where: SourceLocation,
) -> Collection:  # fmt: skip
    rounds = limits.get().rounds if rounds is None else rounds
    checked(like.schema.fields, where)
    if rounds < 1:
        raise ROUNDS_INVALID.error(where=where, rounds=rounds)
    scope = Scope(parent=around, rounds=rounds, restarts=restarts)
    begun = None if start is None else _entered(start._node, scope)
    variable = LoopVariable(scope=scope, schema=like.schema, start=begun)
    made = body(Collection(variable, like))
    says = "the body of the loop receives {first} and returns {other}."
    hint = "Return the same columns, of the same types."
    check_same_columns(like.schema, made.schema, says, hint, where)
    variable.body = _entered(made._node, scope)
    return Collection(Left(scope=around, schema=like.schema, of=variable.body, loop=scope), like)


def _entered(node: LoopNode, scope: Scope) -> LoopNode:
    """Return a node as a scope reads it: through one `Entered` for each loop that it enters."""
    if node.scope is scope:
        return node
    if scope.parent is None:
        raise loop_left()
    outer = _entered(node, scope.parent)
    return Entered(scope=scope, schema=node.schema, of=outer)


def _innermost(*collections: Collection) -> Scope:
    return max((c._node.scope for c in collections), key=lambda scope: scope.depth)


def _ours(rows: DataFrame) -> list[Column]:
    """Return Falkirk's own columns among those of the rows."""
    return [F.col(c) for c in rows.columns if c.startswith(PREFIX)]
