"""An object store that accepts connections and answers nothing: a request ends before its host counts as silent."""

import os
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from falkirk.errors import StoreError
from falkirk.platform import object_clients, object_data
from falkirk.platform.object_data import ObjectData, data_at
from falkirk.runtime.supervision.settings import SILENT_S
from tests.clock import MovedClock
from tests.support import outcome


class Hanging:
    """A client of such a store. Attributes: tries: how often it was asked."""

    def __init__(self, clock: MovedClock, fails_after_s: float) -> None:
        self._clock, self._fails_after_s, self.tries = clock, fails_after_s, 0

    def _hang(self, *_: object) -> Any:
        self.tries += 1
        self._clock.advance(self._fails_after_s)
        raise OSError("AWS Error NETWORK_CONNECTION: timed out")

    get_file_info = delete_file = open_input_file = open_input_stream = open_output_stream = _hang


def hanging(monkeypatch: pytest.MonkeyPatch, after_s: float) -> tuple[ObjectData, Hanging, MovedClock]:
    clock = MovedClock()
    monkeypatch.setattr(object_data, "time", clock)
    system = Hanging(clock, after_s)
    return ObjectData(cast(Any, system), "s3a", "shop/home"), system, clock


def test_a_request_that_hangs_ends_long_before_its_host_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else five hosts in a row are killed as silent, and the application ends, although it should wait."""
    data, system, clock = hanging(monkeypatch, object_clients.OBJECT_ANSWER_S)
    began_s = clock.monotonic()
    for request in (data.children, data.listed, data.delete, data.read_text, data.remove):
        assert outcome(cast(Any, request)) == "DATA_AWAY"
        assert clock.monotonic() - began_s < 0.7 * SILENT_S
        began_s = clock.monotonic()
    assert system.tries == 10, "each was tried again"


def test_requests_that_are_slow_and_then_fail_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    data, system, _ = hanging(monkeypatch, object_clients.TRIES_S)
    assert outcome(data.children) == "DATA_AWAY"
    assert system.tries == 1


def test_a_store_that_refuses_is_asked_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    data, system, _ = hanging(monkeypatch, 0.0)
    assert outcome(data.children) == "DATA_AWAY"
    assert system.tries == 3


def test_a_copy_that_hangs_is_not_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks for each part several times. The main thread of a host reads files, and other threads send them:
    an upload without an answer takes twice as long."""
    data, system, clock = hanging(monkeypatch, object_clients.PART_TRIES * object_clients.OBJECT_ANSWER_S)
    (tmp_path / "state").write_bytes(b"1")
    assert outcome(lambda: data.copy_from(tmp_path / "state")) == "DATA_AWAY"
    assert system.tries == 1
    began_s = clock.monotonic()
    assert outcome(lambda: data.copy_to(tmp_path / "copy", 1, 1)) == "DATA_AWAY"
    assert system.tries == 2
    assert clock.monotonic() - began_s < 0.7 * SILENT_S


def test_the_client_does_not_repeat_what_falkirk_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow's client repeats requests itself, and its repetitions multiply those of Falkirk."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        for name, value in {
            "AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(object_clients, "OBJECT_ANSWER_S", 0.1)
        monkeypatch.setattr(object_data, "_PAUSES_S", ())
        with pytest.raises(StoreError) as away:
            data_at("s3a://shop/home").children()
        assert away.value.condition == "DATA_AWAY"
        connections = 0
        server.setblocking(False)
        while True:
            try:
                server.accept()[0].close()
            except BlockingIOError:
                break
            connections += 1
    assert connections == 1
