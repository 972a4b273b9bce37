"""Values in Avro's binary encoding, decoded without Spark: the examples of its specification, and hostile values."""

from typing import Any

import pytest

from falkirk.user_tools.commands.avro_values import decode


def record(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in fields], **more}


LIST = record(("value", "long"), ("next", ["null", "r"]))
TWO = {"type": "fixed", "name": "two", "size": 2}


def of_decimals(scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}


def length(content: bytes) -> bytes:
    """Return at most 63 bytes after their length, as Avro writes `bytes`."""
    return bytes([2 * len(content)]) + content


DIGITS_38 = 12345678901234567890123456789012345678
SPACES = record(("a", TWO), ("b", "two"), ("c", "other.two"), namespace="other")


@pytest.mark.parametrize(
    ("schema", "value", "found"),
    [
        ("null", b"", None),
        ("boolean", b"\1", True),
        ("long", b"\0", 0),
        ("long", b"\1", -1),
        ("long", b"\x7f", -64),
        ("long", b"\x80\x01", 64),
        ("long", b"\xff" * 9 + b"\1", -(1 << 63)),
        ("float", b"\0\0\xc0\x3f", 1.5),
        ("double", b"\0\0\0\0\0\0\xf8\x3f", 1.5),
        ("string", b"\x06foo", "foo"),
        ("bytes", b"\x04\xff\0", "/wA="),
        (record(("a", "long"), ("b", "string")), b"\x36\x06foo", {"a": 27, "b": "foo"}),
        ({"type": "array", "items": "long"}, b"\x04\x06\x36\0", [3, 27]),
        ({"type": "array", "items": "long"}, b"\x03\x04\x06\x36\0", [3, 27]),
        ({"type": "map", "values": "int"}, b"\x02\x02a\x02\0", {"a": 1}),
        (["null", "string"], b"\x02\x02a", "a"),
        (["null", "string"], b"\0", None),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\x02", "B"),
        (LIST, b"\x02\x02\x04\0", {"value": 1, "next": {"value": 2, "next": None}}),
        (SPACES, b"aabbcc", {"a": "YWE=", "b": "YmI=", "c": "Y2M="}),
        ({"type": "int", "logicalType": "date"}, b"\x02", "1970-01-02"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xd0\x0f", "1970-01-01T00:00:01Z"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, b"\x02", "1970-01-01T00:00:00.000001"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\x04\xff\x85", "-1.23"),
        (of_decimals(0), length(DIGITS_38.to_bytes(16)), "12345678901234567890123456789012345678"),
        (of_decimals(18), length((-DIGITS_38).to_bytes(16, signed=True)), "-12345678901234567890.123456789012345678"),
        (of_decimals(7), b"\x02\x01", "0.0000001"),
        (of_decimals(2), b"\x02\0", "0.00"),
        ({"type": "string", "logicalType": "uuid"}, b"\x02a", "a"),
    ],
)
def test_a_value_is_decoded(schema: Any, value: bytes, found: Any) -> None:
    assert decode(schema, value) == found


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("long", b""),
        ("long", b"\xff" * 11),
        ("long", b"\0\0"),
        ("string", b"\x7f"),
        ("string", b"\x80\x80\x80\x80\x10abc"),
        ("string", b"\x02\xff"),
        ("boolean", b"\x02"),
        (["null", "long"], b"\x04"),
        (["null", "long"], b"\x01"),
        ({"type": "array", "items": "null"}, b"\x80\x80\x80\x80\x80\x80\x40\0"),
        (record(("self", "r")), b""),
        (record(("a", "unknown")), b"\0"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xff" * 9 + b"\1"),
        ({"fields": []}, b""),
        (of_decimals(-1), b"\x02\x01"),
        (of_decimals(1_000_000_000), b"\x02\x01"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(schema: Any, value: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # nobody reads its text
        decode(schema, value)


def test_records_that_repeat_each_other_are_refused_before_they_take_long() -> None:
    """Each has the former one twice, so the 17th has 131,072 fields in no byte at all."""
    schema: Any = record(("a", "null"), ("b", "null"))
    for number in range(16):
        schema = record(("a", schema), ("b", f"r{number}" if number else "r")) | {"name": f"r{number + 1}"}
    with pytest.raises(ValueError, match="parts"):
        decode(schema, b"")


def test_a_long_value_may_have_as_many_items_as_its_bytes_hold() -> None:
    number = 200_000
    assert decode({"type": "array", "items": "int"}, b"\x80\xb5\x18" + b"\2" * number + b"\0") == [1] * number
