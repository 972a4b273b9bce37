"""User functions: the results that a Python function of rows may return, and the message about a row on which it fails.

Batches call it in Spark's Python workers (falkirk/steps/batch/python.py), live regions in workers of ours
(falkirk/steps/live/row_worker.py). The rules are the same.
"""

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from falkirk.errors.redaction import redact, redact_urls

#: The beginning of the reason in a dead letter of such a row.
FAILED = "the function failed"
#: The number of characters of a row, and of a traceback, in a dead letter.
TEXT_MAX = 10_000
_REASON_MAX = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def results_of(found: object) -> Iterable[object]:
    """Return a function's result as a series of rows: none for None, and one for a single row."""
    if found is None:
        return ()
    if isinstance(found, Mapping | Row):
        return (found,)
    return found  # type: ignore[return-value]  # other values raise an error at the user's row


def parts_of(returned: object, *, timers: bool) -> tuple[Any, Any, tuple[int | None, ...]]:
    """Return the results, the state and the timer that a function of rows and states has returned.

    Args: timers: whether states may have timers. Returns: the timer as a tuple: empty if it stays as it is, else with
        its time in microseconds, or None for no timer.
    Raises: TypeError, ValueError: the user's function is the cause.
    """
    if not isinstance(returned, tuple) or len(returned) not in ((2, 3) if timers else (2,)):
        raise TypeError(f"{returned!r} is not (results, state){' or (results, state, timer)' if timers else ''}")
    results, state, *timer = returned
    if state is None and timer not in ([], [None]):
        raise ValueError("a timer needs a state, and the function returned None as the state")
    return results, state, tuple(None if each is None else _micros(each) for each in timer)


def _micros(time: object) -> int:
    """Return a time in microseconds. One without a zone is in UTC, as in results."""
    if not isinstance(time, datetime):
        raise TypeError(f"{time!r} is not the time of a timer: return a datetime")
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


def timer_time(micros: int, zone: tzinfo) -> datetime:
    """Return the time of a timer for the user's function."""
    return (_EPOCH + timedelta(microseconds=micros)).astimezone(zone)


def check_next(timer: tuple[int | None, ...], fired: int) -> None:
    """Check the timer that a function has returned for one that fired. Raises: ValueError."""
    if timer and timer[0] is not None and timer[0] <= fired:
        times = [timer_time(each, UTC).isoformat() for each in (timer[0], fired)]
        raise ValueError(f"the next timer is at {times[0]}, which is not after the one that fired at {times[1]}")


def fitted(kind: str, of: pa.StructType, value: object) -> tuple[dict[str, Any], pa.Array]:
    """Return a row as plain values, and as an array of one row. Args: kind: what it is. of: its type.

    Raises: TypeError, ValueError, pa.ArrowException: it does not fit; the user's function is the cause.
    """
    plain = value.asDict() if isinstance(value, Row) else value
    names = [of.field(i).name for i in range(of.num_fields)]
    if not isinstance(plain, Mapping):
        raise TypeError(f"{plain!r} is not a {kind}: return a dict or Row with {', '.join(names)}")
    unknown = [name for name in plain if name not in names]
    if unknown:
        raise ValueError(f"{kind} has no column {unknown[0]!r}; it has {', '.join(names)}")
    return dict(plain), pa.array([plain], type=of)


class Fit:
    """Fits rows to their columns: gives the values that Spark would get through Arrow.

    Args: kind: the kind of a row, for messages. of: its columns.
    """

    def __init__(self, kind: str, of: T.StructType) -> None:
        arrow = to_arrow_type(of, timezone="UTC")
        assert isinstance(arrow, pa.StructType), "the type of a row"
        self._kind, self._arrow, self._names = kind, arrow, of.names
        exact = {field.name: is_exact(field.dataType) for field in of.fields}
        self._exact = None if None in exact.values() else exact

    def __call__(self, value: object) -> dict[str, Any]:
        """Return a row as plain values. Raises: as `fitted`."""
        if self._exact is not None and type(value) is dict and self._is_exact(value):
            return {name: value.get(name) for name in self._names}
        row: dict[str, Any] = fitted(self._kind, self._arrow, value)[1].to_pylist()[0]
        return row

    def _is_exact(self, row: Mapping[str, Any]) -> bool:
        """Return whether Arrow would return the same values. To ask it takes half of the time of a call."""
        exact = self._exact or {}
        for name, value in row.items():
            test = exact.get(name)
            if test is None or not (value is None or test(value)):
                return False
        return True


def _integer(bits: int) -> Callable[[Any], bool]:
    limit = 1 << bits - 1
    return lambda value: type(value) is int and -limit <= value < limit


#: Of simple types, the values that Arrow does not change.
_EXACT: Mapping[type[T.DataType], Callable[[Any], bool]] = {
    T.BooleanType: lambda value: type(value) is bool, T.StringType: lambda value: type(value) is str,
    T.DoubleType: lambda value: type(value) is float, T.ByteType: _integer(8), T.ShortType: _integer(16),
    T.IntegerType: _integer(32), T.LongType: _integer(64),
}  # fmt: skip


def is_exact(kind: T.DataType) -> Callable[[Any], bool] | None:
    """Return a function that tells the values of a type that Arrow does not change; None: Arrow must be asked."""
    return _EXACT.get(type(kind))


def traceback_text() -> str:
    """Return the traceback of the current error. Its lines of code are redacted, since others read it."""
    error = sys.exc_info()[1]
    assert error is not None, "a function has just failed"
    trace = traceback.TracebackException.from_exception(error)
    waiting = [trace]
    while waiting:
        each = waiting.pop()
        lines = [(f.filename, f.lineno or 0, f.name, redact(f.line or "")) for f in each.stack]
        each.stack = traceback.StackSummary.from_list(lines)
        waiting += [e for e in (each.__cause__, each.__context__) if e is not None]
        waiting += each.exceptions or []
    return redact_urls("".join(trace.format()))


def reason_of(text: str) -> str:
    """Return the reason of a dead letter. Args: text: the traceback."""
    return f"{FAILED}: {text.strip().splitlines()[-1]}"[:_REASON_MAX]


def row_text(row: Mapping[str, Any]) -> str:
    """Return a row as a dead letter has it."""
    return json.dumps(row, default=str)[:TEXT_MAX]


def poison_text(row: Mapping[str, Any], text: str) -> str:
    """Return the message about a row that must not become a dead letter. Args: text: the traceback."""
    return f"{FAILED} on {row_text(row)}\n{text[-TEXT_MAX:]}"
