"""Deadlines: several waits, one after the other, end at the same time."""

import time


def left_s(limit_s: float, until_s: float) -> float:
    """Return how long a wait may last, in seconds: at most `limit_s`, and not beyond a monotonic time."""
    return max(0.0, min(limit_s, until_s - time.monotonic()))
