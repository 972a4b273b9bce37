"""Lookups: a live step that reads rows of the newest epoch of a view from the memory of the JVM.

A record reads one epoch of each view. Its first lookup notes the number in a column of ours (`VIEWS`), and later
lookups in the region use that number. So the number may differ on a replay, and the rows are a function of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from falkirk.declare.nodes import LOOKUP, Step
from falkirk.steps.dataframes.names import VIEWS
from falkirk.theory.ids import LogId

#: Types of keys whose equal values are the same in Java, too.
_KEYS = (BooleanType, IntegralType, DecimalType, DateType, TimestampType, TimestampNTZType)


@dataclass(frozen=True, kw_only=True)
class PlannedView:
    """A view that a planned region looks up.

    Args: name: of its processor. log: its epochs. schema: of its rows. handle: its name in the JVM, which two homes
        never share.
    """

    name: str
    log: LogId
    schema: StructType
    handle: str

    def __repr__(self) -> str:
        return f"view {self.name}"

    def key(self, on: Mapping[str, Any]) -> list[int]:
        """Return the places of the columns of a key. Raises: TypeError: as `places_of`."""
        return places_of(self.name, self.schema, on)


def places_of(view: str, schema: StructType, on: Mapping[str, Any]) -> list[int]:
    """Return the places of the columns of a key. Raises: TypeError: one is missing, or can't be a key."""
    for name in on:
        if name not in schema.names:
            raise TypeError(f"view {view} has no column {name}; it has {', '.join(schema.names)}")
        kind = schema[name].dataType
        if not isinstance(kind, _KEYS) and not _is_plain_text(kind):
            raise TypeError(f"column {name} of view {view} is of type {kind.simpleString()}, which is no key")
    return [schema.names.index(name) for name in on]


def _is_plain_text(kind: DataType) -> bool:
    return isinstance(kind, StringType) and kind.simpleString() == "string"


def check_key(view: str, schema: StructType, on: Mapping[str, Any], found: StructType) -> bool:
    """Check the types of a record's key; return whether it is an array of keys.

    Args: schema: of the view. found: the types of the columns in `on`.
    Raises: TypeError: as `places_of`; a column of the record has another type.
    """
    places_of(view, schema, on)
    kinds = [field.dataType for field in found.fields]
    is_several = len(kinds) == 1 and isinstance(kinds[0], ArrayType)
    kinds = [kind.elementType if is_several and isinstance(kind, ArrayType) else kind for kind in kinds]
    for name, kind in zip(on, kinds, strict=True):
        own = schema[name].dataType
        if kind.simpleString() != own.simpleString():
            text = f"its column {name} is of type {own.simpleString()}, and the record's key {kind.simpleString()}"
            raise TypeError(f"view {view}: {text}")
    return is_several


def key_struct(columns: Sequence[Column]) -> Column:
    """Return the columns of a key as one value."""
    return F.struct(*[column.alias(f"_{i}") for i, column in enumerate(columns)])


def looked_up(
    data: DataFrame, view: PlannedView, on: Mapping[str, Column], name: str, epoch: str | None
) -> DataFrame:  # fmt: skip
    """Return rows with a column of the rows of a view that have their key.

    Args: on: the record's key, by the name of the view's column. name: of the new column. epoch: of the column with the
        number of the epoch; None: it is not wanted.
    Raises: TypeError: as `check_key`.
    """
    java: Any = data.sparkSession._jvm.org.falkirk  # type: ignore[union-attr]
    keys = [*on.values()]
    is_several = check_key(view.name, view.schema, on, data.select(*keys).schema)
    data, known = _with_epoch(data, view, java)
    rows = java.ViewRows.of(
        view.handle, view.name, known.index(view.name), view.key(on), is_several, view.schema.json(),
        F.col(VIEWS)._jc, key_struct(keys)._jc,
    )  # fmt: skip
    more: dict[str, Column] = {name: ClassicColumn(rows)}
    if epoch is not None:
        more[epoch] = F.col(f"{VIEWS}.`{view.name}`")
    return data.withColumns(more)


def _with_epoch(data: DataFrame, view: PlannedView, java: Any) -> tuple[DataFrame, list[str]]:
    """Return rows that know the epoch of a view that they read, and the views of which they know it."""
    known: list[str] = []
    if VIEWS in data.columns:
        kind = data.schema[VIEWS].dataType
        assert isinstance(kind, StructType), "it is made here"
        known = kind.names
    if view.name in known:
        return data, known
    newest = ClassicColumn(java.NewestEpoch.of(view.handle, view.name)).alias(view.name)
    before = [F.col(f"{VIEWS}.`{each}`").alias(each) for each in known]
    return data.withColumn(VIEWS, F.struct(*before, newest)), [*known, view.name]


def lookups_of(steps: Iterable[Step]) -> tuple[tuple[PlannedView, Mapping[str, Any]], ...]:
    """Return the lookups among planned steps: the view, and the record's key by the columns of the view."""
    return tuple((step.arguments[0], step.arguments[1]) for step in steps if step.operation == LOOKUP)


def views_of(steps: Iterable[Step]) -> tuple[PlannedView, ...]:
    """Return the views that planned steps look up, each once."""
    return tuple({view.log: view for view, _ in lookups_of(steps)}.values())
