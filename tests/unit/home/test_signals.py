"""Signals, in separate processes: pytest handles the signals of a test's own process."""

import subprocess
import sys

_HELD = """
import signal, threading
from falkirk.platform.signals import stop_on_signals

lock, stopped = threading.Lock(), threading.Event()

def stop():
    with lock:
        stopped.set()

stop_on_signals(stop)
with lock:
    signal.raise_signal(signal.{name})
stopped.wait()
"""

_AGAIN = """
import signal
signal.raise_signal(signal.SIGINT)
"""


def _run(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_a_signal_that_comes_while_a_lock_is_held_waits_for_it() -> None:
    assert _run(_HELD.format(name="SIGINT")).returncode == 0
    assert _run(_HELD.format(name="SIGTERM")).returncode == 0


def test_a_second_ctrl_c_gives_up_waiting() -> None:
    ended = _run(_HELD.format(name="SIGINT") + _AGAIN)
    assert "KeyboardInterrupt" in ended.stderr
    assert ended.returncode != 0
