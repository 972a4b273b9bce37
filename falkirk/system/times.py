"""Times: how commands print the time of something, for people."""

from datetime import datetime


def when(at_s: float) -> str:
    """Return a time in the time zone of this machine."""
    return f"{datetime.fromtimestamp(at_s).astimezone():%Y-%m-%d %H:%M:%S %Z}"
