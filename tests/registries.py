"""A schema registry for tests: it answers as Confluent's does, and fails on request."""

import base64
import json
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import unquote

Fault = Literal["error", "silent", "once", "proxy", "path", "half"]
_ID, _LATEST = r"/schemas/ids/(\d+)", r"/subjects/([^/]+)/versions/latest"
_NUMBERED, _VERSIONS = r"/subjects/([^/]+)/versions/(\d+)", r"/subjects/([^/]+)/versions"


def wire(number: int, content: bytes) -> bytes:
    """Return a value in the wire format."""
    return bytes([0]) + number.to_bytes(4, "big") + content


@dataclass(slots=True)
class FakeRegistry:
    """A registry in memory, with a server that can be stopped and started at the same port.

    Args: login: ``user:password`` of the only user; None: everybody may use it. Attributes: fault: ``error``: answers
        are HTTP 500. ``silent``: none comes, until `freed` is set. ``once``: the first is HTTP 500, and no other comes.
        ``proxy``: answers are a 404 of a proxy. ``path``: they are those of a registry at another path (Apicurio's
        without `/apis/ccompat/v7`). ``half``: a body never ends. asked: the requests by method and path.
    """

    login: str | None = None
    fault: Fault | None = None
    freed: threading.Event = field(default_factory=threading.Event)
    asked: Counter[str] = field(default_factory=Counter)
    _schemas: list[dict[str, Any]] = field(default_factory=list)
    _subjects: dict[str, list[int]] = field(default_factory=dict)
    _server: ThreadingHTTPServer | None = None
    _port: int = 0

    def __enter__(self) -> "FakeRegistry":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry._serve(self, None)

            def do_POST(self) -> None:
                registry._serve(self, self.rfile.read(int(self.headers["Content-Length"])))

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.freed.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def add(self, subject: str, schema: object, **more: object) -> int:
        """Register a schema and return its id."""
        content = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}
        if content not in self._schemas:
            self._schemas.append(content)
        number = self._schemas.index(content) + 1
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def count(self, part: str) -> int:
        """Return the number of requests whose method and path contain `part`."""
        return sum(times for asked, times in self.asked.items() if part in asked)

    def _serve(self, handler: BaseHTTPRequestHandler, body: bytes | None) -> None:
        self.asked[f"{handler.command} {handler.path}"] += 1
        if self.fault == "silent" or (self.fault == "once" and self.asked.total() > 1):
            self.freed.wait(60)
        if self.fault in ("error", "once"):
            status, content = 500, b'{"error_code":50001,"message":"Error in the backend data store"}'
        elif self.fault == "proxy":
            status, content = 404, b"<html>no such route</html>"
        elif self.fault == "path":
            status, content = 404, b'{"error_code":404,"message":"Could not find resource"}'
        else:
            status, found = self._answer(handler, body)
            content = json.dumps(found).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if self.fault == "half":
            handler.wfile.write(content[:5])
            self.freed.wait(60)
            return
        handler.wfile.write(content)

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes | None) -> tuple[int, dict[str, Any]]:
        wanted = None if self.login is None else f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if wanted is not None and handler.headers["Authorization"] != wanted:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        path = handler.path
        if match := re.fullmatch(_ID, path):
            number = int(match[1])
            if not 0 < number <= len(self._schemas):
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            return 200, self._schemas[number - 1]
        if body is not None and (match := re.fullmatch(_VERSIONS, path)):
            asked = json.loads(body)
            schema, kind = asked["schema"], {name: asked[name] for name in ("schemaType",) if name in asked}
            try:
                json.loads(schema)["type"]
            except (ValueError, KeyError, TypeError):
                return 422, {"error_code": 42201, "message": "Invalid schema"}
            return 200, {"id": self.add(unquote(match[1]), schema, **kind)}
        match = re.fullmatch(_LATEST, path) or re.fullmatch(_NUMBERED, path)
        versions = self._subjects.get(unquote(match[1])) if match else None
        if match is None or versions is None:
            return 404, {"error_code": 40401, "message": "Subject not found."}
        version = len(versions) if path.endswith("latest") else int(match[2])
        number = versions[version - 1]
        return 200, {"subject": unquote(match[1]), "version": version, "id": number, **self._schemas[number - 1]}
