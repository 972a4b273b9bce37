"""Content: the form in which two values are compared, however they were written or read.

Independent of Spark and of JSON: a row that was recomputed here and a row that was read from a topic are the
same row if and only if their contents are equal. Two differences are none: the order of a struct's fields,
and a null field that is left out (Spark's ``to_json`` leaves it out). Everything else counts: ``true`` is not
1, and a field too many is another content.
"""

from collections.abc import Hashable, Mapping
from enum import Enum


class _Special(Enum):
    """Values that Python would call equal to something else, or unequal to themselves."""

    TRUE = "true"
    FALSE = "false"
    NAN = "NaN"


def content(value: object) -> Hashable:
    """Return the content of `value`: hashable, and equal exactly where the values mean the same.

    Args: value: what ``json.loads`` returns, or the same shapes with Decimal, bytes, dates.
    Returns: a nest of frozensets (structs), tuples (arrays) and plain values. Numbers compare as numbers: 1
        and 1.0 are one.
    Raises: TypeError: `value` holds something that can't be compared, such as a set.
    """
    kind = type(value)
    if kind is str or kind is int or value is None:
        return value
    if isinstance(value, Mapping):
        # Most fields are texts and whole numbers, which are their own content: no call for them.
        return frozenset(
            [
                (name, field if type(field) is str or type(field) is int else content(field))
                for name, field in value.items()
                if field is not None
            ]
        )
    if isinstance(value, list | tuple):
        return tuple([content(element) for element in value])
    if isinstance(value, bool):
        return _Special.TRUE if value else _Special.FALSE
    if isinstance(value, float) and value != value:
        return _Special.NAN
    if not isinstance(value, Hashable):
        raise TypeError(f"a value of type {kind.__name__} has no content that could be compared")
    return value
