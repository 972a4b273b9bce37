"""Computes the headers of records that Spark writes, as columns: the text of `kafka_client/header.py`, and its tag."""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from falkirk.kafka_client.header import TAG_DIGITS
from falkirk.theory.ids import Incarnation

_EMPTY = b""


def header_text(application: str, incarnation: Incarnation, stamp: Sequence[Column], state: Column) -> Column:
    """Return a header without its tag, as `Header.encode`.

    Args: stamp: the numbers of the record's stamp. state: the state partition that computed the record.
    """
    return F.concat_ws("/", F.lit(f"{application}/{incarnation}"), F.concat_ws(".", *stamp), state)


def signed_header(key: Column, text: Column, partition: Column, record_key: Column, value: Column) -> Column:
    """Return the header of a record as binary, signed as by `tag_of`.

    Args: key: from `SigningKey.of`, as a binary literal. text: the header without a tag. partition: the record's
        partition. record_key, value: the record's key and value, binary.
    """
    unsigned = F.concat(text, F.lit("/"))
    size = F.coalesce(F.octet_length(record_key).cast("string"), F.lit("-"))
    covered = F.concat(
        key,
        F.concat(unsigned, F.lit("@"), partition.cast("string"), F.lit("/"), size, F.lit("/")).cast("binary"),
        F.coalesce(record_key, F.lit(_EMPTY)),
        F.coalesce(value, F.lit(_EMPTY)),
    )
    return F.concat(unsigned, F.substring(F.sha2(covered, 256), 1, TAG_DIGITS)).cast("binary")
