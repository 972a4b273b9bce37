"""Types: the user's declarations for columns whose values are texts, or have another meaning than they seem to.

A value that does not fit its type stays unchanged, so it equals only the same value.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal

from falkirk.checker.written import NO_OBJECT, exactly, fraction, read_json
from falkirk.errors.conditions.checker import TYPE_INVALID

_INTEGER = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6}0*)?)?(Z|[-+][0-9:]+)?")
#: How Spark and other systems write numbers that are not finite.
_NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf", "Inf": "inf", "-Inf": "-inf"}


def _text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float | Decimal) else value


def _integer(value: object) -> object:
    if isinstance(value, str) and _INTEGER.fullmatch(value) and len(value) <= 1000:
        return int(value)
    return value


def _double(value: object) -> object:
    """Return a number, or a text that is one, as a double; anything else unchanged."""
    if isinstance(value, str):
        written = _NOT_FINITE.get(value, value if _NUMBER.fullmatch(value) else None)
        return value if written is None else float(written)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return value
    try:
        return float(value)
    except OverflowError:
        return value


def _decimal(value: object) -> object:
    if isinstance(value, float) and value - value == 0:
        return Decimal(repr(value))
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        try:
            return exactly(value)
        except ValueError:
            return value
    return value


def _boolean(value: object) -> object:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _timestamp(value: object) -> object:
    """Return an instant in UTC, or a time without a zone, which is not an instant."""
    if not isinstance(value, str) or not _TIMESTAMP.fullmatch(value):
        return value
    try:
        at = datetime.fromisoformat(value)
        return at if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return value


def _date(value: object) -> object:
    try:
        return date.fromisoformat(value) if isinstance(value, str) and _DATE.fullmatch(value) else value
    except ValueError:
        return value


def _struct(value: object) -> object:
    """Return an object without its nulls: a struct has all its fields, whether they are written or not."""
    if isinstance(value, Mapping):
        return {name: _struct(field) for name, field in value.items() if field is not None}
    return [_struct(element) for element in value] if isinstance(value, list | tuple) else value


TYPES: dict[str, Callable[[object], object]] = {
    "text": _text,
    "integer": _integer,
    "double": _double,
    "decimal": _decimal,
    "boolean": _boolean,
    "timestamp": _timestamp,
    "date": _date,
    "struct": _struct,
}


def read_typed(text: bytes | None, types: Mapping[str, Callable[[object], object]]) -> Mapping[str, object]:
    """Return the fields of a JSON object. Columns in `types` are read exactly and then converted; others as by
    `read_json`."""
    fields = read_json(text, decimal=True)
    if NO_OBJECT in fields:
        return fields
    return {name: types.get(name, _untyped)(value) for name, value in fields.items()}


def _untyped(value: object) -> object:
    if isinstance(value, Decimal):
        return fraction(str(value))
    if isinstance(value, Mapping):
        return {name: _untyped(field) for name, field in value.items()}
    return [_untyped(element) for element in value] if isinstance(value, list) else value


def types_of(types: Mapping[str, str]) -> Mapping[str, Callable[[object], object]]:
    """Return, for each column, the function that converts its values. Raises: DefinitionError: `TYPE_INVALID`."""
    for column, name in types.items():
        if name not in TYPES:
            raise TYPE_INVALID.error(column=column, type=name, types=", ".join(TYPES))
    return {column: TYPES[name] for column, name in types.items()}
