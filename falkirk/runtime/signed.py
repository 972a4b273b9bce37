"""Signed: computes the headers of records that Spark writes, with the tag of falkirk/kafka/signing.py, as a column."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from falkirk.kafka.header import TAG_DIGITS

_EMPTY = b""


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
