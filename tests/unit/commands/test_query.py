"""A query in this process ends after any failure, so that no caller waits forever."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors.conditions.ownership import HOME_COPIED
from falkirk.reading import name_after
from falkirk.runtime.supervision.counts import KeptCounts
from falkirk.runtime.supervision.query import Query


class Host:
    """A host of live regions that fails."""

    def __init__(self, *, stops: bool) -> None:
        self._stops = stops
        self.flushed = False

    def start(self, on_progress: Callable[[], None], *, force: bool = False) -> None:
        on_progress()

    def wait(self, timeout_s: float, stopping: threading.Event) -> bool:
        return stopping.wait(timeout_s)

    def poll(self) -> None:
        raise ConnectionError("the JVM is gone")

    def note_end(self, error: Exception) -> None: ...

    def stop(self) -> None:
        if not self._stops:
            raise ConnectionError("the JVM is still gone")

    def flush(self, timeout_s: float) -> bool:
        self.flushed = True
        return True


class Home:
    """A home that records the calls of its methods."""

    application = "shop"

    def __init__(self) -> None:
        self.done: list[str] = []

    def close(self) -> None:
        self.done.append("close")

    def forget_processes(self) -> None:
        self.done.append("forget")


class LateClaim:
    """The claim of an owner that a copy of its home has replaced while the host starts."""

    def check(self) -> None:
        raise HOME_COPIED.error(where="home", by="another", mark_file="copied")


def test_another_owner_is_noticed_while_the_host_starts(tmp_path: Path) -> None:
    """The thread that watches begins after the start, which may take longer than the other owner waits."""
    home: Any = Home()
    host: Any = Host(stops=True)
    claim: Any = LateClaim()
    with pytest.raises(fk.HomeError) as caught:
        Query(host, home, KeptCounts(tmp_path), claim)
    assert caught.value.condition == "HOME_COPIED"


@pytest.mark.parametrize(("stops", "done"), [(True, ["forget", "close"]), (False, ["close"])])
def test_a_lost_jvm_ends_the_query_and_gives_the_home_back(stops: bool, done: list[str], tmp_path: Path) -> None:
    home: Any = Home()
    host: Any = Host(stops=stops)
    query = Query(host, home, KeptCounts(tmp_path), poll_s=0.001)
    with pytest.raises(fk.SparkError) as caught:
        query.awaitTermination(30)
    assert caught.value.condition == "HOST_FAILED"
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert not query.isActive
    assert home.done == done
    query.stop()


def test_an_application_is_named_after_its_topic_whatever_that_is_called() -> None:
    assert name_after("counts") == "counts"
    long = ["x" * 249, "x" * 248, "a.b", "a_b", "...", "ü", "-x"]
    names = [name_after(topic) for topic in long]
    assert len(set(names)) == len(names)
    for name in names:
        fk.App(name)
