"""Checks a user's declarations, and reads values from them, before anything is planned."""

import inspect
import math
import re
import sys
from collections.abc import Mapping
from datetime import timedelta

from falkirk.declare.cut import AHEAD_S, SPAN_S_MAX, ByClock, ByRows, ByTime, Cut
from falkirk.declare.policy import Delivery, Duration, duration_s
from falkirk.declare.stream import Body
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.declare import (
    CUT_INVALID,
    CUT_INVALID_SPAN,
    CUT_INVALID_TIME,
    DELIVERY_UNKNOWN,
    NAME_INVALID,
    OPTION_UNKNOWN,
    OPTION_UNKNOWN_COUNT,
    OPTION_UNKNOWN_ENGINE,
    OPTION_UNKNOWN_TRANSACTIONAL,
    POLICY_MISPLACED,
)
from falkirk.errors.location import SourceLocation, caller
from falkirk.theory.history import History

#: The largest number of checkpoints that a `history` has: at each start, the host reads the files of as many
#: checkpoints.
HISTORY_MAX = 10_000
#: Its longest time: ten years. Old checkpoints are kept one a day.
HISTORY_S_MAX = 3650 * 86_400


def by_clock_or_rows(every: Duration | None, rows: int | None, what: str, where: SourceLocation) -> Cut:
    """Return a cut by the clock or by rows. Raises: DefinitionError: `CUT_INVALID`."""
    if (every is None) == (rows is None) or (rows is not None and (not isinstance(rows, int) or rows < 1)):
        raise CUT_INVALID.error(where=where, every=every, rows=rows, what=what)
    return ByRows(rows=rows) if rows is not None else ByClock(every_s=duration_s(every or 0))


def by_time(
    every: Duration | None,
    by: object,
    late: Duration | None,
    over: Duration | None,
    ahead: Duration | None,
    where: SourceLocation,
) -> ByTime:
    """Return a cut by event time. Raises: DefinitionError: `CUT_INVALID`."""
    every_us = round(duration_s(every) * 1_000_000) if every is not None else 0
    over_us = round(duration_s(over) * 1_000_000) if over is not None else every_us
    late_us = round(duration_s(late) * 1_000_000) if late else 0
    ahead_us = round((AHEAD_S if ahead is None else duration_s(ahead)) * 1_000_000)
    longest_s = max(every_us, over_us, late_us, ahead_us) / 1_000_000
    if longest_s > SPAN_S_MAX:
        raise CUT_INVALID_SPAN.error(where=where, longest_s=longest_s, every=every, late=late, over=over, ahead=ahead)
    if not isinstance(by, str) or not every_us or over_us % every_us or over_us < every_us:
        raise CUT_INVALID_TIME.error(where=where, every=every, by=by, over=over)
    return ByTime(column=by, every_us=every_us, late_us=late_us, over=over_us // every_us, ahead_us=ahead_us)


def parameters_of(body: Body) -> Mapping[str, inspect.Parameter]:
    """Return a function's parameters. Annotations are texts if their names can't be evaluated.

    Python 3.14 evaluates annotations only now, while older versions did at the definition.
    """
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        try:
            return inspect.signature(body).parameters
        except Exception:  # names that only type checkers know, or anything that the user's names raise
            return inspect.signature(body, annotation_format=Format.STRING).parameters
    return inspect.signature(body).parameters


def body_location(body: Body) -> SourceLocation:
    code = body.__code__
    text = f"def {body.__name__}({', '.join(parameters_of(body))})"
    return SourceLocation(file=code.co_filename, line=code.co_firstlineno, text=text)


def policy_misplaced(policy: object, what: str, hint: str) -> DefinitionError:
    return POLICY_MISPLACED.error(where=caller(), policy=policy, what=what, advice=hint)


def check_name(name: object, what: str, where: SourceLocation) -> None:
    """Refuse a name that can't be part of the names of a topic, a folder and a client.

    Raises: DefinitionError: `NAME_INVALID`.
    """
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", name):
        raise NAME_INVALID.error(where=where, name=name, what=what)


def check_counts(where: SourceLocation, **options: tuple[object, int, int | None]) -> None:
    """Refuse options that are no whole numbers within their limits.

    Args: options: of each its value, the least one, and the greatest one, if there is one.
    Raises: DefinitionError: `OPTION_UNKNOWN`.
    """
    for option, (value, least, most) in options.items():
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= (most or value):
            limit = f" and at most {most:,}" if most else ""
            raise OPTION_UNKNOWN_COUNT.error(where=where, option=option, value=value, least=least, limit=limit)


def check_history(history: object, where: SourceLocation) -> History:
    """Return the history for a number of checkpoints or a duration. Raises: DefinitionError: `OPTION_UNKNOWN`."""
    if not isinstance(history, str | timedelta):
        check_counts(where, history=(history, 0, HISTORY_MAX))
        assert isinstance(history, int)
        return History(checkpoints=history)
    try:
        span_s = duration_s(history)
    except DefinitionError:
        span_s = math.inf
    if span_s > HISTORY_S_MAX:
        raise OPTION_UNKNOWN.error(where=where, option="history", value=history, days_max=HISTORY_S_MAX // 86400)
    return History(span_s=span_s)


def check_transactional(transactional: object, where: SourceLocation) -> None:
    """Refuse a choice that is neither True, False nor None. Raises: DefinitionError: `OPTION_UNKNOWN`."""
    if transactional is not None and not isinstance(transactional, bool):
        raise OPTION_UNKNOWN_TRANSACTIONAL.error(where=where, option="transactional", value=transactional)


def check_engine(engine: object, where: SourceLocation) -> None:
    """Refuse an unknown engine. Raises: DefinitionError: `OPTION_UNKNOWN`."""
    if engine not in (None, "live", "micro-batch"):
        raise OPTION_UNKNOWN_ENGINE.error(where=where, option="engine", value=engine)


def as_delivery(value: Delivery | str, where: SourceLocation) -> Delivery:
    """Return the delivery with this name.

    Raises: DefinitionError: `DELIVERY_UNKNOWN`.
    """
    try:
        return Delivery(value)
    except ValueError:
        raise DELIVERY_UNKNOWN.error(
            where=where, delivery=str(value), value=value, known=", ".join(d.value for d in Delivery)
        ) from None
