"""Schemas: the user's part of a frame's schema, and a schema in the JVM."""

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from falkirk.steps.dataframes.names import OUR_COLUMNS


def own_schema(schema: StructType) -> StructType:
    """Return the user's columns of a schema. For a select of them, Spark would analyse the whole plan again."""
    return StructType([field for field in schema.fields if field.name not in OUR_COLUMNS])


def jvm_schema(session: SparkSession, schema: StructType) -> Any:
    """Return a schema as an object of Spark's in the JVM."""
    inner: Any = session._jsparkSession
    return inner.parseDataType(schema.json())
