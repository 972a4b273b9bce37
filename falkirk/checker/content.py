"""Content: the form in which two rows are compared, independent of how they were written or read.

It does not depend on Spark or JSON. A row that was recomputed here and a row that was read from a topic are the same
row if and only if their contents are equal. Three differences do not count: the order of fields, a null column and a
missing one (Spark's ``to_json`` omits null columns), and 1 and 1.0. Everything else counts. ``true`` is not 1, and 0.0
is not -0.0. Inside an object a null differs from a missing field, since a map with a null value has an entry.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

#: From here on a double represents several integers.
EXACT_MAX = 2**53


class _Special(Enum):
    """Values that Python considers equal to another value, or unequal to themselves."""

    TRUE = "true"
    FALSE = "false"
    NAN = "NaN"
    NEGATIVE_ZERO = "-0.0"


@dataclass(frozen=True, slots=True)
class _Wide:
    """A double so large that it represents several integers: it equals none of them."""

    value: float


def content(row: Mapping[str, object]) -> Hashable:
    """Return the content of a row: hashable, and equal if and only if the rows mean the same.

    Args: row: the result of ``json.loads``, or the same shapes with Decimal, bytes, dates.
    Raises: TypeError: a value can't be compared, such as a set.
    """
    # Most fields are texts and integers. They are their own content, so this saves a call.
    return frozenset(
        [
            (name, field if type(field) is str or type(field) is int else content_of(field))
            for name, field in row.items()
            if field is not None
        ]
    )


def content_of(value: object) -> Hashable:
    """Return the content of one value: a nest of frozensets (objects), tuples (arrays) and plain values.

    Raises: TypeError: as `content`.
    """
    kind = type(value)
    if kind is str or kind is int or value is None:
        return value
    if isinstance(value, float):
        return _of_float(value)
    if isinstance(value, bool):
        return _Special.TRUE if value else _Special.FALSE
    if isinstance(value, Mapping):
        return frozenset([(name, content_of(field)) for name, field in value.items()])
    if isinstance(value, list | tuple):
        return tuple([content_of(element) for element in value])
    if isinstance(value, Decimal):
        return _of_decimal(value)
    if not isinstance(value, Hashable):
        raise TypeError(f"a value of type {kind.__name__} can't be compared")
    return value


def _of_float(value: float) -> Hashable:
    if value != value:
        return _Special.NAN
    if value == 0:
        return _Special.NEGATIVE_ZERO if math.copysign(1.0, value) < 0 else 0
    return value if abs(value) < EXACT_MAX or math.isinf(value) else _Wide(value)


def _of_decimal(value: Decimal) -> Hashable:
    """Return the float that is written with these digits, if there is one; else the decimal, which equals no float."""
    if value.is_nan():
        return _Special.NAN
    if not value:
        return 0
    near = float(value)
    same = abs(near) < EXACT_MAX and near != 0 and Decimal(repr(near)) == value
    return near if same or value.is_infinite() else value


def group_key(value: object) -> object:
    """Return the value of the group to which rows with `value` belong: there is only one zero, as in Spark.

    Source: Spark's NormalizeFloatingNumbers.
    """
    if isinstance(value, float):
        return value + 0.0 if value == 0 else value
    if isinstance(value, Mapping):
        return {name: group_key(field) for name, field in value.items()}
    return [group_key(element) for element in value] if isinstance(value, list | tuple) else value
