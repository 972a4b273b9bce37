"""Checks that a request's body fits the columns of a source, before anything is sent to Kafka.

Spark reads every accepted value as the same value, so no accepted request becomes a dead letter. Dates and times are
strings such as "2026-11-21" and "2026-11-21T20:44:14.5Z"; binary values are in Base64.
"""

import base64
import json
import math
import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from falkirk.http_source.errors import RequestError

_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_FLOAT_MAX = 3.4028234663852886e38
_DATE, _TIME = r"\d{4}-\d\d-\d\d", r"(?:[01]\d|2[0-3]):\d\d:\d\d(\.\d{1,6})?"
#: Java knows no zone that is further away than 18 hours, and Spark reads a time with one as null.
_ZONE = r"(?:Z|[+-](?:0\d|1[0-7]):\d\d|[+-]18:00)?"


def _like(pattern: str, read: Callable[[str], object]) -> Callable[[str], object]:
    def parsed(text: str) -> object:
        if re.fullmatch(pattern, text, re.ASCII) is None:
            raise ValueError(text)
        return read(text)

    return parsed


#: For each type, a function that raises ValueError if a string is not such a value.
_TEXTS: dict[type[DataType], Callable[[str], object]] = {
    StringType: str,
    DateType: _like(_DATE, date.fromisoformat),
    TimestampType: _like(f"{_DATE}T{_TIME}{_ZONE}", datetime.fromisoformat),
    TimestampNTZType: _like(f"{_DATE}T{_TIME}", datetime.fromisoformat),
    BinaryType: lambda text: base64.b64decode(text, validate=True),
}


def unchecked_type(schema: DataType) -> DataType | None:
    """Return a type within the schema for which values in a body can't be checked, or None."""
    if isinstance(schema, StructType):
        return next((u for f in schema.fields if (u := unchecked_type(f.dataType)) is not None), None)
    if isinstance(schema, ArrayType):
        return unchecked_type(schema.elementType)
    if isinstance(schema, MapType):
        return unchecked_type(schema.valueType) if type(schema.keyType) is StringType else schema.keyType
    known = (BooleanType, FloatType, DoubleType, *_BITS, *_TEXTS)
    return None if type(schema) in known else schema


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body.

    Raises: RequestError: `BODY_INVALID`.
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse, parse_float=_float)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _invalid("the body is not a JSON object")
    return value


def encode(value: dict[str, Any], schema: StructType) -> bytes:
    """Return an object as the bytes to send. Equal requests give equal bytes.

    Raises: RequestError: `BODY_INVALID`: the object does not fit the schema.
    """
    try:
        found = _struct(value, schema, "")
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise _invalid("a string contains half of a surrogate pair") from error
    except RecursionError as error:
        raise _invalid("the body is nested too deeply") from error


def _struct(value: object, schema: StructType, at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _misfit(at, "an object", value)
    strange = sorted(value.keys() - set(schema.names))
    if strange:
        raise _invalid(f"there is no column {at}{strange[0]!r}; the columns are {', '.join(schema.names)}")
    found = {}
    for field in schema.fields:
        given = value.get(field.name)
        if given is not None:
            found[field.name] = _fit(given, field.dataType, f"{at}{field.name}")
        elif not field.nullable:
            raise _invalid(f"column {at}{field.name} is missing or null")
    return found


def _fit(value: object, kind: DataType, at: str) -> object:
    """Return a value that is not null, after a check that it has the type."""
    if isinstance(kind, StructType):
        return _struct(value, kind, f"{at}.")
    if isinstance(kind, ArrayType) and isinstance(value, list):
        return [_element(v, kind.elementType, kind.containsNull, f"{at}[{i}]") for i, v in enumerate(value)]
    if isinstance(kind, MapType) and isinstance(value, dict):
        return {k: _element(v, kind.valueType, kind.valueContainsNull, f"{at}[{k!r}]") for k, v in value.items()}
    if not _is(value, kind):
        raise _misfit(at, kind.simpleString(), value)
    return value


def _element(value: object, kind: DataType, nullable: bool, at: str) -> object:
    if value is None and nullable:
        return None
    return _fit(value, kind, at)


def _is(value: object, kind: DataType) -> bool:
    if isinstance(kind, BooleanType):
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if type(kind) in _BITS:
        bits = _BITS[type(kind)] - 1
        return isinstance(value, int) and -(1 << bits) <= value < 1 << bits
    if isinstance(kind, FloatType | DoubleType):
        limit = _FLOAT_MAX if isinstance(kind, FloatType) else math.inf
        return isinstance(value, int | float) and _magnitude(value) <= limit
    if type(kind) not in _TEXTS or not isinstance(value, str):
        return False
    try:
        _TEXTS[type(kind)](value)
    except ValueError:
        return False
    return True


def _magnitude(value: int | float) -> float:
    try:
        return abs(float(value))
    except OverflowError:
        return math.nan  # NaN fails every comparison with a limit


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large for a number")
    return value


def _refuse(text: str) -> object:
    raise ValueError(f"{text} is not a JSON number")


def _misfit(at: str, kind: str, value: object) -> RequestError:
    return _invalid(f"{at} is {json.dumps(value)[:60]}, which is not {kind}")


def _invalid(message: str) -> RequestError:
    return RequestError("BODY_INVALID", f"{message}.", status=400)
