"""A host flushes its producers before it ends, and ends even if the JVM fails meanwhile."""

import threading

import pytest
from py4j.protocol import Py4JNetworkError

from falkirk.runtime.supervision.flushing import succeed_within
from tests.support import wait_until


@pytest.mark.parametrize("error", [ConnectionRefusedError(), ConnectionResetError(), Py4JNetworkError()])
def test_a_jvm_that_dies_before_or_during_a_flush_is_not_flushed(error: Exception) -> None:
    def flush() -> None:
        raise error

    assert not succeed_within(0.1, [flush])


def test_a_flush_that_outlasts_its_time_ends_quietly_when_the_jvm_is_stopped() -> None:
    """pytest fails this test if the thread ends with an exception."""
    stopped = threading.Event()

    def flush() -> None:
        stopped.wait()
        raise ConnectionRefusedError

    assert not succeed_within(0.01, [flush])
    stopped.set()
    wait_until(lambda: "falkirk-flush" not in {t.name for t in threading.enumerate()}, 10, "the thread to end")


def test_all_flushed_in_time() -> None:
    assert succeed_within(10, [lambda: None, lambda: None])
