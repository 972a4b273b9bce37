"""Declaring a push source: its options, its address and its token."""

import asyncio
import contextlib
import gc
import json
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

import falkirk as fk
import falkirk.runtime.supervision.gateway
from falkirk.errors import FalkirkError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.secret import Secret
from falkirk.plan.requests import bound
from falkirk.recovery.ownership.credentials import TOKEN_VARIABLE, former_port, token_of
from falkirk.recovery.ownership.folder import Home, open_home
from falkirk.runtime.supervision.gateway import Gateway
from falkirk.runtime.supervision.query import run_here

SCHEMA = "id STRING NOT NULL, word STRING"


def refused(condition: str, error: pytest.ExceptionInfo[FalkirkError]) -> None:
    assert error.value.condition == condition
    assert error.value.where is not None, "the error names the user's line"


@pytest.fixture
def app(home: Path) -> fk.App:
    app = fk.App("shop", home=home)
    app.source("queries", fk.Http("/queries", schema=SCHEMA))
    return app


@pytest.fixture
def opened(app: fk.App) -> Iterator[Home]:
    with open_home(app.home, app.name) as home:
        yield home


@pytest.mark.parametrize(
    ("condition", "options"),
    [
        ("PATH_INVALID", {"path": "queries"}),
        ("PATH_INVALID", {"path": "/queries/"}),
        ("PATH_INVALID", {"path": "/que ries"}),
        ("OPTION_UNKNOWN", {"window": "10 seconds"}),
        ("DURATION_MALFORMED", {"timeout": "soon"}),
        ("DURATION_MALFORMED", {"timeout": 0}),
    ],
)
def test_a_source_that_cant_be_served_is_refused(condition: str, options: dict[str, str]) -> None:
    with pytest.raises(fk.DefinitionError) as error:
        fk.Http(**{"path": "/queries", "schema": SCHEMA} | options)
    refused(condition, error)


@pytest.mark.parametrize("address", ["8088", ":8088", "localhost", "localhost:99999", "http://localhost:80", 8088])
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    with pytest.raises(fk.DefinitionError) as error:
        fk.App("shop", http=address)
    refused("ADDRESS_INVALID", error)


def test_a_token_is_in_no_message() -> None:
    with pytest.raises(fk.DefinitionError) as error:
        fk.App("no name", http_token="not-this-one")
    assert 'http_token="…"' in str(error.value)
    assert "not-this-one" not in str(error.value)
    assert "not-this-one" not in repr(vars(fk.App("shop", http_token="not-this-one")))


def test_addresses_have_a_host_and_a_port() -> None:
    assert fk.App("shop").http == ("127.0.0.1", 0)
    assert fk.App("shop", http="[::1]:8088").http == ("::1", 8088)
    assert fk.App("shop", http="localhost:8088").http == ("localhost", 8088)


def test_each_path_is_one_source(app: fk.App) -> None:
    with pytest.raises(fk.DefinitionError) as error:
        app.source("others", fk.Http("/queries", schema=SCHEMA))
    refused("NAME_TAKEN", error)


def test_a_source_without_a_schema_is_refused() -> None:
    with pytest.raises(fk.DefinitionError) as error:
        fk.App("shop").source("queries", fk.Http("/queries", schema=""))
    refused("SCHEMA_MISSING", error)


def test_its_topic_is_of_one_home_and_keyed_by_the_id(app: fk.App) -> None:
    declared = app.sources["queries"]
    topics = [bound(app, identity).sources["queries"].topic for identity in ("0123abcd", "89abcdef")]
    assert app.sources["queries"] is declared
    assert topics[0].topic == "falkirk.shop.0123abcd.queries"
    topic = topics[1]
    assert (topic.topic, topic.keys, topic.ddl) == ("falkirk.shop.89abcdef.queries", ("id",), SCHEMA)


def test_without_a_coordinator_nobody_takes_requests(app: fk.App) -> None:
    with pytest.raises(fk.DefinitionError) as error:
        run_here(app, Connection.of("localhost:9"))
    refused("GATEWAY_MISSING", error)


