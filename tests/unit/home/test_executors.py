"""Executors on other machines: how long a start waits for them, and its error for one that can't end itself."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from falkirk.errors import HomeError, SparkError
from falkirk.recovery.ownership import executors
from falkirk.recovery.ownership.executors import Executors, Reach, await_executors, probe
from tests.support import wait_until

SILENCE_S, EXIT_S = 0.6, 0.2


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "EXIT_S", EXIT_S)
    monkeypatch.setattr(executors, "CLOSED_S", 0.0)
    monkeypatch.setattr(executors, "_POLL_S", 0.02)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def address(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def closed() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return address(server)


def written(home: Path, *addresses: str, silence_s: float = SILENCE_S, complete: bool = False) -> Path:
    content = {"application": "app-1", "silence_s": silence_s, "addresses": addresses, "complete": complete}
    (home / "executors.json").write_text(json.dumps(content))
    return home


def waited_s(home: Path, **arguments: Any) -> float:
    began_s = time.monotonic()
    await_executors(home, **arguments)
    return time.monotonic() - began_s


def is_recorded(home: Path) -> bool:
    return (home / "executors.json").exists()


def test_without_executors_elsewhere_nobody_waits(tmp_path: Path) -> None:
    await_executors(tmp_path)


def test_of_a_driver_that_was_killed_the_time_passes_since_it_may_have_had_others(tmp_path: Path) -> None:
    assert waited_s(written(tmp_path, closed())) >= SILENCE_S + EXIT_S
    assert not is_recorded(tmp_path)


def test_when_all_are_known_and_have_ended_the_time_need_not_pass(tmp_path: Path) -> None:
    assert waited_s(written(tmp_path, closed(), closed(), silence_s=60.0, complete=True)) < 30
    assert not is_recorded(tmp_path)


def test_one_that_can_not_be_asked_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "probe", lambda _: Reach.UNKNOWN)
    assert waited_s(written(tmp_path, "10.0.0.9:4040", complete=True)) >= SILENCE_S + EXIT_S
    assert not is_recorded(tmp_path)


@pytest.mark.parametrize("complete", [True, False])
def test_one_that_still_accepts_connections_keeps_all_from_starting(
    tmp_path: Path, listening: socket.socket, *, complete: bool
) -> None:
    home = written(tmp_path, address(listening), closed(), complete=complete)
    with pytest.raises(HomeError) as found:
        await_executors(home)
    assert found.value.condition == "LEFTOVER_ALIVE"
    assert found.value.parameters["executors"] == [address(listening)]
    assert is_recorded(home)
    listening.close()
    await_executors(home)
    assert not is_recorded(home)


def test_a_stopped_process_is_seen(tmp_path: Path) -> None:
    program = (
        "import signal, socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
        "signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        where = f"127.0.0.1:{int(child.stdout.readline())}"
        os.kill(child.pid, signal.SIGSTOP)
        assert probe(where) is Reach.ACCEPTED
        with pytest.raises(HomeError) as found:
            await_executors(written(tmp_path, where))
        assert found.value.parameters["executors"] == [where]
        child.kill()
    wait_until(lambda: probe(where) is Reach.REFUSED, 10, "the port to be closed")
    await_executors(tmp_path)


def test_whoever_is_asked_to_stop_leaves_it_to_the_next_start(tmp_path: Path) -> None:
    stopping = threading.Event()
    threading.Timer(0.2, stopping.set).start()
    assert waited_s(written(tmp_path, silence_s=60.0), is_stopping=stopping.is_set) < 30
    assert is_recorded(tmp_path)


def test_executors_that_go_on_living_with_their_session_are_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(SparkError) as found:
        await_executors(written(tmp_path, silence_s=60.0), application="app-1")
    assert (found.value.condition, found.value.parameters["application"]) == ("SESSION_LOST", "app-1")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"application": "a", "silence_s": "x", "addresses": []}'])
def test_what_can_not_be_read_is_no_leave_to_start(tmp_path: Path, content: str) -> None:
    (tmp_path / "executors.json").write_text(content)
    with pytest.raises(HomeError) as found:
        await_executors(tmp_path)
    assert found.value.condition == "HOME_DAMAGED"


class Seq(list[Any]):
    """The part of a Scala sequence that is used."""

    def size(self) -> int:
        return len(self)

    def apply(self, i: int) -> Any:
        return self[i]


class Spark:
    """The part of a Spark session that is used."""

    def __init__(self, master: str, settings: dict[str, int]) -> None:
        self.sparkContext = self._jsc = self
        self.master, self.applicationId, self._settings = master, "app-1", settings
        self.executors = {"driver": "10.0.0.1:1"}
        self.told = 0

    def sc(self) -> "Spark":
        return self

    statusStore = conf = listenerBus = sc

    def waitUntilEmpty(self, _limit_ms: int) -> None:
        self.told += 1

    def executorList(self, _active: bool) -> Seq:
        return Seq(Summary(name, at) for name, at in self.executors.items())

    def getTimeAsMs(self, name: str, _default: str) -> int:
        return self._settings.get(name, 10_000)

    def getInt(self, name: str, default: int) -> int:
        return self._settings.get(name, default)


class Summary:
    """Spark's description of an executor."""

    def __init__(self, name: str, at: str) -> None:
        self.id, self.hostPort = lambda: name, lambda: at


def read(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "executors.json").read_text())
    return found


def test_what_is_recorded_of_them(tmp_path: Path) -> None:
    settings = {"spark.executor.heartbeatInterval": 2000, "spark.executor.heartbeat.maxFailures": 10}
    spark: Any = Spark("spark://10.0.0.1:7077", settings)
    recorded = Executors(spark, tmp_path)
    recorded.record()
    assert read(tmp_path) == {"application": "app-1", "silence_s": 22.0, "addresses": [], "complete": False}
    spark.executors |= {"0": "10.0.0.2:40", "1": "10.0.0.3"}  # the second has not reported its port yet
    recorded.record()
    assert read(tmp_path)["addresses"] == ["10.0.0.2:40"]
    spark.executors = {"1": "10.0.0.3:41"}  # Spark forgets executors that it lost long ago
    assert spark.told == 0
    recorded.record(complete=True)
    assert spark.told == 1
    assert (read(tmp_path)["addresses"], read(tmp_path)["complete"]) == (["10.0.0.2:40", "10.0.0.3:41"], True)


def test_by_sparks_own_settings_an_executor_lives_long(tmp_path: Path) -> None:
    spark: Any = Spark("yarn", {})
    Executors(spark, tmp_path).record()
    assert read(tmp_path)["silence_s"] == 610.0


@pytest.mark.parametrize("master", ["local[4]", "local-cluster[2,1,1024]"])
def test_executors_on_this_machine_are_killed_instead(tmp_path: Path, master: str) -> None:
    spark: Any = Spark(master, {})
    Executors(spark, tmp_path).record(complete=True)
    assert not is_recorded(tmp_path)
