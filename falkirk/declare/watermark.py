"""Watermarks: how a stream's `withWatermark` tells the event time of its records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from falkirk.declare.cut import SPAN_S_MAX
from falkirk.declare.policy import Duration, duration_s
from falkirk.errors.conditions.declare import WATERMARK_INVALID
from falkirk.errors.location import SourceLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """The event time of records.

    The time of a partition is the greatest time of its records so far. Its watermark is that time less the delay. A
    record that is older than the watermark of its partition is late.

    Args: column: a TIMESTAMP column. delay_us: in microseconds. ahead_us: how far a time may be ahead of the clock.
        idle_us: how long a partition may be without a record before it holds time up no longer; None: for ever.
    """

    column: str
    delay_us: int
    ahead_us: int
    idle_us: int | None = None

    def __str__(self) -> str:
        idle = "" if self.idle_us is None else f", idle after {interval_text(self.idle_us)}"
        return f"{self.column}, {interval_text(self.delay_us)}, {interval_text(self.ahead_us)} ahead{idle}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingTime(Watermark):
    """The times of a clock, in place of the event time of records. No record is late."""

    column: str = ""
    delay_us: int = 0
    ahead_us: int = 0

    def __str__(self) -> str:
        return "the clock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """When the state of a key expires: its newest record is older than the watermark by `after_us` or more.

    Args: watermark: of the records. after_us: in microseconds.
    """

    watermark: Watermark
    after_us: int

    def __str__(self) -> str:
        return f"{interval_text(self.after_us)} after {self.watermark}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timers:
    """When a function is called without a record: when the watermark has reached the time of a key's timer.

    Args: watermark: of the records. function: takes the key, the time and the state.
    """

    watermark: Watermark
    function: Callable[..., Any]

    def __str__(self) -> str:
        return str(self.watermark)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOrder:
    """The order in which a function gets the records of a key: by their times, then by their places in the source.

    Args: watermark: of the records.
    """

    watermark: Watermark

    def __str__(self) -> str:
        return f"by {self.watermark}"


def watermark_of_state(options: Mapping[str, Any]) -> Watermark | None:
    """Return the event time by which states expire, have timers, or get their records, if they do.

    Args: options: of `stateful`.
    """
    found = options.get("expiry") or options.get("timers") or options.get("order")
    return None if found is None else found.watermark


def interval_text(duration_us: int) -> str:
    """Return a duration as text that names no other duration. Homes compare these texts.

    Most texts have six digits at most, as homes of earlier versions have recorded them.
    """
    short = f"{duration_us / 1e6:g}"
    if Decimal(short) * 1_000_000 == duration_us:
        return f"{short} s"
    return f"{duration_us} us"


def watermark(
    column: object, delay: Duration, ahead: Duration, idle: Duration | None, where: SourceLocation
) -> Watermark:
    """Return a watermark. Raises: DefinitionError: `WATERMARK_INVALID`, `DURATION_MALFORMED`."""
    delay_s, ahead_s, idle_s = duration_s(delay), duration_s(ahead), None if idle is None else duration_s(idle)
    if not isinstance(column, str) or not column or max(delay_s, ahead_s, idle_s or 0) > SPAN_S_MAX:
        raise WATERMARK_INVALID.error(where=where, column=column, delay=delay, ahead=ahead, idle=idle)
    return Watermark(
        column=column, delay_us=round(delay_s * 1_000_000), ahead_us=round(ahead_s * 1_000_000),
        idle_us=None if idle_s is None else round(idle_s * 1_000_000),
    )  # fmt: skip
