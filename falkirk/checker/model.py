"""Models: the expected answer of a keyed step to each row, recomputed here in plain Python.

A model deliberately shares no code with the step that it judges. It sees one key's rows one by one and answers each
with at most one output row.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from falkirk.checker.content import content, content_of, group_key
from falkirk.checker.numeric import NoOrderError, NoSumError, plus, precedes
from falkirk.checker.run import Values
from falkirk.errors.conditions.checker import NO_ORDER, SUM_OF_NO_NUMBER

S = TypeVar("S")


class Model(Protocol[S]):
    """The keyed step for one key, as a pure function of state and row. States are immutable values with a content."""

    @property
    def every_row_answers(self) -> bool:
        """True if each row has exactly one output; False if some rows have none."""

    @property
    def ordered(self) -> bool:
        """True if an output's content depends on earlier rows, so that a gap among outputs is a broken sequence."""

    def initial(self) -> S:
        """Return the state before the first row."""

    def step(self, state: S, row: Values) -> tuple[S, Values | None]:
        """Return the state after `row` and the expected output for it, or None if it has no output."""

    def effect(self, row: Values) -> Hashable:
        """Return the effect of `row` on state and output: rows with the same effect are interchangeable."""

    def echo(self, row: Values) -> Hashable:
        """Return the part of the output for `row` that depends only on `row`, not on the state."""

    def echo_of(self, output: Values) -> Hashable:
        """Return that part of an output. A row can give an output only if both have the same echo."""


class AggregateFunction(Protocol):
    """One aggregate function. `before` is its value so far, None at first."""

    @property
    def column(self) -> str | None:
        """The column that it reads; None if it reads none."""

    def apply(self, before: Any, row: Values) -> Any:
        """Return its value after `row`."""


@dataclass(frozen=True, slots=True)
class Count:
    """count(*) without a column, else the number of rows whose `column` is not null."""

    column: str | None = None

    def apply(self, before: int | None, row: Values) -> int:
        return (before or 0) + (self.column is None or row.get(self.column) is not None)


@dataclass(frozen=True, slots=True)
class Sum:
    """sum(column): exact for integers and decimals. For floats it is exact only if the order of the rows is known.

    Floats are added to 0.0, as in Spark.
    """

    column: str

    def apply(self, before: Any, row: Values) -> Any:
        value = row.get(self.column)
        if value is None:
            return before
        try:
            return plus(before, value)
        except NoSumError as cause:
            raise SUM_OF_NO_NUMBER.error(
                column=self.column, value=value, added_to=f" to {before!r}" if before is not None else "", cause=cause
            ) from cause


@dataclass(frozen=True, slots=True)
class Min:
    """min(column): ignores nulls. The order is Spark's: NaN is the greatest, and the first of equal values stays."""

    column: str

    def apply(self, before: Any, row: Values) -> Any:
        value = row.get(self.column)
        return before if value is None or (before is not None and not _precedes(value, before, self)) else value


@dataclass(frozen=True, slots=True)
class Max:
    """max(column): ignores nulls. The order is that of `Min`."""

    column: str

    def apply(self, before: Any, row: Values) -> Any:
        value = row.get(self.column)
        return before if value is None or (before is not None and not _precedes(before, value, self)) else value


def _precedes(one: object, other: object, function: Min | Max) -> bool:
    try:
        return precedes(one, other)
    except NoOrderError as cause:
        name = type(function).__name__.lower()
        raise NO_ORDER.error(column=function.column, name=name, one=one, other=other) from cause


@dataclass(frozen=True, slots=True)
class Latest:
    """The value of `column` in the row that was just applied, null included."""

    column: str

    def apply(self, before: Any, row: Values) -> Any:
        return row.get(self.column)


