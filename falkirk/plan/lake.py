"""Lake: checks of a plan's tables of Delta Lake and Apache Iceberg: their packages, and the columns of their rows."""

from collections.abc import Iterator
from importlib.util import find_spec

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from falkirk.declare.lake import Delta, Iceberg
from falkirk.declare.parts import DeclaredSink
from falkirk.errors.conditions.lake import COLUMN_UNFIT, PACKAGE_MISSING

_PACKAGES = {Delta: "deltalake", Iceberg: "pyiceberg"}
#: The types by whose values a table can be partitioned: each value has one text.
_PARTITIONED = (BooleanType, ByteType, DateType, IntegerType, LongType, ShortType, StringType)
_PLAIN = (*_PARTITIONED, BinaryType, DecimalType, DoubleType, FloatType, TimestampNTZType, TimestampType)
#: Characters that a column's name can't have in a Delta table without a column mapping.
_DELTA_FORBIDS = " ,;{}()\n\t="


def check_package(sink: DeclaredSink) -> None:
    """Check that the package for a sink is installed. Raises: DefinitionError: `PACKAGE_MISSING`."""
    package = _PACKAGES.get(type(sink.to))
    if package is not None and find_spec(package) is None:
        raise PACKAGE_MISSING.error(where=sink.where, sink=sink.name, address=sink.to.address, package=package)


def check_table_columns(sink: DeclaredSink, schema: StructType) -> None:
    """Check that a table can have the columns of a batch. Raises: DefinitionError: `COLUMN_UNFIT`."""
    to = sink.to
    if not isinstance(to, Delta | Iceberg):
        return
    found = {field.name: field.dataType for field in schema.fields}
    for name, kind in found.items():
        reason = next(_faults(name, kind, is_delta=isinstance(to, Delta)), None)
        if reason is None and name in to.partition_columns and not isinstance(kind, _PARTITIONED):
            reason = f"the table can't be partitioned by the type {kind.simpleString()}"
        _refuse(sink, name, reason)
    for name in to.partition_columns:
        _refuse(sink, name, None if name in found else f"partition_by names it, and {sink.reads!r} has no such column")
    is_all = len(found) == len(to.partition_columns)
    _refuse(sink, next(iter(found), ""), "partition_by names every column, and no other is left" if is_all else None)


def _refuse(sink: DeclaredSink, column: str, reason: str | None) -> None:
    if reason is not None:
        raise COLUMN_UNFIT.error(
            where=sink.where, sink=sink.name, column=column, address=sink.to.address, reason=reason
        )


def _faults(name: str, kind: DataType, *, is_delta: bool) -> Iterator[str]:
    """Yield why a table can't have a column, or a field within one."""
    if is_delta and (forbidden := sorted(set(name) & set(_DELTA_FORBIDS))):
        yield f"a name in a Delta table can't have {forbidden[0]!r}"
    if isinstance(kind, StructType) and kind.fields:
        for field in kind.fields:
            yield from _faults(field.name, field.dataType, is_delta=is_delta)
    elif isinstance(kind, ArrayType):
        yield from _faults("", kind.elementType, is_delta=is_delta)
    elif isinstance(kind, MapType):
        yield from _faults("", kind.keyType, is_delta=is_delta)
        yield from _faults("", kind.valueType, is_delta=is_delta)
    elif not isinstance(kind, _PLAIN) or isinstance(kind, CharType | VarcharType):
        yield f"the table has no type for {kind.simpleString()}"
