"""Checks of a request's body: types, NOT NULL, and bytes that are not JSON."""

from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from falkirk.http_source import fits
from falkirk.http_source.errors import RequestError

INNER = StructType([StructField("n", LongType(), nullable=False)])
SCHEMA = StructType(
    [
        StructField("id", StringType(), nullable=False),
        StructField("tiny", ByteType()),
        StructField("flag", BooleanType()),
        StructField("ratio", DoubleType()),
        StructField("small", FloatType()),
        StructField("day", DateType()),
        StructField("at", TimestampType()),
        StructField("tags", ArrayType(StringType(), containsNull=False)),
        StructField("inner", INNER),
        StructField("counts", MapType(StringType(), LongType())),
    ]
)


def encoded(**columns: Any) -> bytes:
    return fits.encode({"id": "a", **columns}, SCHEMA)


def test_an_object_is_sent_in_the_order_of_the_columns_without_nulls() -> None:
    value = fits.parse_body(
        b'{"tags": ["x"], "tiny": -128, "flag": null, "id": "a", "counts": {"k": null}, "inner": {"n": 1}}'
    )
    assert fits.encode(value, SCHEMA) == b'{"id":"a","tiny":-128,"tags":["x"],"inner":{"n":1},"counts":{"k":null}}'


@pytest.mark.parametrize(
    "columns",
    [
        {"id": None}, {"id": 1}, {"tiny": 128}, {"tiny": True}, {"tiny": 1.0}, {"flag": 1}, {"flag": "true"},
        {"ratio": "1"}, {"ratio": 10**400}, {"small": 1e39}, {"day": "20261121"}, {"day": "2026-13-01"},
        {"tags": "x"}, {"tags": [None]}, {"tags": {}}, {"inner": {}}, {"inner": {"n": 1, "m": 1}}, {"inner": []},
        {"counts": {"k": "1"}}, {"counts": []}, {"strange": 1}, {"id": "\ud800"}, {"at": "2026-11-21T20:44"},
        {"at": "2026-11-21T20:44:14+18:01"}, {"at": "2026-11-21T20:44:14-23:59"}, {"at": "2026-11-21T24:00:00"},
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(columns: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refused:
        encoded(**columns)
    assert (refused.value.condition, refused.value.status) == ("BODY_INVALID", 400)


@pytest.mark.parametrize("zone", ["", "Z", "+18:00", "-17:59", "+05:30"])
def test_a_time_may_have_a_zone_that_java_knows(zone: str) -> None:
    """Spark reads a time with another one as null, or the request becomes a dead letter."""
    assert zone.encode() in encoded(at=f"2026-11-21T20:44:14.5{zone}")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b'"x"',
        b"null",
        b"\xff\xfe",
        b'{"n": NaN}',
        b'{"n": 1e999}',
        b"[" * 100_000,
        b"9" * 9_999,
    ],
)
def test_what_is_no_object_of_json_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        fits.parse_body(body)
    assert refused.value.condition == "BODY_INVALID"


def test_types_that_cant_be_checked_are_found_wherever_they_are() -> None:
    assert fits.unchecked_type(SCHEMA) is None
    decimal = DecimalType(10, 2)
    for kind in (decimal, ArrayType(decimal), MapType(StringType(), decimal), StructType([StructField("d", decimal)])):
        assert fits.unchecked_type(StructType([StructField("x", kind)])) == decimal
    assert fits.unchecked_type(MapType(LongType(), LongType())) == LongType()
