"""Passes the requests of a WSGI server on to a real server, as they are: the signature of each covers its headers."""

import contextlib
import http.client
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.hdfs_server import HdfsServer
from tests.object_server import ObjectServer

#: A suspended server does not answer. The client has given up long before.
_ANSWER_S = 300.0
#: Headers of a connection, not of a request; `Expect` was answered already.
_HOPS = {"CONNECTION", "EXPECT", "KEEP_ALIVE", "TRANSFER_ENCODING"}


class Forwarding:
    """A WSGI application that asks a real server."""

    def __init__(self, server: ObjectServer | HdfsServer) -> None:
        self._server = server

    def _port(self, environ: dict[str, Any]) -> int:
        assert isinstance(self._server, ObjectServer)
        return self._server.port

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer with the server's answer. Raises: ConnectionError: it gave none."""
        body = _body(environ)
        with self._asked(environ, body, len(body)) as connection, _as_connection_error():
            answer = connection.getresponse()
            given = answer.read()
        content = self._changed(given)
        headers = [(n, v) for n, v in answer.getheaders() if n.upper().replace("-", "_") not in _HOPS]
        if content != given:
            headers = [(n, v) for n, v in headers if n.lower() != "content-length"]
        if "content-length" not in {name.lower() for name, _ in headers}:  # an answer to HEAD has that of the object
            headers.append(("Content-Length", str(len(content))))
        start(f"{answer.status} {answer.reason}", headers)
        return [content]

    def _changed(self, content: bytes) -> bytes:
        return content

    def crash(self, environ: dict[str, Any]) -> None:
        """Send half of a request, kill the server and start it again. Raises: ConnectionAbortedError, always."""
        body = _body(environ)
        with self._asked(environ, body[: len(body) // 2], len(body)):
            self._server.crash()
        raise ConnectionAbortedError("the server was killed, as a test asked")

    @contextlib.contextmanager
    def _asked(self, environ: dict[str, Any], body: bytes, length: int) -> Iterator[http.client.HTTPConnection]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port(environ), timeout=_ANSWER_S)
        try:
            with _as_connection_error():
                method, path = environ["REQUEST_METHOD"], environ["REQUEST_URI"]  # undecoded
                connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
                for name, value in environ.items():
                    if name.startswith("HTTP_") and name.removeprefix("HTTP_") not in _HOPS:
                        connection.putheader(name.removeprefix("HTTP_").replace("_", "-"), value)
                if environ.get("CONTENT_TYPE"):
                    connection.putheader("Content-Type", environ["CONTENT_TYPE"])
                if "CONTENT_LENGTH" in environ or body:
                    connection.putheader("Content-Length", str(length))
                connection.endheaders()
                if body:
                    connection.send(body)
            yield connection
        finally:
            connection.close()


class ForwardingHdfs(Forwarding):
    """A WSGI application that asks the namenode and the datanode of an HDFS. Args: port: returns the one of the proxy.

    Where the namenode names the datanode, it names the proxy instead.
    """

    def __init__(self, server: HdfsServer, port: Callable[[], int]) -> None:
        super().__init__(server)
        self._ports, self._proxy = server.ports, port

    def _port(self, environ: dict[str, Any]) -> int:
        return self._ports[3 if "namenoderpcaddress" in environ["REQUEST_URI"] else 1]

    def _changed(self, content: bytes) -> bytes:
        if not content.startswith(b'{"Location"'):
            return content
        return re.sub(rb"//[^/]*/", b"//127.0.0.1:%d/" % self._proxy(), content, count=1)

    def cut(self, environ: dict[str, Any]) -> None:
        """Send half of a request. Raises: ConnectionAbortedError, always."""
        body = _body(environ)
        with self._asked(environ, body[: len(body) // 2], len(body)):
            raise ConnectionAbortedError("the connection was cut, as a test asked")


def _body(environ: dict[str, Any]) -> bytes:
    is_chunked = "HTTP_TRANSFER_ENCODING" in environ
    content = environ["wsgi.input"].read() if is_chunked else environ["wsgi.input"].read(_length(environ))
    return bytes(content)


def _length(environ: dict[str, Any]) -> int:
    return int(environ.get("CONTENT_LENGTH") or 0)


@contextlib.contextmanager
def _as_connection_error() -> Iterator[None]:
    """The server of the tests closes the connection of its client after a ConnectionError."""
    try:
        yield
    except (http.client.HTTPException, TimeoutError) as error:
        raise ConnectionAbortedError(f"the server gave no answer: {error!r}") from error
