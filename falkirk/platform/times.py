"""Times: how commands print the time of something, and a clock that no setting of the date moves."""

import time
from datetime import datetime


def when(at_s: float) -> str:
    """Return a time in the time zone of this machine."""
    return f"{datetime.fromtimestamp(at_s).astimezone():%Y-%m-%d %H:%M:%S %Z}"


def seconds_since_boot() -> float:
    """Return the time since the machine was started. Unlike the monotonic clock, it counts while it is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