class AggregateModel:
    """groupBy(keys).agg(...) in update mode: one output for each row, with the aggregates after that row.

    Args:
        keys: grouping columns, which the output repeats.
        aggregates: aggregate function by name of the output column.
    """

    every_row_answers = True
    ordered = True

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, AggregateFunction]) -> None:
        self.keys = tuple(keys)
        self.aggregates = dict(aggregates)
        self._plan = tuple((name, function.apply) for name, function in self.aggregates.items())
        self._kept = tuple(not isinstance(function, Latest) for function in self.aggregates.values())
        latest = [(name, each.column) for name, each in self.aggregates.items() if isinstance(each, Latest)]
        self._latest = tuple(latest)
        columns = {function.column for function in self.aggregates.values()} - {None}
        self._columns = tuple(sorted({*self.keys, *(c for c in columns if c is not None)}))

    def initial(self) -> tuple[object, ...]:
        return (None,) * len(self._plan)

    def step(self, state: tuple[object, ...], row: Values) -> tuple[tuple[object, ...], Values | None]:
        output: dict[str, object] = {name: group_key(row.get(name)) for name in self.keys}
        after: list[object] = []
        for (name, apply), kept, before in zip(self._plan, self._kept, state, strict=True):
            value = apply(before, row)
            output[name] = value
            # The latest value never influences a later row. It is not in the state, so that it can't make equal states
            # differ.
            after.append(value if kept else None)
        return tuple(after), output

    def effect(self, row: Values) -> Hashable:
        return tuple([content_of(row.get(column)) for column in self._columns])

    def echo(self, row: Values) -> Hashable:
        keys = [content_of(group_key(row.get(name))) for name in self.keys]
        return (*keys, *[content_of(row.get(column)) for _, column in self._latest])

    def echo_of(self, output: Values) -> Hashable:
        return tuple([content_of(output.get(name)) for name in (*self.keys, *(name for name, _ in self._latest))])


class StatelessModel:
    """A step without state: each row has exactly one output row, which does not depend on earlier rows.

    Args: output: the output row of a row; by default the row itself.
    """

    every_row_answers = True
    ordered = False

    def __init__(self, output: Callable[[Values], Values] | None = None) -> None:
        self._output = output

    def initial(self) -> None:
        return None

    def step(self, state: None, row: Values) -> tuple[None, Values | None]:
        return None, row if self._output is None else self._output(row)

    def effect(self, row: Values) -> Hashable:
        output = self.step(None, row)[1]
        return None if output is None else content(output)

    def echo(self, row: Values) -> Hashable:
        return self.effect(row)

    def echo_of(self, output: Values) -> Hashable:
        return content(output)


class LookupModel:
    """A lookup in the newest row of a table: each record has an output with that row, and rows of the table have none.

    Args: columns: of a record, without that of the lookup. name: of the column with a row of the table. A record has
        none in it.
    """

    every_row_answers = False
    ordered = True

    def __init__(self, columns: Sequence[str], name: str) -> None:
        self._columns, self._name = tuple(columns), name

    def initial(self) -> None:
        return None

    def step(self, state: object, row: Values) -> tuple[object, Values | None]:
        newest = row.get(self._name)
        if newest is not None:
            return newest, None
        return state, {**{name: row.get(name) for name in self._columns}, self._name: state}

    def effect(self, row: Values) -> Hashable:
        return content(row)

    def echo(self, row: Values) -> Hashable:
        return content(row) if row.get(self._name) is not None else self.echo_of(row)

    def echo_of(self, output: Values) -> Hashable:
        return tuple([content_of(output.get(name)) for name in self._columns])


class DistinctModel:
    """dropDuplicates: only the first row of a key has an output. The key consists of the distinct columns' values.

    Args: output: the output row of a row; by default the row itself.
    """

    every_row_answers = False
    ordered = False

    def __init__(self, output: Callable[[Values], Values] | None = None) -> None:
        self._stateless = StatelessModel(output)

    def initial(self) -> bool:
        return False

    def step(self, state: bool, row: Values) -> tuple[bool, Values | None]:
        return True, None if state else self._stateless.step(None, row)[1]

    def effect(self, row: Values) -> Hashable:
        return self._stateless.effect(row)

    def echo(self, row: Values) -> Hashable:
        return self._stateless.effect(row)

    def echo_of(self, output: Values) -> Hashable:
        return content(output)
