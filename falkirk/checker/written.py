"""Written values: reads JSON objects and numbers from texts so that different values stay different.

JSON's numbers have no type. A number with a fraction or an exponent is read as a double, as most readers do. It stays
exact if no double can hold it, because it exceeds the range or has too many digits. A JSON text on which readers
disagree (a repeated field, another encoding) is not an object, and nothing explains it.
"""

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any

#: The name of the only field of a value that is not an object. The field's value never occurs in JSON, so no object is
#: equal.
NO_OBJECT = "(not a JSON object)"
#: No double is written with more significant digits.
_DIGITS_MAX = 17
_DIGITS = re.compile(r"[eE].*|[-+.]")
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_FRACTION = re.compile(r"-?[0-9.]+(e-[0-9]+)?")


class _Missing(Enum):
    """The value of a record without a value."""

    NULL = "(null)"

    def __str__(self) -> str:
        return self.value


def fraction(text: str) -> float | Decimal:
    """Return a number with a fraction or an exponent: as a double if a double can hold it, else exactly.

    Raises: ValueError: its exponent is too large.
    """
    number = float(text)
    if len(text) <= _DIGITS_MAX and number and math.isfinite(number):
        return number
    exact = exactly(text)
    digits = _DIGITS.sub("", text).strip("0")
    return number if not exact or (number and math.isfinite(number) and len(digits) <= _DIGITS_MAX) else exact


def exactly(text: str) -> Decimal:
    """Return a number as it is written. Raises: ValueError: not a number, or its exponent is too large."""
    try:
        return Decimal(text)
    except InvalidOperation as cause:
        raise ValueError(f"{text!r} is not a number that can be compared") from cause


def _integer(text: str) -> int | float:
    return -0.0 if text == "-0" else int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("an object has a field twice")
    return fields


_DECODERS = {
    (decimal, minus): json.JSONDecoder(
        parse_float=exactly if decimal else fraction, parse_int=_integer if minus else None, object_pairs_hook=_object
    )
    for decimal in (False, True)
    for minus in (False, True)
}


def read_json(value: bytes | None, *, decimal: bool = False) -> Mapping[str, object]:
    """Return the fields of a JSON object in UTF-8. Any other value is returned as the only field `NO_OBJECT`.

    Args: decimal: whether numbers with a fraction are decimals, as written.
    """
    if value is None:
        return no_object(None)
    try:
        # A decoder with `_integer` calls it for each integer. That is needed only for -0, whose sign an int does not
        # keep.
        fields = _DECODERS[decimal, b"-0" in value].decode(value.decode("utf-8"))
    except (ValueError, RecursionError):
        return no_object(value)
    return fields if isinstance(fields, dict) else no_object(value)


def breaks_off(value: bytes) -> bool:
    """Return whether a text that is not JSON may be the beginning of JSON."""
    try:
        json.loads(value.decode("utf-8"))
    except json.JSONDecodeError as error:
        return error.pos >= len(error.doc) or error.msg.startswith("Unterminated")
    except (ValueError, RecursionError):
        return False
    return False


def no_object(value: bytes | None) -> Mapping[str, object]:
    """Return a value that is not a JSON object as a row. It equals only a row with the same bytes."""
    return {NO_OBJECT: _Missing.NULL if value is None else value}


def plain_number(text: str, *, decimal: bool = False) -> int | float | Decimal | None:
    """Return the number if `text` is the only way to write it, else None.

    So different texts never become the same number: 1.10, 007, 12e3 and 1.0 give None.
    """
    if _INTEGER.fullmatch(text) and len(text) <= 40:
        return int(text)
    if not _FRACTION.fullmatch(text):
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    if repr(number) != text or number.is_integer():
        return None
    return Decimal(text) if decimal else number
