"""Crowds at the gateway: clients with too many requests, or with idle connections, do not affect other clients."""

import asyncio
import json
import logging
import resource
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientConnectionResetError, web

import falkirk as fk
from falkirk.http_source import service as services
from falkirk.http_source.connections import CONNECTIONS_MAX, Connections, QuietLogger, crosses_in_clear
from falkirk.http_source.elapsed import Elapsed
from falkirk.http_source.errors import RequestError
from falkirk.http_source.registry import RequestRegistry, digest_of
from falkirk.http_source.server import client_of, web_application
from falkirk.http_source.service import RequestService
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.credentials import publish_address
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.supervision.gateway import Gateway, _connections_max
from tests.unit.requests.test_push_server import turn

BODY = b'{"id":"a"}'
WEIGHT = 700


class Crowd:
    """A service with clients at several addresses; a sent request is in the topic at once."""

    def __init__(self) -> None:
        self.registry = RequestRegistry()
        self.sent: list[str] = []
        self.service = RequestService(lambda entry, value: self._take(entry.id))
        self.service.open(self.registry, Elapsed(0))

    def _take(self, request_id: str) -> None:
        self.sent.append(request_id)
        self.service.sent({request_id: (0, len(self.sent) - 1)})

    async def ask(self, client: str, request_id: str) -> str:
        """Post a request and disconnect at once; return the condition of the response."""
        try:
            await self.service.ask(request_id, BODY, wants_answer=True, timeout_s=0.0, client=client)
        except RequestError as error:
            return error.condition
        return "answered"

    def answer(self, request_id: str, size: int = 1) -> None:
        self.service.answered([(request_id, b"1" * size, int(time.time() * 1000), (0, 0))])


def test_one_that_fills_the_memory_keeps_nobody_else_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: one client with the token filled the memory of ids, and all clients got 503 for an hour."""
    monkeypatch.setattr(services, "MEMORY_BYTES_MAX", 100 * WEIGHT)

    async def story() -> None:
        crowd = Crowd()
        told = [await crowd.ask("mallory", f"m{i}") for i in range(200)]
        assert told[0] == "RESULT_AWAITED"
        assert told[-1] == "QUOTA_EXCEEDED"
        for client in ("ann", "bob", "carl"):
            assert await crowd.ask(client, client) == "RESULT_AWAITED"
            crowd.answer(client)
            assert await crowd.ask(client, client) == "answered"
        assert crowd.registry.weight_bytes <= 100 * WEIGHT

    asyncio.run(story())


@pytest.mark.parametrize(
    ("addresses", "client"),
    [
        (("127.0.0.1", "127.0.0.2", "127.9.9.9", "::1", "::ffff:127.0.0.3"), "loopback"),
        (("2001:db8::1", "2001:db8::ffff:1"), "2001:db8::/64"),
        (("fe80::1%eth0", "fe80::2%eth1"), "fe80::/64"),
        (("192.0.2.1", "::ffff:192.0.2.1"), "192.0.2.1"),
        (("192.0.2.2",), "192.0.2.2"),
        ((None,), ""),
    ],
)
def test_addresses_that_one_machine_can_choose_are_one_client(addresses: tuple[str | None, ...], client: str) -> None:
    """Before, a client on this machine could ask from each address of 127.0.0.0/8, and leave no room for others."""
    assert {client_of(address) for address in addresses} == {client}


def test_answers_make_room_for_requests_of_the_same_client_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MEMORY_BYTES_MAX", 100 * WEIGHT)

    async def story() -> None:
        crowd = Crowd()
        await crowd.ask("ann", "ann's")
        crowd.answer("ann's", 5 * WEIGHT)
        for i in range(20):
            assert await crowd.ask("mallory", f"m{i}") == "RESULT_AWAITED", (
                "old answers make room for new requests of the client"
            )
            crowd.answer(f"m{i}", 20 * WEIGHT)
        assert await crowd.ask("mallory", "m0") == "answered"
        entry = crowd.registry.find("m0", digest_of(BODY))
        assert entry is not None
        assert (entry.is_evicted, entry.answer) == (True, None)
        assert await crowd.ask("ann", "ann's") == "answered"
        kept = crowd.registry.find("ann's", digest_of(BODY))
        assert kept is not None
        assert kept.answer is not None, "requests of other clients do not evict her answers"
        crowd.answer("m0")
        assert crowd.sent.count("m0") == 1, "an evicted request does not run again"

    asyncio.run(story())


def test_what_is_evicted_is_over_and_forgotten_in_its_time() -> None:
    registry = RequestRegistry()
    registry.add("a", BODY, at_ms=1_000, stamped_ms=1_000, client="ann")
    registry.sent("a", 0, 0)
    registry.answered("a", b"1" * 1_000, 1_000, (0, 0))
    registry.evict("ann", 0)
    assert registry.answered("a", b"another", 1_000, (0, 1)) is None, "the first answer stays"
    registry.accept({0: 1})
    assert registry.silence({0: 1}) == []
    registry.forget(9_000)
    assert (registry.weight_bytes, registry.weight_of("ann")) == (0, 0)
    assert registry.find("a", digest_of(BODY)) is None
    assert not registry._answered


def test_clients_that_wait_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "WAITING_MAX", 20)

    async def story() -> None:
        crowd = Crowd()
        asking = [
            asyncio.ensure_future(
                crowd.service.ask(f"m{i}", BODY, wants_answer=True, timeout_s=30.0, client="mallory")
            )
            for i in range(40)
        ]  # fmt: skip
        while sum(task.done() for task in asking) < 25:
            await turn()
        refused = [task.exception() for task in asking if task.done()]
        assert len(refused) == 25
        assert all(isinstance(e, RequestError) and (e.condition, e.status) == ("QUOTA_EXCEEDED", 429) for e in refused)
        assert await crowd.ask("ann", "ann's") == "RESULT_AWAITED"
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        assert not crowd.service._waits_of

    asyncio.run(story())


def served(story: Callable[[int, list[Any]], Awaitable[None]], most: int) -> None:
    """Run a story with a server of at most `most` connections; the story gets its port and its connections."""

    async def run() -> None:
        busy: set[object] = set()
        runner = web.AppRunner(web_application({}, "secret", busy), access_log=None, logger=QuietLogger())
        await runner.setup()
        assert runner.server is not None
        connections = Connections(runner.server, busy, most)
        listening = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                await story(listening.sockets[0].getsockname()[1], [runner.server, busy])
        finally:
            listening.close()
            await runner.cleanup()

    asyncio.run(run())


async def exchange(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    await writer.drain()
    received = await reader.read(15)
    writer.close()
    return received


def test_whoever_connects_and_says_nothing_keeps_nobody_out() -> None:
    """Regression: there was no limit, so the process ran out of descriptors."""

    async def story(port: int, held: list[Any]) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        asked = await exchange(port, b"POST / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked.startswith(b"HTTP/1.1 401")
        assert len([c for c in held[0].connections if c.transport is not None]) <= 5
        first, _ = silent[0]
        assert await first.read() == b"", "the connection that was idle for longest is closed"
        for _, writer in silent:
            writer.close()

    served(story, most=5)


def test_one_that_is_being_served_is_not_cut_off() -> None:
    async def story(port: int, held: list[Any]) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        while len(held[0].connections) < 3:
            await turn()
        held[1].update(held[0].connections)  # mark all connections as busy
        late, leaving = await asyncio.open_connection("127.0.0.1", port)
        told = await asyncio.gather(late.read(), return_exceptions=True)
        assert told == [b""] or isinstance(told[0], ConnectionError), "there is no room"
        assert all(not c.transport.is_closing() for c in held[0].connections)
        held[1].clear()
        for writer in (leaving, *(writer for _, writer in silent)):
            writer.close()

    served(story, most=3)


def test_what_is_no_http_is_counted_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Regression: each such request wrote a traceback into the operator's log."""
    caplog.set_level(logging.INFO)

    async def story(port: int, held: list[Any]) -> None:
        for i in range(20):
            await exchange(port, b"GET / HTTP/1.1\r\nBad Header %d\x00: x\r\n\r\n" % i)

    served(story, most=5)
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1, [r.getMessage() for r in told]
    assert told[0].exc_info is None


