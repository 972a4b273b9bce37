"""Random records and files for Spark's readers: each is a row or a dead letter, and no job fails.

One job reads all records of a format, so a run is cheap. A failure prints its seed; `FALKIRK_SEED` runs it again.
"""

import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.endpoints import Kafka
from falkirk.errors.location import SourceLocation
from falkirk.errors.spark import SPARK_ERRORS
from falkirk.runtime.spark.epochs.unreadable import _read_all
from falkirk.runtime.spark.rows import JSON_OPTIONS
from falkirk.steps.dataframes.names import BAD
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.stamped import Frame
from falkirk.steps.sources.files import file_rows
from falkirk.steps.sources.topics import dead_letter, parse_records, parsing
from falkirk.user_tools.redrive.letters import parse_letter
from tests.strategies import DEEP, HUGE, LONG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHERE = SourceLocation(file="shop.py", line=1)
SEED = int(os.environ.get("FALKIRK_SEED", random.SystemRandom().randrange(10**6)))
RECORDS = 1_000
PARQUET_FILES = int(os.environ.get("FALKIRK_PARQUET", 40))
RAW = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
SCHEMA = (
    "s STRING, n INT, l LONG, t TINYINT, d DOUBLE, f FLOAT, b BOOLEAN, at TIMESTAMP, day DATE, `dec` DECIMAL(10, 2), "
    "bin BINARY, a ARRAY<INT>, m MAP<STRING, LONG>, o STRUCT<x: INT, y: ARRAY<TIMESTAMP>>, needed INT NOT NULL"
)
NAMES = ("s", "n", "l", "t", "d", "f", "b", "at", "day", "dec", "bin", "a", "m", "o", "needed")
AVRO = {
    "type": "record", "name": "r", "fields": [
        {"name": "s", "type": "string"}, {"name": "n", "type": ["null", "int"]}, {"name": "b", "type": "bytes"},
        {"name": "a", "type": {"type": "array", "items": "string"}},
        {"name": "m", "type": {"type": "map", "values": "long"}},
        {"name": "e", "type": {"type": "enum", "name": "kind", "symbols": ["x", "y"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "dec", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
    ],
}  # fmt: skip
LEAVES: list[Any] = [
    None, True, False, 0, -1, 2**31, 2**63, -(2**63) - 1, HUGE, 1e400, -0.0, 1.5, "", "x", "1", "NaN", "Infinity", "\0",
    "\ud800", "²", "a" * 5_000, LONG, "true", "2026-01-01", "9999-12-31T23:59:59.999999999Z", "+294247-01-10T04:00:54Z",
    "-290308-12-21", "0000-00-00", "2026-02-30", "24:00", "epoch", "now", "AAAA", "=", "1e308", "1e-400", "0x10", "١٢",
]  # fmt: skip

#: Times that Spark reads, and some of which neither Python nor a database holds.
TIMES = ["2026-01-01T00:00:00Z", "+294246-12-31T00:00:00Z", "-0001-01-01", "9999-12-31T23:59:59.999999-18:00", None]


def value_of(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.random()
    if depth > 3 or kind < 0.6:
        return rng.choice([*LEAVES, rng.randint(-(10**20), 10**20), rng.random()])
    if kind < 0.8:
        return [value_of(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    return {rng.choice([*NAMES, "x", "y", "", "\ud83d"]): value_of(rng, depth + 1) for _ in range(rng.randint(0, 6))}


def spoilt(rng: random.Random, whole: bytes) -> bytes:
    """Return bytes as they are, cut off, with others in between, or something else."""
    kind = rng.random()
    if kind < 0.5:
        return whole
    if kind < 0.65:
        return whole[: rng.randint(0, len(whole))]
    if kind < 0.8:
        i = rng.randint(0, len(whole))
        return whole[:i] + rng.randbytes(rng.randint(1, 4)) + whole[i:]
    return rng.randbytes(rng.randint(0, 60))


def json_value(rng: random.Random) -> bytes:
    row = {name: value_of(rng) for name in rng.sample(NAMES, rng.randint(0, len(NAMES)))}
    if rng.random() < 0.3:
        row = {"needed": rng.randint(-(2**31), 2**31 - 1), "s": str(value_of(rng, 9))}
        row |= {"at": rng.choice(TIMES), "m": {"x": rng.randint(-(2**63), 2**63 - 1)}, "bin": "AA==", "dec": 1.25}
    text = json.dumps(row if rng.random() < 0.9 else value_of(rng), ensure_ascii=rng.random() < 0.5)
    return spoilt(rng, text.encode(errors="surrogatepass"))


def varint(number: int) -> bytes:
    """Return a number as Avro writes it."""
    left, found = (number << 1) ^ (number >> 63), b""
    while left > 127 or left < 0:
        found, left = found + bytes([left & 127 | 128]), (left & (2**64 - 1)) >> 7
    return found + bytes([left])


def avro_value(rng: random.Random) -> bytes:
    def text() -> bytes:
        raw = rng.choice([b"", b"x", b"\xff\xfe", b"y" * 300])
        return varint(rng.choice([len(raw)] * 9 + [-1, 10**4])) + raw

    def number() -> bytes:
        return varint(rng.choice([0, 1, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]))

    def items(item: Callable[[], bytes]) -> bytes:
        count = rng.randint(0, 3)
        return (
            varint(rng.choice([count] * 9 + [-1, 1000])) + b"".join(item() for _ in range(count)) + b"\0" * bool(count)
        )

    parts = [
        text(), rng.choice([b"\0", b"\2" + varint(7), b"\4", b"\1"]), text(), items(text),
        items(lambda: text() + number()), varint(rng.choice([0, 1, 2, -1])), number(), number(), text(),
    ]  # fmt: skip
    if rng.random() < 0.1:  # one that fits
        texts, empty = (varint(1) + b"x", b"\2" + varint(7), varint(1) + b"y"), b"\0" * 3
        return b"".join(texts) + empty + varint(1_800_000_000_000) + varint(7) + varint(2) + b"\1\0"
    return spoilt(rng, b"".join(parts))


def judged(frame: Frame, count: int, topic: str) -> tuple[int, int]:
    """Return how many records fit and how many do not; each has a text that can be written, or is a dead letter."""
    good = frame.data.where(frames.is_good())
    row = F.to_json(F.struct(*[F.col(f"`{name}`") for name in frame.columns]), JSON_OPTIONS)
    texts = [r.text for r in good.select(row.alias("text")).collect()]
    value = F.substring(F.col(f"{BAD}.value"), 1, 1_000).cast("string")
    bad = frame.data.where(~frames.is_good())
    letters = bad.select(
        F.col(f"{BAD}.key").alias("key"), dead_letter(F.col(f"{BAD}.reason"), "r", topic, value).alias("v")
    )
    found = [parse_letter("r", row.key, row.v.encode(), {topic: topic}) for row in letters.collect()]
    assert len(texts) + len(found) == count
    for text in texts:
        json.loads(text)
    assert {letter.kind for letter in found} <= {"input"}
    return len(texts), len(found)


@pytest.mark.parametrize("kind", ["json", "avro", "text", "binary"])
def test_each_random_record_is_a_row_or_a_dead_letter(spark: "SparkSession", kind: str) -> None:
    rng = random.Random(f"{SEED} {kind}")
    made = {"json": json_value, "avro": avro_value}.get(kind, lambda rng: rng.randbytes(rng.randint(0, 40)))
    values = [None, b"", DEEP, b'{"needed": 1, "n": ' + LONG.encode() + b"}", b'{"needed": 1}', b"\xef\xbb\xbf{}"]
    values += [made(rng) for _ in range(RECORDS)]
    rows = [(rng.choice([None, b"", b"\xff"]), value, "t", 0, offset, None, 0) for offset, value in enumerate(values)]
    raw = spark.createDataFrame(rows, RAW)
    schema = {"json": SCHEMA, "avro": json.dumps(AVRO)}.get(kind)
    topic = Kafka("t", schema=schema, format=kind, where=WHERE)  # type: ignore[arg-type]  # one of them
    try:
        good, bad = judged(parse_records(raw, parsing(topic, spark)), len(values), "t")
    except Exception as error:
        raise AssertionError(f"FALKIRK_SEED={SEED}: {error}") from error
    assert good > 20, SEED
    assert bad > 20 or kind in ("text", "binary"), SEED


@pytest.mark.parametrize("field", ["string", "bytes", "array", "map"])
def test_a_record_that_claims_a_huge_value_is_a_dead_letter(spark: "SparkSession", field: str) -> None:
    """A few bytes of Avro claim a value of 2 GB."""
    kind: Any = {"array": {"type": "array", "items": "long"}, "map": {"type": "map", "values": "long"}}.get(
        field, field
    )
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "v", "type": kind}]})
    rows = [(None, varint(size) + b"x", "t", 0, i, None, 0) for i, size in enumerate((2**31 - 20, 2**31 - 9, 2**30, 9))]
    raw = spark.createDataFrame(rows, RAW)
    frame = parse_records(raw, parsing(Kafka("t", schema=schema, format="avro", where=WHERE), spark))
    assert judged(frame, len(rows), "t") == (0, len(rows))


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_each_random_line_of_a_file_is_a_row_or_a_dead_letter(spark: "SparkSession", tmp_path: Path, kind: str) -> None:
    rng = random.Random(f"{SEED} {kind} files")
    schema = SCHEMA if kind == "json" else "s STRING, n INT, at TIMESTAMP, d DOUBLE, needed INT NOT NULL"
    paths: dict[Path, int] = {}
    for number in range(20):
        lines = []
        for _ in range(60):
            if kind == "json":
                line = json_value(rng)
            else:
                cells = [str(rng.choice(LEAVES))[:50] for _ in range(rng.choice([5, 5, 5, 0, 3, 9]))]
                line = spoilt(
                    rng,
                    ",".join(rng.choice(['"{}"', "{}", "'{}", '{}"']).format(c) for c in cells).encode(
                        errors="replace"
                    ),
                )
            lines.append(line.replace(b"\n", b" ").replace(b"\r", b" "))
        path = tmp_path / f"{number}.{kind}"
        path.write_bytes(b"\n".join([*([b"s,n,at,d,needed"] if kind == "csv" else []), *lines]))
        paths[path] = number
    frame = file_rows(spark, fk.Files(str(tmp_path), kind, schema=schema, where=WHERE), paths)  # type: ignore[arg-type]
    try:
        good = frame.data.where(frames.is_good()).count()
        bad = frame.data.where(~frames.is_good()).select(F.col(f"{BAD}.value").cast("string")).collect()
    except Exception as error:
        raise AssertionError(f"FALKIRK_SEED={SEED}: {error}") from error
    assert good + len(bad) > 200, SEED
    assert len(bad) > 20, SEED


def with_a_huge_footer(rng: random.Random, whole: bytes) -> bytes:
    """Return a Parquet file whose footer claims a size, or holds a text or a list of this size, of up to 2 GB."""
    size = rng.choice([2**31 - 1, 2**31 - 9, 2**31, 2**32 - 1, 2**30])
    if rng.random() < 0.3:
        return whole[:-8] + struct.pack("<I", size) + whole[-4:]
    claimed, rest = b"", size
    while rest > 127:
        claimed, rest = claimed + bytes([rest & 127 | 128]), rest >> 7
    claimed += bytes([rest])
    # Thrift's compact protocol: version 1; then the schema's list or, in its place, an unknown text or list.
    kind = rng.choice([b"\x19\xfc", b"\x68", b"\x69\xf8", b"\x69\xf3", b"\x6b"])
    footer = b"\x15\x02" + kind + claimed + b"\x88" + rng.randbytes(40)
    return whole[:4] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def spoilt_parquet(rng: random.Random, whole: bytes) -> bytes:
    """Return a Parquet file that is damaged in its pages or its footer, but begins and ends as one."""
    footer_begins = len(whole) - 8 - struct.unpack("<I", whole[-8:-4])[0]
    kind, damaged = rng.random(), bytearray(whole)
    if kind < 0.15:
        return with_a_huge_footer(rng, whole)
    if kind < 0.3:
        return whole[: rng.randint(4, len(whole) - 8)] + rng.choice([whole[-8:], b"PAR1"])
    if kind < 0.4:
        return b"PAR1" + rng.randbytes(rng.randint(0, 300)) + rng.choice([whole[-8:], b"\x20\0\0\0PAR1"])
    low, high = (4, footer_begins) if kind < 0.65 else (footer_begins, len(whole) - 4)
    for _ in range(rng.choice([1, 1, 2, 8])):
        damaged[rng.randrange(low, high)] = rng.choice([0, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    return bytes(damaged)


def test_each_random_parquet_file_is_read_or_refused(spark: "SparkSession", tmp_path: Path) -> None:
    """Each file is read as an epoch reads its suspects, one by one. An error is one of those that refuse a file."""
    rng = random.Random(f"{SEED} parquet")
    schema = "s STRING, n INT, at TIMESTAMP, a ARRAY<INT>, needed INT NOT NULL"
    rows = [(f"x{n * 7919 % 101}", n, None, [n, None], n) for n in range(300)]
    wholes = []
    for number, dictionary in enumerate(("true", "false")):
        writer = spark.createDataFrame(rows, schema).coalesce(1).write.option("parquet.enable.dictionary", dictionary)
        writer.parquet(str(tmp_path / f"whole{number}"))
        wholes.append(next((tmp_path / f"whole{number}").glob("*.parquet")).read_bytes())
    files = fk.Files(str(tmp_path), "parquet", schema=schema, where=WHERE)
    read, refused = 0, 0
    for number in range(PARQUET_FILES):
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(spoilt_parquet(rng, rng.choice(wholes)))
        try:
            _read_all(file_rows(spark, files, {path: number}).data)
            read += 1
        except SPARK_ERRORS:
            refused += 1
        except Exception as error:
            raise AssertionError(f"FALKIRK_SEED={SEED}, {path}: {error}") from error
    assert spark.range(3).count() == 3, "Spark works"
    assert refused > PARQUET_FILES / 3, SEED
    assert read > 0, SEED
