"""Helpers that tests share."""

import threading
import time
from collections.abc import Callable
from typing import Any

from falkirk.errors import FalkirkError


def wait_until(condition: Callable[[], object], timeout_s: float, what: str | Callable[[], str]) -> None:
    """Wait for a condition; after `timeout_s`, fail with `what`: a text, or a function that returns one."""
    deadline = time.monotonic() + timeout_s
    pause_s = 0.02
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for: {what if isinstance(what, str) else what()}"
        threading.Event().wait(pause_s)
        pause_s = min(pause_s * 1.5, 0.5)


def outcome(read: Callable[[], Any]) -> Any:
    """Return the result, or the condition of Falkirk's own error. Any other error fails the test."""
    try:
        return read()
    except FalkirkError as error:
        return error.condition
