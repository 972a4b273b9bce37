"""Helpers that tests share."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Wait for a condition, failing with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    pause = 0.02
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for: {what}"
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)
