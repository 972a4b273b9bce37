"""Sums and orders of values, with Spark's meaning. If values have no sum or no order, an error says so."""

from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any

_EXACT = Context(prec=2000, traps=[Inexact, InvalidOperation, Overflow])
_ORDERED: tuple[type[Any], ...] = (bool, str, bytes, datetime, date, time, timedelta)


class NoSumError(Exception):
    """Two values that have no sum, or no sum that can be computed exactly."""


class NoOrderError(Exception):
    """Two values of which neither precedes the other, and which are not equal."""


def is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def plus(before: Any, value: Any) -> Any:
    """Return the sum, or `value` if `before` is None. Decimals are added with all their digits.

    Raises: NoSumError.
    """
    if not is_number(value):
        raise NoSumError("it is not a number")
    if before is None:
        return value + 0.0 if isinstance(value, float) else value
    if not isinstance(before, Decimal) and not isinstance(value, Decimal):
        try:
            return before + value
        except OverflowError as cause:
            raise NoSumError("the sum is too large for a float") from cause
    if isinstance(before, float) or isinstance(value, float):
        raise NoSumError("one is a float, and the other a decimal that no float can hold")
    try:
        return _EXACT.add(Decimal(before), Decimal(value))
    except ArithmeticError as cause:
        raise NoSumError("their sum has too many digits") from cause


def precedes(one: Any, other: Any) -> bool:
    """Return whether `one` comes before `other` in Spark's order: NaN last, 0.0 and -0.0 equal, nulls first in lists.

    Raises: NoOrderError.
    """
    if type(one) is type(other) and isinstance(one, int | str):
        return bool(one < other)
    if is_number(one) and is_number(other):
        # NaN alone differs from itself.
        return bool(one == one and (other != other or one < other))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return _list_precedes(one, other)
    try:
        for kind in _ORDERED:
            if isinstance(one, kind) and isinstance(other, kind):
                return bool(one < other)
    except TypeError as cause:
        raise NoOrderError from cause
    raise NoOrderError


def _list_precedes(one: Any, other: Any) -> bool:
    for left, right in zip(one, other, strict=False):
        if left is None or right is None:
            if left is not right:
                return left is None
        elif precedes(left, right):
            return True
        elif precedes(right, left):
            return False
    return len(one) < len(other)
