"""Folders: turns the rows of files into rows with a stamp, as for the records of a topic, and marks the bad ones.

A row's stamp has the number of its file as offset. A bad row's key is the name of its file, and its value the row.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from falkirk.declare.endpoints import Files, Kafka
from falkirk.frames.stamped import BAD, STAMP, Frame
from falkirk.frames.topics import declared, parse, parsing

_CORRUPT, _FILE = "__falkirk_corrupt", "__falkirk_file"
#: A Parquet file with more rows than this, and more than so many per byte, is not read to its end. Some bytes can claim
#: any number of rows with the same value, and each row costs time and space. Compressed text has no more per byte.
ROWS_MAX, ROWS_PER_BYTE_MAX = 10_000_000, 1_000


def columns_of(files: Files) -> StructType:
    """Return the columns of a source's rows. Raises: DefinitionError: `SCHEMA_INVALID`, and as `declared`."""
    return declared(files.schema or "", f"files in {files.path!r}", files.where)[0]


def rows_of(session: SparkSession, files: Files, paths: Mapping[Path, int]) -> Frame:
    """Return the rows of files, which are given with their numbers.

    A CSV file whose first line does not name the columns fails the job that reads it, and is refused as a whole
    (`falkirk/runtime/epochs/unreadable.py`): by their position its values would go to wrong columns.
    """
    schema, required = declared(files.schema or "", f"files in {files.path!r}", files.where)
    reader = session.read
    names = [str(path) for path in paths]
    numbers = {path.name: number for path, number in paths.items()}
    if files.format == "json":
        lines = reader.text(names).withColumn(_FILE, _name()).where(F.trim("value") != "")
        raw = lines.select(
            F.encode(_FILE, "utf-8").alias("key"), F.col("value").cast("binary").alias("value"),
            F.lit(0).alias("partition"), _number(numbers).alias("offset"), _FILE,
        )  # fmt: skip
        return parse(raw, parsing(Kafka("files", schema=files.schema, where=files.where)))
    if files.format == "parquet":
        read = reader.schema(schema).parquet(*names).where(_is_within_bounds())
        return _marked(read, schema, required, F.lit(None).cast("string"), numbers)
    options = {
        "header": "true",
        "enforceSchema": "false",
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
    }
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    read = reader.options(**options).schema(with_corrupt).csv(names)
    return _marked(read, schema, required, F.col(_CORRUPT), numbers)


def _marked(
    read: DataFrame, schema: StructType, required: list[str], corrupt: Column, numbers: Mapping[str, int]
) -> Frame:
    columns = [F.col(f"`{f.name}`") for f in schema.fields]
    # Spark reads no file of which nothing is asked but the rows that do not fit.
    reason = F.when(corrupt.isNotNull() & (F.hash(*columns) >= F.lit(-(2**31))), F.lit("does not fit the schema"))
    for name in required:
        reason = reason.when(F.col(f"`{name}`").isNull(), F.lit(f"column {name} is null"))
    data = read.withColumn(_FILE, _name()).withColumn("__falkirk_reason", reason)
    row = F.coalesce(corrupt, F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}))
    bad = F.struct(
        F.col("__falkirk_reason").alias("reason"), F.encode(_FILE, "utf-8").alias("key"),
        row.cast("binary").alias("value"),
    )  # fmt: skip
    stamp = F.struct(F.lit(0).alias("source"), F.lit(0).alias("partition"), _number(numbers).alias("offset"))
    is_bad = F.col("__falkirk_reason").isNotNull()
    kept = [F.when(~is_bad, c).alias(f.name) for c, f in zip(columns, schema.fields, strict=True)]
    return Frame(data=data.select(*kept, stamp.alias(STAMP), F.when(is_bad, bad).alias(BAD)))


def _is_within_bounds() -> Column:
    """Return a condition that holds for each row of a Parquet file, or fails the task if there are too many of them."""
    most = F.greatest(F.lit(ROWS_MAX), F.col("_metadata.file_size") * ROWS_PER_BYTE_MAX)
    text = F.concat(F.lit("the file claims more than "), most.cast("string"), F.lit(" rows, too many for its size"))
    return F.when(F.col("_metadata.row_index") < most, F.lit(True)).otherwise(F.raise_error(text).cast("boolean"))


def _number(numbers: Mapping[str, int]) -> Column:
    table = F.from_json(F.lit(json.dumps(numbers)), "map<string,bigint>")
    return F.element_at(table, F.col(_FILE))


def _name() -> Column:
    """Return the name of a row's file, which Spark tells as part of a URI."""
    return F.url_decode(F.replace(F.col("_metadata.file_name"), F.lit("+"), F.lit("%2B")))
