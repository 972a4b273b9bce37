"""Metrics server: answers Prometheus and probes over HTTP: `/metrics`, `/health` and `/ready`. It only reads.

It runs in threads of the coordinator's process, so it answers while Spark starts, hangs or is replaced.
"""

import contextlib
import errno
import ipaddress
import json
import logging
import socket
import threading
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from falkirk.errors.conditions.host import ADDRESS_TAKEN_METRICS
from falkirk.host.metrics import Metrics

log = logging.getLogger("falkirk")

#: How many requests are served at the same time. Further connections are closed.
REQUESTS_MAX = 16
#: A request must be complete, and its answer read, within this time.
REQUEST_S = 10.0
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class MetricsServer:
    """Serves the metrics of one application. A context manager that stops at its end.

    Args: address: where to listen; port 0: any free port.
    Attributes: url: its address, without a path.
    Raises: MachineError: `ADDRESS_TAKEN`.
    """

    def __init__(self, metrics: Metrics, address: tuple[str, int]) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(metrics)
        host, port = address
        try:
            family, _, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._server = _Server(family, found, partial(_Handler, registry, metrics))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            reason = "it is in use" if taken else error.strerror
            raise ADDRESS_TAKEN_METRICS.error(host=host, port=port, reason=reason) from error
        self.is_open = not ipaddress.ip_address(str(found[0]).partition("%")[0]).is_loopback
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.5,), name="falkirk-metrics", daemon=True
        )

    def __enter__(self) -> "MetricsServer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """A server of a few threads, which closes the connections of slow clients."""

    daemon_threads = True
    block_on_close = False  # requests end by their time limit
    allow_reuse_port = False  # another process must not share the port

    def __init__(self, family: int, address: Any, handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        self.address_family = family
        self._free = threading.BoundedSemaphore(REQUESTS_MAX)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without a question to a name server, which the parent asks for the name of this machine."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, or close it if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection until its time is over."""
        end = threading.Timer(REQUEST_S, _cut, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note an error of a connection; clients may cause any number of them."""
        log.debug("a request for metrics failed", exc_info=True)


def _cut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    error_message_format, error_content_type = "%(code)d\n", "text/plain; charset=utf-8"

    def __init__(self, registry: CollectorRegistry, metrics: Metrics, *connection: Any) -> None:
        self._registry, self._metrics = registry, metrics
        super().__init__(*connection)

    def do_GET(self) -> None:
        """Answer with metrics, or with the state of the application."""
        match self.path.partition("?")[0]:
            case "/metrics":
                encode, kind = choose_encoder(self.headers.get("Accept", ""))
                self._answer(HTTPStatus.OK, kind, encode(self._registry))
            case "/health":
                self._answer_probe(*self._metrics.health())
            case "/ready":
                self._answer_probe(*self._metrics.ready())
            case _:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"/metrics\n/health\n/ready\n")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Refuse to change anything."""
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", b"only GET\n", Allow="GET, HEAD")

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST

    def _answer_probe(self, good: bool, content: dict[str, Any]) -> None:
        status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(status, "application/json", json.dumps(content).encode() + b"\n")

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """Return the name of the server, without the version of Python."""
        return "falkirk"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write no log: Prometheus asks every few seconds."""
