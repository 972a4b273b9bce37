"""Web server: serves the pages of a coordinator over HTTP in a few threads: metrics and probes, and the dashboard.

It runs beside the coordinator's loop, so it answers while Spark starts, hangs or is replaced. It has limits: of
requests at a time, of the time of a request, and of the size of a head and a body.
"""

import contextlib
import errno
import http.client
import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from falkirk.declare.address import host_in_url

log = logging.getLogger("falkirk")

#: How many requests are served at the same time, and how many of them at slow paths. A further connection replaces the
#: oldest one whose request is incomplete. If all are complete, it is closed.
REQUESTS_MAX, SLOW_MAX = 24, 4
#: A request must be complete, and its answer read, within this time. For a stream, the limit applies to each part.
REQUEST_S = 10.0
#: The request line and the headers together, and a body, may have this many bytes.
HEAD_BYTES_MAX, _BODY_BYTES_MAX = 16_384, 65_536
#: A connection that is replaced must end within this time. It is shut down, so its thread has no work left.
_REPLACE_S = 1.0
TEXT = "text/plain; charset=utf-8"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request. Args: headers: by name in lower case. query: the first value of each field. body: of a POST."""

    method: str
    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def reads(self) -> bool:
        """Whether it only reads."""
        return self.method in ("GET", "HEAD")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer. Args: body: all of it, or the parts of a stream that lasts."""

    status: int = HTTPStatus.OK
    kind: str = TEXT
    body: bytes | Iterable[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Site:
    """Some pages of a server.

    Attributes: slow: the paths whose answers may take longer than other requests. public: a noun for the content that
        needs no token; empty: everything needs one.
    """

    slow: frozenset[str] = frozenset()
    public: str = ""

    def paths(self) -> tuple[str, ...]:
        """Return the paths that a visitor may want, for the answer to an unknown path."""
        return ()

    def look(self) -> None:
        """Do work that recurs. The server's thread calls it about twice a second."""

    def answer(self, request: HttpRequest) -> Answer | None:
        """Return the answer; None: this site has no such path. Called in the thread of the request."""
        return None


class WebServer:
    """Serves sites at one address. A context manager that stops at its end.

    Args: sites: the first one that has a path answers. address: where to listen; port 0: any free port.
    Attributes: url: its address, without a path. For a loopback name it has the number: browsers may resolve the name
        to another address, where another process listens. is_open: other machines may reach it.
    Raises: OSError: the address can't be used.
    """

    def __init__(self, sites: Sequence[Site], address: tuple[str, int]) -> None:
        host, port = address
        family, _, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._server = _Server(family, found, partial(_Handler, tuple(sites)), [site.look for site in sites])
        self.is_open = not ipaddress.ip_address(str(found[0]).partition("%")[0]).is_loopback
        shown = host if self.is_open else str(found[0])
        self.url = f"http://{host_in_url(shown)}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.5,), name="falkirk-web", daemon=True)

    def __enter__(self) -> "WebServer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def why_not(error: OSError) -> str:
    """Return why an address can't be used."""
    return "it is in use" if error.errno == errno.EADDRINUSE else str(error.strerror or error)


class _Server(ThreadingHTTPServer):
    """A server of a few threads."""

    daemon_threads = True
    block_on_close = False  # requests end by their time limit
    allow_reuse_port = False  # another process must not share the port

    def __init__(
        self, family: int, address: Any, handler: Callable[..., BaseHTTPRequestHandler],
        looks: Sequence[Callable[[], None]],
    ) -> None:  # fmt: skip
        self.address_family, self._looks = family, looks
        self._free, self.slow = threading.BoundedSemaphore(REQUESTS_MAX), threading.BoundedSemaphore(SLOW_MAX)
        #: The connections whose requests are incomplete, oldest first.
        self._incomplete: dict[socket.socket, None] = {}
        self._changing = threading.Lock()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without a question to a name server, which the parent asks for the name of this machine."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def service_actions(self) -> None:
        """See `Site.look`. The parent calls this between requests, and after each of its polls."""
        for look in self._looks:
            look()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread. If there are too many, it replaces one that has not asked yet, or is closed.

        So clients that connect and ask nothing can't keep probes away.
        """
        if not self._free.acquire(blocking=False) and not self._replace_oldest():
            self.shutdown_request(request)
            return
        with self._changing:
            self._incomplete[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can start
            self.note_complete(request)
            self._free.release()
            raise

    def _replace_oldest(self) -> bool:
        """Cut the oldest connection whose request is incomplete, and take its place; return whether there is one."""
        with self._changing:
            oldest = next(iter(self._incomplete), None)
            if oldest is None:
                return False
            del self._incomplete[oldest]
            _cut(oldest)
        return self._free.acquire(timeout=_REPLACE_S)

    def note_complete(self, request: socket.socket) -> None:
        """Note that the request of a connection is complete: from now on it keeps its place."""
        with self._changing:
            self._incomplete.pop(request, None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.note_complete(request)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note an error of a connection; clients may cause any number of them."""
        log.debug("a request failed", exc_info=True)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Head:
    """The head of a request, which has a limit of bytes."""

    def __init__(self, whole: Any, left: int) -> None:
        self._whole, self._left = whole, left

    def readline(self, most: int) -> bytes:
        """Return the next line. Raises: LineTooLong: the head is too long; the parser of the head answers 431."""
        line: bytes = self._whole.readline(min(most, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise http.client.LineTooLong("head")
        return line


class _Handler(BaseHTTPRequestHandler):
    """Answers one request, and closes the connections of slow clients."""

    server: _Server
    raw_requestline: bytes
    error_message_format, error_content_type = "%(code)d\n", TEXT

    def __init__(self, sites: tuple[Site, ...], *connection: Any) -> None:
        self._sites = sites
        super().__init__(*connection)

    def setup(self) -> None:
        """Give the connection a limit of time."""
        super().setup()
        self._end = threading.Timer(REQUEST_S, _cut, (self.connection,))
        self._end.daemon = True
        self._end.start()

    def finish(self) -> None:
        """Drop the limit."""
        self._end.cancel()
        super().finish()

    def parse_request(self) -> bool:
        """Parse the head, or answer with an error; return whether there is a request."""
        whole, left = self.rfile, HEAD_BYTES_MAX - len(self.raw_requestline)
        if left < 0:
            self.requestline, self.request_version, self.command = "", "", ""
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return False
        self.rfile = _Head(whole, left)  # type: ignore[assignment]  # the parser reads only lines
        try:
            return super().parse_request()
        finally:
            self.rfile = whole

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with a status, and with nothing from the request, which messages of the parser repeat."""
        super().send_error(code)

    def do_GET(self) -> None:
        """Answer with the response of the first site that has the path."""
        try:
            parts = urlsplit(self.path)
            query = dict(reversed(parse_qsl(parts.query, max_num_fields=20)))
        except ValueError:
            self._answer(Answer(status=HTTPStatus.BAD_REQUEST, body=b"the address is malformed\n"))
            return
        body = self._body() if self.command not in ("GET", "HEAD") else b""
        if body is None:
            self._answer(Answer(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE, body=b"the body is too large\n"))
            return
        request = HttpRequest(
            method=self.command,
            path=parts.path,
            headers={name.lower(): value for name, value in self.headers.items()},
            query=query,
            body=body,
        )
        self.server.note_complete(self.connection)
        if not any(request.path in site.slow for site in self._sites):
            self._answer(self._found(request))
        elif self.server.slow.acquire(blocking=False):
            try:
                self._end.cancel()
                self._answer(self._found(request))
            finally:
                self.server.slow.release()
        else:
            busy = b'{"message": "too many slow requests are in progress: ask again"}\n'
            self._answer(Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, kind="application/json", body=busy))

    def _found(self, request: HttpRequest) -> Answer:
        """Return the answer of the first site that knows the path."""
        found = next((a for site in self._sites if (a := site.answer(request)) is not None), None)
        if found is not None:
            return found
        known = "\n".join(path for site in self._sites for path in site.paths())
        return Answer(status=HTTPStatus.NOT_FOUND, body=f"{known}\n".encode())

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET

    def _body(self) -> bytes | None:
        """Return the body; None: it is too large, or its length is unknown."""
        length = self.headers.get("Content-Length", "0")
        if not (length.isascii() and length.isdigit() and int(length[:9]) <= _BODY_BYTES_MAX) or len(length) > 9:
            return None
        return self.rfile.read(int(length))

    def _answer(self, answer: Answer) -> None:
        close = getattr(answer.body, "close", lambda: None)
        try:
            self._write(answer)
        finally:
            close()  # also for a stream that has not begun, because its reader has disconnected

    def _write(self, answer: Answer) -> None:
        whole = answer.body if isinstance(answer.body, bytes) else None
        length = {} if whole is None else {"Content-Length": str(len(whole))}
        self.connection.settimeout(REQUEST_S)  # a client that reads nothing for a while is disconnected
        self.send_response(answer.status)
        for name, value in {"Content-Type": answer.kind, **length, **_HEADERS, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if isinstance(answer.body, bytes):
            self.wfile.write(answer.body)
            return
        self._end.cancel()
        for part in answer.body:
            self.wfile.write(part)

    def version_string(self) -> str:
        """Return the name of the server, without the version of Python."""
        return "falkirk"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write no log: Prometheus asks every few seconds."""
