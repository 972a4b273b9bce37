"""JSON of topics is parsed by a class of Falkirk's module, which must find the same as Spark's `from_json`."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from falkirk.steps.dataframes.names import CORRUPT
from falkirk.steps.sources.topics import declared, from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DDL = (
    "a STRING, b BIGINT, c DOUBLE, d DECIMAL(10, 2), e TIMESTAMP, f DATE, g BOOLEAN, h ARRAY<STRING>, "
    "i MAP<STRING, INT>, j STRUCT<x: INT NOT NULL, y: BINARY NOT NULL>, "
    "n ARRAY<STRUCT<z: STRING NOT NULL>>, `k.l` TIMESTAMP_NTZ, m TINYINT"
)
WHOLE = {
    "a": "tea \u2603 \U0001f600", "b": 2**62, "c": 1e300, "d": 12.34, "e": "2026-11-30T10:00:00.123+02:00",
    "f": "2026-02-29", "g": True, "h": ["x", None], "i": {"n": 1}, "j": {"x": 1, "y": "aGk="}, "n": [{"z": "z"}],
    "k.l": "2026-11-30T10:00:00", "m": 300, "unknown": {"deep": [1]},
}  # fmt: skip
ODD = [
    b'{"j": {}}', b'{"j": {"x": null, "y": null}}', b'{"n": [{}, null]}', b'{"e": "2026-11-30T10:00:00"}',
    None, b"", b" ", b"\n{}", b"{", b"[]", b"[{}]", b"{} {}", b"{}x", b"null", b"3",
    b'"a"', b"\xef\xbb\xbf{}", b"\x00{}",
    b'{"a": "\xff"}', b'{"a": "\xc3"}', b'{"a": "\xed\xa0\x80"}', b'{"a": "\xf0\x9f\x98"}', b'{"a": "\\ud800"}',
    b'\xff\xfe{\x00}\x00', b"{'a': 'x'}", b'{"a": "x", "a": "y"}', b'{"b": "3"}', b'{"b": 3.5}', b'{"b": 1e2}',
    b'{"c": "NaN"}', b'{"c": NaN}', b'{"a": "' + b"x" * 70_000 + b'"}', b'{"a": "' + "\u2603".encode() * 40_000 + b'"}',
    b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}", b"\xfe" * 9000,
]  # fmt: skip


def _mutants(seed: int, count: int) -> list[bytes]:
    """Return a whole record with single bytes changed, lost and doubled."""
    rng, found = random.Random(seed), []
    for _ in range(count):
        fields = rng.sample(sorted(WHOLE), rng.randrange(1, 6))
        record = bytearray(json.dumps({f: WHOLE[f] for f in fields}, ensure_ascii=rng.random() < 0.5).encode())
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(record))
            record[at : at + rng.randrange(2)] = rng.randbytes(rng.randrange(3))
            record = record or bytearray(b"x")
        found.append(bytes(record))
    return found


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "interpreted"])
def test_it_finds_the_same_as_spark(compiled: bool, spark: "SparkSession") -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.codegen.wholeStage", str(compiled).lower())
    own.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    own.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if compiled else "NO_CODEGEN")
    schema, _ = declared(DDL, "the topic", "here")
    whole = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    records = [*ODD, json.dumps(WHOLE).encode(), *_mutants(1, 2_000)]
    rows = own.createDataFrame([(i, record) for i, record in enumerate(records)], "i INT, value BINARY").repartition(2)
    text, options = F.col("value").cast("string"), {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    with ThreadPoolExecutor(1) as another:  # this thread of Python has a thread in the JVM without a session
        ours = another.submit(from_json, text, schema, own).result()
    both = rows.select("i", F.from_json(text, whole, options).alias("spark"), ours.alias("ours"))
    assert both.schema["ours"].dataType == both.schema["spark"].dataType
    found = both.select(
        "i", *[F.to_json(F.struct(side)).alias(side) for side in ("spark", "ours")], "spark.a"
    ).collect()
    assert len(found) == len(records)
    assert [(r.i, records[r.i]) for r in found if r.ours != r.spark.replace('"spark"', '"ours"', 1)] == []
    assert sum(r.a is not None for r in found) > 100


def test_a_schema_that_json_can_not_have_is_refused_by_the_analysis(spark: "SparkSession") -> None:
    schema, _ = declared("m MAP<INT, STRING>", "the topic", "here")
    rows = spark.range(1).select(F.lit("{}").alias("text"))
    with pytest.raises(AnalysisException) as error:
        rows.select(from_json(F.col("text"), schema, spark))
    assert error.value.getCondition() == "DATATYPE_MISMATCH.INVALID_JSON_MAP_KEY_TYPE"
