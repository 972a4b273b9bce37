"""Computes the headers of records that Spark writes, as a column: the text of `kafka_client/header.py`, and its tag."""

from collections.abc import Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql.classic.column import Column as ClassicColumn

from falkirk.theory.ids import Incarnation


def signed_header(
    application: str, incarnation: Incarnation, stamp: Sequence[Column], state: Column, *, signing_key: Column,
    partition: Column, record_key: Column, value: Column,
) -> Column:  # fmt: skip
    """Return the header of a record as binary, as `Header.encode` and `tag_of`. A session must be active.

    Args: stamp: the numbers of the record's stamp. state: the state partition that computed the record. signing_key:
        from `SigningKey.of`, as a binary literal. partition: of the record. record_key, value: of the record, binary.
    """
    context: Any = SparkContext._active_spark_context
    numbers, parts = [number._jc for number in stamp], [part._jc for part in (state, partition, record_key, value)]
    writer = f"{application}/{incarnation}"
    return ClassicColumn(context._jvm.org.falkirk.SignedHeader.of(signing_key._jc, writer, numbers, *parts))
