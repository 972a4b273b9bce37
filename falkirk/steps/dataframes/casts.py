"""Casts: gives a column a type in one call to the JVM, if the type has a short name; and the types of kept rows."""

from pyspark.sql import Column
from pyspark.sql.types import ArrayType, AtomicType, DataType, MapType, StructField, StructType


def cast(column: Column, kind: DataType) -> Column:
    """Return a column with a type, as `column.cast(kind)` does, which asks the JVM six times."""
    return column.cast(kind.simpleString() if isinstance(kind, AtomicType) else kind)


def as_kept(schema: StructType) -> StructType:
    """Return the schema of rows that were in a file: Spark takes the parts of their columns for nullable.

    Spark casts no column to a type whose parts are less nullable. The columns themselves stay as they are.
    """
    return StructType([StructField(f.name, _nullable(f.dataType), f.nullable) for f in schema.fields])


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _nullable(f.dataType)) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    return kind
