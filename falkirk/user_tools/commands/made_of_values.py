"""Made of, values: the records that made a result, and whether a result that was computed again is the same."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from falkirk.user_tools.commands.records import RecordPlace

#: A sum of doubles depends on the order of its rows, so equal ones may differ by this part.
_ROUNDED = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The records that made a result.

    Args: columns, values: of the key. window: its bounds in microseconds. rows: how many rows of these records went
        into it. records: newest first. looked_at: how many records were read. deleted, skipped: how many were not,
        because they were deleted, or because of the limit. results: the aggregate of these records alone. agrees: it
        is the result; None: it can't be compared.
    """

    columns: tuple[str, ...]
    values: tuple[Any, ...]
    window: tuple[int, int] | None
    rows: int
    records: tuple[RecordPlace, ...]
    looked_at: int
    deleted: int
    skipped: int
    results: tuple[Mapping[str, Any], ...]
    agrees: bool | None
    note: str = ""


def same_values(one: Any, other: Any) -> bool:
    """Return whether two values of JSON are the same, but for the rounding of sums. Whole numbers are not rounded."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) or isinstance(other, float):
        are_numbers = isinstance(one, int | float) and isinstance(other, int | float)
        return are_numbers and (one == other or math.isclose(one, other, rel_tol=_ROUNDED))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_values(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_values, one, other))
    return bool(one == other)