def test_a_token_is_declared_or_in_the_environment_or_made_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    made, shown = token_of(tmp_path, None)
    file = tmp_path / "http.token"
    assert len(made) >= 32
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (made, 0o600)
    assert made not in shown
    assert token_of(tmp_path, None)[0] == made
    monkeypatch.setenv(TOKEN_VARIABLE, "of the environment")
    assert token_of(tmp_path, None)[0] == "of the environment"
    assert token_of(tmp_path, Secret("declared"))[0] == "declared"
    monkeypatch.delenv(TOKEN_VARIABLE)
    with pytest.raises(fk.HomeError) as error:
        token_of(tmp_path / "nowhere", None)
    refused("HOME_UNUSABLE", error)


def gateway(app: fk.App, home: Home) -> Gateway:
    return Gateway(app, Connection.of("127.0.0.1:9"), home, lambda text: None)


def test_a_gateway_comes_back_at_the_port_of_the_run_before(app: fk.App, opened: Home) -> None:
    with gateway(app, opened):
        port = former_port(opened.path)
        assert json.loads((opened.path / "http.json").read_text())["url"] == f"http://127.0.0.1:{port}"
        socket.create_connection(("127.0.0.1", port), 5).close()
    with gateway(app, opened):
        assert former_port(opened.path) == port


def test_a_connection_that_a_gateway_accepts_while_it_stops_is_closed(app: fk.App, opened: Home) -> None:
    """Before, it stayed open until Python collected it, and the client waited that long."""
    gc.collect()
    gc.disable()
    try:
        with gateway(app, opened) as accepting, socket.socket() as client:
            client.settimeout(10)
            loop, stopping = accepting._loop, accepting._stopping
            assert loop is not None
            assert stopping is not None
            connected = threading.Event()

            def connect_and_stop() -> None:
                client.connect(("127.0.0.1", former_port(opened.path)))
                loop.call_soon(stopping.set)  # the loop accepts the connection in the same step
                connected.set()

            loop.call_soon_threadsafe(connect_and_stop)
            assert connected.wait(20)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
    finally:
        gc.enable()


def test_a_gateway_that_breaks_later_says_why(app: fk.App, opened: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it any more. Before, its thread ended with an error about the answer that it had given."""
    said, ended = list[str](), list[threading.ExceptHookArgs]()
    monkeypatch.setattr(threading, "excepthook", ended.append)
    broken = threading.Event()

    class Stop(asyncio.Event):
        async def wait(self) -> Literal[True]:
            await asyncio.to_thread(broken.wait)
            raise OSError("the loop is broken")

    monkeypatch.setattr(falkirk.runtime.supervision.gateway.asyncio, "Event", Stop)
    accepting = Gateway(app, Connection.of("127.0.0.1:9"), opened, said.append)
    with accepting:
        thread = accepting._thread
        assert thread is not None
        broken.set()
        thread.join(30)
    assert [type(error.exc_value) for error in ended] == [OSError]
    assert said[-1] == "requests are no longer accepted: OSError: the loop is broken"


def test_a_port_that_somebody_else_has_is_changed_or_refused(app: fk.App, opened: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (opened.path / "http.json").write_text(json.dumps({"port": port}))
        with gateway(app, opened):
            assert former_port(opened.path) not in (0, port)
        app.http = ("127.0.0.1", port)
        with pytest.raises(fk.MachineError) as error:
            gateway(app, opened).__enter__()
        assert error.value.condition == "ADDRESS_TAKEN"


def test_a_torn_address_file_is_of_no_use(tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"port": null}'):
        (tmp_path / "http.json").write_text(text)
        assert former_port(tmp_path) == 0


def test_an_application_without_sources_of_requests_serves_nothing(home: Path) -> None:
    app = fk.App("shop", home=home)
    with open_home(home, "shop") as opened, gateway(app, opened):
        assert not (home / "http.json").exists()
