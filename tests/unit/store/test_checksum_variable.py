"""Clients of an object store are made without checksums of their own, in each thread, and others keep the variable."""

import os
import threading
from types import TracebackType

import pytest

from falkirk.platform import object_clients
from falkirk.platform.object_clients import few_checksums

NAME = "AWS_REQUEST_CHECKSUM_CALCULATION"


class WatchedLock:
    """A lock that tells when somebody asks for it."""

    def __init__(self) -> None:
        self.asked, self._lock = threading.Semaphore(0), threading.Lock()

    def __enter__(self) -> None:
        self.asked.release()
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()


def test_a_thread_does_not_take_the_value_of_another_one_for_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the other one then deleted the variable before the client was made, so each upload failed."""
    monkeypatch.delenv(NAME, raising=False)
    lock = WatchedLock()
    monkeypatch.setattr(object_clients, "_ENVIRONMENT", lock)
    seen, left = list[str | None](), threading.Event()

    def make() -> None:
        with few_checksums():
            lock.asked.release()
            assert left.wait(30)
            seen.append(os.environ.get(NAME))

    other = threading.Thread(target=make)
    with few_checksums():
        assert lock.asked.acquire(timeout=30)
        other.start()
        assert lock.asked.acquire(timeout=30), "it waits, or it is in the block"
    left.set()
    other.join(30)
    assert seen == ["when_required"]
    assert NAME not in os.environ


@pytest.mark.parametrize(("before", "within"), [("when_supported", "when_supported"), ("", "when_required")])
def test_the_variable_of_the_user_stays(monkeypatch: pytest.MonkeyPatch, before: str, within: str) -> None:
    monkeypatch.setenv(NAME, before)
    with few_checksums():
        assert os.environ[NAME] == within
    assert os.environ[NAME] == before
