"""Flushing: runs actions that may block while the broker is away."""

import contextlib
import threading
from collections.abc import Callable, Sequence

from falkirk.errors import SparkError
from falkirk.errors.spark import JVM_ERRORS


def succeed_within(timeout_s: float, actions: Sequence[Callable[[], None]]) -> bool:
    """Run actions that may block while the broker is away; return whether all have succeeded in time.

    An action that blocks for longer continues in its thread. The caller may end the JVM meanwhile.
    """
    succeeded = threading.Event()

    def run() -> None:
        with contextlib.suppress(SparkError, *JVM_ERRORS):
            for action in actions:
                action()
            succeeded.set()

    threading.Thread(target=run, name="falkirk-flush", daemon=True).start()
    return succeeded.wait(timeout_s)
