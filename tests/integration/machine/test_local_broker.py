"""The embedded broker: used again while it lives, back with its data after a crash, gone when stopped."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from falkirk.errors import MachineError
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.broker import Broker
from falkirk.user_tools.commands.machine import doctor, kafka
from tests.support import suspend, wait_until


def start(folder: Path, **options: Any) -> Broker:
    """Start a broker whose JVM takes half the CPU time for its start that a user's takes."""
    return local_broker.start(folder, java_options=local_broker.SHORT_RUN, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose broker is stopped when the tests of this module are over."""
    folder = tmp_path_factory.mktemp("own")
    yield folder
    local_broker.stop(folder)


def topics(broker: Broker) -> set[str]:
    """Return the topics of a broker."""
    return set(client(broker).list_topics(timeout=10).topics)


def client(broker: Broker) -> AdminClient:
    """Return a client that keeps quiet when its broker is killed."""
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0, "error_cb": lambda _: None})


def kill(broker: Broker) -> None:
    """Kill a broker and wait until its process has ended."""
    os.kill(broker.pid, signal.SIGKILL)
    wait_until(lambda: broker.process() is None, 10, "the broker is dead")


def test_a_broker_through_its_life(folder: Path) -> None:
    assert local_broker.status(folder) is None
    first = local_broker.start(folder)  # as a user's
    assert local_broker.status(folder) == first
    assert os.getsid(first.pid) == first.pid, "Ctrl-C on our terminal must not reach it"
    admin = client(first)
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(10)
    assert local_broker.start(folder) == first, "a live one is used again"

    kill(first)
    assert local_broker.status(folder) is None
    second = start(folder)
    assert (second.pid != first.pid, second.bootstrap) == (True, first.bootstrap)
    assert "kept" in topics(second)

    assert local_broker.stop(folder)
    assert not local_broker.stop(folder)
    with socket.create_server(("127.0.0.1", second.port)):
        third = start(folder)
    assert third.port != second.port, "someone else has its port now"
    assert "kept" in topics(third)


@pytest.mark.parametrize("is_taken", [False, True])
def test_the_broker_of_a_user_has_the_usual_port_unless_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_taken: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        usual = other.getsockname()[1]
        asked: list[int] = []

        def launch(folder: Path, ports: tuple[int, int], *_: Any) -> Broker:
            asked.append(ports[0])
            return Broker(folder=str(folder), pid=1, began="", port=ports[0], controller_port=ports[1])

        monkeypatch.setattr(local_broker, "_launch", launch)
        monkeypatch.setattr(local_broker, "USUAL_PORT", usual)
        monkeypatch.setattr(local_broker, "default_folder", lambda: tmp_path)
        if not is_taken:
            other.close()
        local_broker.start()
        local_broker.start(tmp_path / "of a test")
    assert (asked[0] == usual) is not is_taken
    assert asked[1] != usual


def test_a_broker_that_its_starter_could_not_record_is_replaced(folder: Path) -> None:
    unrecorded = start(folder)
    (folder / "broker.json").unlink()
    broker = start(folder)
    assert not psutil.pid_exists(unrecorded.pid) or unrecorded.process() is None
    assert broker.answers()


def test_a_recorded_pid_that_belongs_to_another_process_now_is_no_broker(tmp_path: Path) -> None:
    record = {"folder": str(tmp_path), "pid": os.getpid(), "began": "1/1", "port": 1, "controller_port": 2}
    (tmp_path / "broker.json").write_text(json.dumps(record))
    assert local_broker.status(tmp_path) is None
    assert not local_broker.stop(tmp_path)


def test_a_setting_that_kafka_refuses_is_named_from_its_log(tmp_path: Path) -> None:
    with pytest.raises(MachineError) as caught:
        start(tmp_path, settings={"num.partitions": "many"})
    assert caught.value.condition == "BROKER_NOT_STARTED"
    assert "num.partitions" in str(caught.value)
    assert local_broker.status(tmp_path) is None


def test_a_broker_that_is_too_slow_stays_the_only_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped (SIGSTOP) once it has one of its ports. Before, the port counted as somebody else's, and a second
    broker was started beside it, which failed at the lock of the data."""
    local_broker.stop(folder)
    started = list[psutil.Process]()
    real = subprocess.Popen

    def start_and_suspend(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        process = real(command, **options)
        if "kafka.Kafka" not in command:  # it makes the folder of the data
            return process
        broker = psutil.Process(process.pid)
        started.append(broker)

        def listens() -> bool:
            return any(c.status == psutil.CONN_LISTEN for c in broker.net_connections("tcp"))

        wait_until(listens, 60, "a port of the broker")
        suspend(broker)
        return process

    monkeypatch.setattr(local_broker.subprocess, "Popen", start_and_suspend)
    try:
        for _ in range(2):  # the next start waits for it again
            with pytest.raises(MachineError) as slow:
                start(folder, timeout_s=1.0)
            assert slow.value.condition == "BROKER_NOT_STARTED"
            assert "does not answer" in slow.value.message
        assert len(started) == 1
    finally:
        for broker in started:
            broker.resume()
    assert start(folder).pid == started[0].pid


def test_commands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = start(folder)
    monkeypatch.setattr(local_broker, "default_folder", lambda: folder)

    def falkirk(command: object, *arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(command, arguments)  # type: ignore[arg-type]
        return done.exit_code, done.output

    assert falkirk(kafka, "start") == (0, f"broker at {running.bootstrap} (pid {running.pid}, data in {folder})\n")
    assert falkirk(kafka, "status") == (0, f"{running.bootstrap} (pid {running.pid}) answers\n")
    code, text = falkirk(doctor, "--kafka", running.bootstrap)
    assert code == 0, text
    assert f"broker: {running.bootstrap} answers" in text
    assert falkirk(kafka, "stop") == (0, "stopped\n")
    assert falkirk(kafka, "stop") == (0, "the broker was not running\n")
    assert falkirk(kafka, "status") == (1, "not running\n")
    code, text = falkirk(doctor, "--kafka", running.bootstrap)
    assert code == 1, text
    assert subprocess.run(["ps", "-p", str(running.pid)], capture_output=True, check=False).returncode == 1
