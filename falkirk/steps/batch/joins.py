"""Joins: `join` pairs the rows of two streams, even if they arrive in different epochs."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from falkirk.declare.keys import key_columns
from falkirk.declare.policy import Duration, duration_s
from falkirk.errors.conditions.batch import CUT_INVALID_JOIN
from falkirk.errors.location import SourceLocation, caller
from falkirk.steps.batch.call import current
from falkirk.steps.batch.functions import check_columns


def join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    *,
    time: str | None = None,
    within: Duration | None = None,
    where: SourceLocation | None = None,
) -> DataFrame:
    """Return the inner join of two streams over all epochs. Each pair appears once, at the epoch of its later row.

    Args:
        left, right: of a batch. If both have a column besides `on`, the result has it as ``name`` and ``right_name``.
        on: the column(s) that are equal in a pair.
        time: a timestamp column that both have. within: only rows at most this long apart make a pair. If epochs are
            cut by event time, rows that can't make a pair any more are deleted; otherwise all rows are kept for ever.
        where: the user's line, if it is not the one that calls this.
    Raises: DefinitionError: `OUTSIDE_OF_BATCH`, `COLUMN_MISSING`, `CUT_INVALID`, `DURATION_MALFORMED`.
    """
    call, where = current("join"), where or caller()
    keys = key_columns(on)
    if (time is None) != (within is None):
        raise CUT_INVALID_JOIN.error(where=where, time=time, within=within)
    for frame in (left, right):
        check_columns(frame, [*keys, *([time] if time else [])], where)
    slots = call.slot("join-left"), call.slot("join-right")
    old_left, old_right = call.before(slots[0], left.schema), call.before(slots[1], right.schema)
    both_left, both_right = old_left.unionByName(left), old_right.unionByName(right)
    # New rows of one side meet all rows of the other; old rows of both sides have already met.
    left_first = _pairs(old_left, right, keys, time, within)
    pairs = _pairs(left, both_right, keys, time, within).unionByName(left_first)
    for slot, rows in zip(slots, (both_left, both_right), strict=True):
        call.keep(slot, _still_needed(rows, time, within, call.epoch.ends))
    return pairs


def _pairs(
    left: DataFrame, right: DataFrame, keys: Sequence[str], time: str | None, within: Duration | None
) -> DataFrame:
    names = {c: f"right_{c}" if c in left.columns else c for c in right.columns if c not in keys}
    other = right.select(
        *[F.col(f"`{k}`").alias(f"__key{i}") for i, k in enumerate(keys)],
        *[F.col(f"`{c}`").alias(n) for c, n in names.items()],
    )
    condition = F.lit(True)
    for i, key in enumerate(keys):
        condition = condition & (left[f"`{key}`"] == other[f"__key{i}"])
    if time is not None and within is not None:
        apart = F.abs(F.unix_micros(left[f"`{time}`"]) - F.unix_micros(other[f"`{names[time]}`"]))
        condition = condition & (apart <= F.lit(round(duration_s(within) * 1_000_000)))
    return left.join(other, condition, "inner").select(
        *[left[f"`{c}`"] for c in left.columns], *[other[f"`{n}`"] for n in names.values()]
    )


def _still_needed(rows: DataFrame, time: str | None, within: Duration | None, ends: datetime | None) -> DataFrame:
    """Remove rows that can't make a pair any more: later rows are not older than the end of the epoch."""
    if time is None or within is None or ends is None:
        return rows
    horizon = ends - timedelta(seconds=duration_s(within))
    return rows.where(F.col(f"`{time}`") >= F.lit(horizon))
