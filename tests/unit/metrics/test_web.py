"""The web server: its limits hold against clients that are slow, silent, or too many."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from socketserver import ThreadingMixIn
from typing import Any

import pytest

from falkirk.runtime.supervision import web
from falkirk.runtime.supervision.web import HEAD_BYTES_MAX, Answer, HttpRequest, Site, WebServer
from tests.support import wait_until

LARGE = b"x" * 30_000_000


class Paths(Site):
    """Answers at once at /quick, at /slow when the gate is open, and much at /large."""

    slow = frozenset({"/slow", "/large"})

    def __init__(self) -> None:
        self.gate, self.entered = threading.Event(), threading.Semaphore(0)

    def answer(self, request: HttpRequest) -> Answer | None:
        if request.path == "/quick":
            return Answer(body=b"ok")
        self.entered.release()
        if request.path == "/large":
            return Answer(body=LARGE)
        self.gate.wait(30)
        return Answer(body=b"done")


class Client:
    """Asks a server. Attributes: site: what answers."""

    def __init__(self, server: WebServer, site: Paths) -> None:
        self.site, self._port = site, int(server.url.rpartition(":")[2])

    def connect(self, sent: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        connection.sendall(sent)
        return connection

    def ask(self, path: str) -> int:
        """Return the status; 0: the server closed the connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def answer_to(self, sent: bytes) -> bytes:
        """Return the first line of the answer."""
        with self.connect(sent) as connection:
            return connection.makefile("rb").readline()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Client]]:
    """Start a server with other limits."""
    with contextlib.ExitStack() as stack:

        def start(**limits: float) -> Client:
            for name, value in limits.items():
                monkeypatch.setattr(web, name, value)
            site = Paths()
            stack.callback(site.gate.set)
            return Client(stack.enter_context(WebServer([site], ("127.0.0.1", 0))), site)

        yield start


@pytest.fixture
def ask_later() -> Iterator[Callable[[Client, str], "Future[int]"]]:
    with ThreadPoolExecutor(4) as pool:
        yield lambda client, path: pool.submit(client.ask, path)


def test_the_head_of_a_request_has_a_limit(served: Callable[..., Client]) -> None:
    client = served()
    line = b"GET /quick HTTP/1.1\r\n"
    header = b"X-A: " + b"a" * 993 + b"\r\n"
    assert b" 200 " in client.answer_to(line + 16 * header + b"\r\n")
    assert b" 431 " in client.answer_to(line + 17 * header + b"\r\n")
    assert b" 431 " in client.answer_to(line + b"X-A: " + b"a" * HEAD_BYTES_MAX + b"\r\n\r\n")
    assert b" 431 " in client.answer_to(b"GET /quick?" + b"a" * HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n")


def test_connections_that_ask_nothing_keep_nobody_away(served: Callable[..., Client]) -> None:
    client = served(REQUESTS_MAX=3)
    idle = [client.connect(b"POST /quick HTTP/1.1\r\nContent-Length: 5\r\n") for _ in range(3)]
    assert client.ask("/quick") == 200
    assert idle[0].recv(9) == b"", "the oldest one is cut"
    idle[2].sendall(b"\r\n")
    idle[2].sendall(b"12345")
    assert b" 200 " in idle[2].makefile("rb").readline()
    for each in idle:
        each.close()


def test_a_request_in_progress_keeps_its_place(
    served: Callable[..., Client], ask_later: Callable[[Client, str], "Future[int]"]
) -> None:
    client = served(REQUESTS_MAX=2)
    slow = [ask_later(client, "/slow") for _ in range(2)]
    for _ in slow:
        client.site.entered.acquire(timeout=30)
    assert client.ask("/quick") == 0
    client.site.gate.set()
    assert [each.result() for each in slow] == [200, 200]


def test_slow_requests_are_few_at_a_time(
    served: Callable[..., Client], ask_later: Callable[[Client, str], "Future[int]"]
) -> None:
    client = served(SLOW_MAX=1)
    slow = ask_later(client, "/slow")
    client.site.entered.acquire(timeout=30)
    refused = ask_later(client, "/slow")
    wait_until(refused.done, 30, "the refusal of a second one")
    assert refused.result() == 503
    assert client.ask("/quick") == 200
    client.site.gate.set()
    assert slow.result() == 200
    wait_until(lambda: client.ask("/slow") == 200, 30, "the place of the first one")


def test_a_client_that_does_not_read_a_slow_answer_is_cut_off(served: Callable[..., Client]) -> None:
    client = served(SLOW_MAX=1, REQUEST_S=0.3)
    client.site.gate.set()
    with client.connect(b"GET /large HTTP/1.1\r\n\r\n"):
        client.site.entered.acquire(timeout=30)
        wait_until(lambda: client.ask("/slow") == 200, 10, "the end of the answer that nobody reads")


def test_a_connection_without_a_thread_gives_its_place_back(
    served: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    start, failures = ThreadingMixIn.process_request, iter(range(3))

    def start_or_fail(server: Any, *connection: Any) -> None:
        if next(failures, None) is not None:
            raise RuntimeError("can't start new thread")
        start(server, *connection)

    monkeypatch.setattr(ThreadingMixIn, "process_request", start_or_fail)
    client = served(REQUESTS_MAX=2)
    assert [client.ask("/quick") for _ in range(4)] == [0, 0, 0, 200]


def test_the_address_of_a_loopback_name_is_its_number() -> None:
    """A browser may resolve the name to another address of this machine, where anyone may listen."""
    with WebServer([Paths()], ("localhost", 0)) as server:
        assert not server.is_open
        assert server.url.startswith(("http://127.0.0.1:", "http://[::1]:"))
    with WebServer([Paths()], ("0.0.0.0", 0)) as server:
        assert server.url.startswith("http://0.0.0.0:")
