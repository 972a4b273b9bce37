"""Folders: turns the rows of files into rows with a stamp, as for the records of a topic, and marks the bad ones.

A row's stamp has the number of its file as offset. A bad row's key is the name of its file, and its value the row.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import StringType, StructField, StructType

from falkirk.declare.endpoints import Files, Kafka
from falkirk.steps.dataframes.names import BAD, CORRUPT, STAMP
from falkirk.steps.live.stamped import Frame
from falkirk.steps.sources.topics import declared, parse_records, parsing

_FILE = "__falkirk_file"
#: A file with more rows than this, and more than so many per byte, is not read to its end. Some bytes can claim any
#: number of equal rows, and each row costs time and space. Text that is compressed with gzip has no more per byte.
ROWS_MAX, ROWS_PER_BYTE_MAX = 10_000_000, 1_000


def file_columns(files: Files) -> StructType:
    """Return the columns of a source's rows. Raises: DefinitionError: `SCHEMA_INVALID`, and as `declared`."""
    return declared(files.schema or "", f"files in {files.path!r}", files.where)[0]


def file_rows(session: SparkSession, files: Files, paths: Mapping[Path, int]) -> Frame:
    """Return the rows of files, which are given with their numbers.

    A CSV file whose first line does not name the columns fails the job that reads it, and is refused as a whole
    (`falkirk/runtime/spark/epochs/unreadable.py`): by their position its values would go to wrong columns.
    """
    schema, required = declared(files.schema or "", f"files in {files.path!r}", files.where)
    reader = session.read
    names = [str(path) for path in paths]
    numbers = {path.name: number for path, number in paths.items()}
    if files.format == "json":
        lines = _within_bounds(reader.text(names)).withColumn(_FILE, _name()).where(F.trim("value") != "")
        raw = lines.select(
            F.encode(_FILE, "utf-8").alias("key"), F.col("value").cast("binary").alias("value"),
            F.lit(0).alias("partition"), _number(numbers).alias("offset"), _FILE,
        )  # fmt: skip
        how = parsing(Kafka("files", schema=files.schema, where=files.where), raw.sparkSession)
        return parse_records(raw, how)
    if files.format == "parquet":
        read = _within_bounds(reader.schema(schema).parquet(*names))
        return _marked(read, schema, required, F.lit(None).cast("string"), numbers)
    options = {
        "header": "true",
        "enforceSchema": "false",
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
    }
    with_corrupt = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    read = _within_bounds(reader.options(**options).schema(with_corrupt).csv(names))
    return _marked(read, schema, required, F.col(CORRUPT), numbers)


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


def _within_bounds(read: DataFrame) -> DataFrame:
    """Return the rows of files. The task that reads a file fails if its size does not explain so many rows."""
    session: Any = read.sparkSession
    file, size = F.xxhash64("_metadata.file_path"), F.col("_metadata.file_size")
    return read.where(
        ClassicColumn(session._jvm.org.falkirk.RowsOfFile.within(file._jc, size._jc, ROWS_MAX, ROWS_PER_BYTE_MAX))
    )


def _number(numbers: Mapping[str, int]) -> Column:
    table = F.from_json(F.lit(json.dumps(numbers)), "map<string,bigint>")
    return F.element_at(table, F.col(_FILE))


def _name() -> Column:
    """Return the name of a row's file, which Spark tells as part of a URI."""
    return F.url_decode(F.replace(F.col("_metadata.file_name"), F.lit("+"), F.lit("%2B")))
