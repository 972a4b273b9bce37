"""Kills: measures the cost of a kill -9 under a steady load, for any subject."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.child import Child
from benchmarks.probe import Probe, Window
from falkirk.errors import SparkError

C = TypeVar("C", bound=Child)
#: Results that were in flight at the kill arrive within this time.
IN_FLIGHT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """Seconds from the kill until the first new result, and the longest latency of a record."""

    recovery_s: float
    longest_s: float


def kill_under_load(
    running: C,
    start: Callable[[], C],
    probe: Probe,
    rate: float,
    *,
    before_s: float,
    after_s: float,
    await_moment: Callable[[], None] = lambda: None,
) -> tuple[C, Killed]:
    """Kill a subject with -9 under a steady load, start it again at once, and wait until all records are answered.

    Args: before_s, after_s: the time of the load before and after the kill. await_moment: waits for the moment of the
        kill; its time is part of `after_s`.
    Returns: the new subject, and the measurements.
    Raises: SparkError: `BENCH_INCOMPLETE`.
    """
    windows: list[Window] = []
    load = threading.Thread(target=lambda: windows.append(probe.steady(rate, before_s + after_s)), daemon=True)
    load.start()
    time.sleep(before_s)
    await_moment()
    killed_at_s = time.monotonic()
    running.kill()
    again = start()
    try:
        again.await_running()
        load.join()
        (window,) = windows
        answered(window, again.label)
    except BaseException:
        again.kill()
        raise
    at = [sent + s - killed_at_s for sent, s in zip(window.sent_at_s, window.latencies_s, strict=True)]
    return again, Killed(recovery_s=min(a for a in at if a > IN_FLIGHT_S), longest_s=max(window.latencies_s))


def answered(window: Window, label: str) -> Window:
    """Return a window, after checking that all its records were answered. Raises: SparkError: `BENCH_INCOMPLETE`."""
    if window.missing:
        raise incomplete(label, window.missing)
    return window


def incomplete(label: str, missing: int) -> SparkError:
    """Return the error for unanswered records."""
    return SparkError(
        "BENCH_INCOMPLETE",
        f"{label}: {missing:,} records were not answered.",
        hint="Read its output above for the cause.",
    )
