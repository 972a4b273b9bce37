"""Written values: JSON objects and numbers as texts hold them, read so that two different values stay different.

JSON's numbers have no type. One with a fraction or an exponent is read as a double, as most readers do, unless a
double can't hold it: a value out of range, or with more digits than any double is written with, stays exact. A JSON
text of which readers disagree (a field that comes twice, another encoding) is not an object: nothing explains it.
"""

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any

#: The name of the only field of what is no object. Its value is none that JSON has, so no object is the same.
NO_OBJECT = "(not a JSON object)"
#: No double is written with more significant digits.
_DIGITS_MAX = 17
_DIGITS = re.compile(r"[eE].*|[-+.]")
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_FRACTION = re.compile(r"-?[0-9.]+(e-[0-9]+)?")


class _Missing(Enum):
    """The value of a record that has none."""

    NULL = "(null)"

    def __str__(self) -> str:
        return self.value


def fraction(text: str) -> float | Decimal:
    """Return a number with a fraction or an exponent: a double if one can hold it, else exact.

    Raises: ValueError: its exponent is out of all range.
    """
    number = float(text)
    if len(text) <= _DIGITS_MAX and number and math.isfinite(number):
        return number
    exact = exactly(text)
    digits = _DIGITS.sub("", text).strip("0")
    return number if not exact or (number and math.isfinite(number) and len(digits) <= _DIGITS_MAX) else exact


def exactly(text: str) -> Decimal:
    """Return a number as it is written. Raises: ValueError: it is none, or its exponent is out of all range."""
    try:
        return Decimal(text)
    except InvalidOperation as cause:
        raise ValueError(f"{text!r} is no number that can be compared") from cause


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
    """Return the fields of a JSON object in UTF-8; what is none comes back as the only field `NO_OBJECT`.

    Args: decimal: whether numbers with a fraction are decimals, as written.
    """
    if value is None:
        return no_object(None)
    try:
        # A decoder calls back for each integer only where one may be written with a sign that an int does not keep.
        fields = _DECODERS[decimal, b"-0" in value].decode(value.decode("utf-8"))
    except (ValueError, RecursionError):
        return no_object(value)
    return fields if isinstance(fields, dict) else no_object(value)


def breaks_off(value: bytes) -> bool:
    """Return whether a text that is no JSON may be the beginning of some."""
    try:
        json.loads(value.decode("utf-8"))
    except json.JSONDecodeError as error:
        return error.pos >= len(error.doc) or error.msg.startswith("Unterminated")
    except (ValueError, RecursionError):
        return False
    return False


def no_object(value: bytes | None) -> Mapping[str, object]:
    """Return what is no JSON object as a row that equals only another with the very same bytes."""
    return {NO_OBJECT: _Missing.NULL if value is None else value}


def plain_number(text: str, *, decimal: bool = False) -> int | float | Decimal | None:
    """Return the number of which `text` is the only way to write it, None if there is none.

    So texts that differ never become the same number: 1.10, 007, 12e3 and 1.0 are none.
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
