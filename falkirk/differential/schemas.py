"""Schemas: the columns of what goes over the edges of a graph: rows with their hash, time and difference."""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, IntegerType, LongType, StructField, StructType

from falkirk.differential.graph import Holder, Joined, Reduced, inputs_of
from falkirk.differential.rows import DIFFERENCE, HASH, rounds


def port_names(holder: Holder, port: int) -> tuple[str, ...]:
    """Return the columns of what waits for a holder, without its time and difference."""
    if isinstance(holder, Joined):
        values = holder.operator.right if port else holder.operator.left
        return (HASH, *holder.operator.keys, *values)
    if isinstance(holder, Reduced):
        return (HASH, *holder.operator.keys, *holder.operator.values)
    return tuple(holder.schema.names)


def port_types(holder: Holder) -> dict[str, DataType]:
    """Return the types of the columns that a holder gets."""
    return {f.name: f.dataType for node in inputs_of(holder) for f in node.schema.fields}


def port_schema(holder: Holder, port: int, depth: int) -> pa.Schema:
    """Return the schema of what waits for a holder."""
    types = port_types(holder)
    fields = [StructField(n, types.get(n, LongType())) for n in port_names(holder, port)]
    return arrow_of(StructType(fields), depth)


def timed(schema: StructType, depth: int) -> StructType:
    """Return columns with those of a time in so many loops, and the difference."""
    ours = [StructField(name, IntegerType()) for name in rounds(depth)]
    # All nullable: of what comes together in a collection, one part may be and another not.
    fields = [StructField(f.name, f.dataType) for f in schema.fields]
    return StructType([*fields, *ours, StructField(DIFFERENCE, LongType())])


def arrow_of(schema: StructType, depth: int) -> pa.Schema:
    """Return the same of Arrow."""
    return to_arrow_schema(timed(schema, depth))