def test_a_client_that_leaves_before_its_answer_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    QuietLogger().exception("Error handling request", exc_info=ClientConnectionResetError("closing"))
    assert not caplog.records


def test_an_error_of_ours_is_still_logged(caplog: pytest.LogCaptureFixture) -> None:
    QuietLogger().exception("Error handling request", exc_info=ValueError("ours"))
    assert caplog.records[0].exc_info is not None


@pytest.mark.parametrize(
    ("host", "clear"),
    [("0.0.0.0", True), ("::", True), ("10.0.0.1", True), ("shop.example", True), ("127.0.0.1", False),
     ("127.8.0.1", False), ("::1", False), ("localhost", False)],
)  # fmt: skip
def test_an_address_that_others_reach_is_warned_of(host: str, clear: bool) -> None:
    assert crosses_in_clear(host) is clear


def gateway(home: Path, http: str) -> tuple[Gateway, list[str]]:
    """Return a gateway that serves no running application, and the list of its messages."""
    app, said = fk.App("shop", http=http, http_token="secret"), list[str]()
    app.source("queries", fk.Http("/queries", schema="id STRING"))
    opened = open_home(home, "shop")
    return Gateway(app, Connection.of("127.0.0.1:1"), opened, said.append), said


def test_a_gateway_that_others_reach_says_that_tokens_cross_in_clear(home: Path) -> None:
    for http, warns in (("127.0.0.1:0", False), ("0.0.0.0:0", True)):
        made, said = gateway(home / http.partition(":")[0], http)
        with made:
            assert [("unencrypted" in line) for line in said if "queries:" not in line] == [True] * warns
            told = json.loads((home / http.partition(":")[0] / "http.json").read_text())
            assert asyncio.run(exchange(told["port"], b"POST / HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(
                b"HTTP/1.1 401"
            )


def test_some_descriptors_are_left_for_all_else() -> None:
    assert _connections_max(resource.RLIM_INFINITY) == CONNECTIONS_MAX
    assert _connections_max(1 << 20) == CONNECTIONS_MAX
    assert _connections_max(1_024) == 512


def test_a_former_port_that_another_process_has_is_told(home: Path) -> None:
    """The other process gets the tokens of clients that still use the port."""
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        port = squatter.getsockname()[1]
        made, said = gateway(home, "127.0.0.1:0")
        publish_address(home, "127.0.0.1", port)
        with made:
            assert [line for line in said if f"port {port} of the former run is in use" in line]
            assert json.loads((home / "http.json").read_text())["port"] != port
