"""Passes the requests of a WSGI server on to a real server, as they are: the signature of each covers its headers."""

import contextlib
import http.client
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.object_server import ObjectServer

#: A suspended server does not answer. The client has given up long before.
_ANSWER_S = 300.0
#: Headers of a connection, not of a request; `Expect` was answered already.
_HOPS = {"CONNECTION", "EXPECT", "KEEP_ALIVE", "TRANSFER_ENCODING"}


class Forwarding:
    """A WSGI application that asks a real server."""

    def __init__(self, server: ObjectServer) -> None:
        self._server = server

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer with the server's answer. Raises: ConnectionError: it gave none."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self._asked(environ, body, len(body)) as connection, _as_connection_error():
            answer = connection.getresponse()
            content = answer.read()
        names = {name.lower() for name, _ in answer.getheaders()}
        headers = [(n, v) for n, v in answer.getheaders() if n.upper().replace("-", "_") not in _HOPS]
        if "content-length" not in names:
            headers.append(("Content-Length", str(len(content))))
        start(f"{answer.status} {answer.reason}", headers)
        return [content]

    def crash(self, environ: dict[str, Any]) -> None:
        """Send half of a request, kill the server and start it again. Raises: ConnectionAbortedError, always."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self._asked(environ, body[: len(body) // 2], len(body)):
            self._server.crash()
        raise ConnectionAbortedError("the server was killed, as a test asked")

    @contextlib.contextmanager
    def _asked(self, environ: dict[str, Any], body: bytes, length: int) -> Iterator[http.client.HTTPConnection]:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=_ANSWER_S)
        try:
            with _as_connection_error():
                method, path = environ["REQUEST_METHOD"], environ["REQUEST_URI"]  # undecoded
                connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
                for name, value in environ.items():
                    if name.startswith("HTTP_") and name.removeprefix("HTTP_") not in _HOPS:
                        connection.putheader(name.removeprefix("HTTP_").replace("_", "-"), value)
                if environ.get("CONTENT_TYPE"):
                    connection.putheader("Content-Type", environ["CONTENT_TYPE"])
                if "CONTENT_LENGTH" in environ:
                    connection.putheader("Content-Length", str(length))
                connection.endheaders()
                if body:
                    connection.send(body)
            yield connection
        finally:
            connection.close()


@contextlib.contextmanager
def _as_connection_error() -> Iterator[None]:
    """The server of the tests closes the connection of its client after a ConnectionError."""
    try:
        yield
    except (http.client.HTTPException, TimeoutError) as error:
        raise ConnectionAbortedError(f"the server gave no answer: {error!r}") from error
