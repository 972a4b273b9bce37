"""Schemas: the columns of the rows on the edges of a graph: the user's, and the hash, time and difference."""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, IntegerType, LongType, StructField, StructType

from falkirk.steps.differential.graph import Holder, Joined, Reduced, inputs_of
from falkirk.steps.differential.rows import DIFFERENCE, HASH, rounds


def port_names(holder: Holder, port: int) -> tuple[str, ...]:
    """Return the columns of the rows that wait for a holder, without time and difference."""
    if isinstance(holder, Joined):
        values = holder.operator.right if port else holder.operator.left
        return (HASH, *holder.operator.keys, *values)
    if isinstance(holder, Reduced):
        return (HASH, *holder.operator.keys, *holder.operator.values)
    return tuple(holder.schema.names)


def port_types(holder: Holder) -> dict[str, DataType]:
    """Return the types of the columns of a holder's inputs."""
    return {f.name: f.dataType for node in inputs_of(holder) for f in node.schema.fields}


def port_schema(holder: Holder, port: int, depth: int) -> pa.Schema:
    """Return the schema of the rows that wait for a holder."""
    types = port_types(holder)
    fields = [StructField(n, types.get(n, LongType())) for n in port_names(holder, port)]
    return arrow_of(StructType(fields), depth)


def timed_schema(schema: StructType, depth: int) -> StructType:
    """Return columns with those of a time, and the difference. Args: depth: the number of loops."""
    ours = [StructField(name, IntegerType()) for name in rounds(depth)]
    # All are nullable: a collection can combine nullable columns with others.
    fields = [StructField(f.name, f.dataType) for f in schema.fields]
    return StructType([*fields, *ours, StructField(DIFFERENCE, LongType())])


def arrow_of(schema: StructType, depth: int) -> pa.Schema:
    """Return the same as an Arrow schema."""
    return to_arrow_schema(timed_schema(schema, depth), timezone="UTC")
