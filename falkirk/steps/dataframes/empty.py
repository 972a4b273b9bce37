"""DataFrames without rows, on which steps are planned or computed."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from falkirk.steps.dataframes.schemas import jvm_schema


def no_rows(session: SparkSession, schema: StructType) -> DataFrame:
    """Return no rows, as `session.createDataFrame([], schema)` does, with a fifth of its calls to the JVM.

    Each result is a leaf with an identity of its own in Spark's plan. A watch of a user's function
    (`static_analysis/escapes.py`) does not see it, so the rows must not get into the plans that the function makes.
    """
    rows = no_rows_of(session, jvm_schema(session, schema))
    # PySpark would ask the JVM for the schema. A copy, because a user's function may add fields to it.
    vars(rows)["schema"] = StructType([*schema.fields])
    return rows


def no_rows_of(session: SparkSession, schema: Any) -> DataFrame:
    """Return the same. Args: schema: in the JVM."""
    inner: Any = session._jsparkSession
    rows: Any = session.sparkContext._jsc.emptyRDD()
    return DataFrame(inner.internalCreateDataFrame(rows.rdd(), schema, False), session)


def known_empty(session: SparkSession, schema: StructType) -> DataFrame:
    """Return no rows, of which Spark knows that there are none: it leaves out what is computed from them alone."""
    made: Any = session
    rows = made._jvm.java.util.ArrayList()
    return DataFrame(made._jsparkSession.createDataFrame(rows, jvm_schema(session, schema)), session)
