"""A collector of OpenTelemetry: a server that takes in spans over HTTP, in protobuf, and keeps them."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector(ThreadingHTTPServer):
    """A collector. Attributes: requests: of exporters. hangs: it reads requests, and answers none."""

    daemon_threads, block_on_close = True, False

    def __init__(self, *, hangs: bool = False, code: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Taken)
        self.requests: list[ExportTraceServiceRequest] = []
        self.hangs, self.code, self.ended = hangs, code, threading.Event()

    @property
    def endpoint(self) -> str:
        """The value of OpenTelemetry's variable."""
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self, name: str = "") -> list[Span]:
        """Return the spans with a name by their ends, or all."""
        groups = [group for request in [*self.requests] for group in request.resource_spans]
        found = [span for group in groups for scope in group.scope_spans for span in scope.spans]
        return sorted((s for s in found if name in ("", s.name)), key=lambda span: span.end_time_unix_nano)

    def steps(self, span: Span) -> list[str]:
        """Return the names of the steps of a span, by their begins."""
        found = [s for s in self.spans() if s.parent_span_id == span.span_id and s.trace_id == span.trace_id]
        return [s.name.removeprefix("falkirk.") for s in sorted(found, key=lambda s: s.start_time_unix_nano)]

    def services(self) -> set[str]:
        """Return the names of the services that have sent spans."""
        groups = [group for request in self.requests for group in request.resource_spans]
        return {attributes(group.resource)["service.name"] for group in groups}


class _Taken(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        """Keep the spans of a request."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        plain = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        self.server.requests.append(ExportTraceServiceRequest.FromString(plain))
        if self.server.hangs:
            self.server.ended.wait(60)
            return
        self.send_response(self.server.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def attributes(of: Any) -> dict[str, Any]:
    """Return the attributes of a span or a resource, without Falkirk's prefix."""
    return {a.key.removeprefix("falkirk."): getattr(a.value, str(a.value.WhichOneof("value"))) for a in of.attributes}


@contextmanager
def collecting(**options: Any) -> Iterator[Collector]:
    """Run a collector."""
    server = Collector(**options)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
