"""Connections: limits how many clients may be connected at a time, and counts requests that are not HTTP.

Opening a connection costs a client nothing, and needs no token before its first request. So the number of connections
is limited. When the limit is reached, the connection that has been idle for longest is closed. A client that opens
connections without using them therefore blocks nobody.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Set
from ipaddress import ip_address

from aiohttp import web
from aiohttp.http import HttpProcessingError

log = logging.getLogger("falkirk")

#: Twice the number of clients that may wait; each waiting client has one connection.
CONNECTIONS_MAX = 4_000
#: At most this many connections may be unencrypted, where descriptors allow. asyncio does not report which of these
#: have ended, so a client that opens and closes this many within `HANDSHAKE_S` blocks others. One process accepts fewer
#: connections in that time.
ARRIVING_MAX = 100_000
#: The connection of a client is closed if the TLS handshake is not complete after this time.
HANDSHAKE_S = 10.0
#: Requests that are not HTTP are logged at most once per this interval, as a count.
TELL_EVERY_S = 60.0


class Connections:
    """The factory of a server's connections.

    Args: server: makes the protocol of each connection. busy: the connections on which a request is being served. most:
        the limit of connections. look: called at each new connection. arriving_most: the limit of connections that are
        not encrypted yet.
    """

    def __init__(
        self,
        server: web.Server,
        busy: Set[object],
        most: int = CONNECTIONS_MAX,
        look: Callable[[], None] | None = None,
        arriving_most: int = ARRIVING_MAX,
    ) -> None:
        self._server, self._busy, self._most, self._look = server, busy, most, look
        self._arriving_most = arriving_most
        self._arriving: list[_Arriving] = []

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a connection that was just accepted; with TLS it is not encrypted yet.

        Raises: ConnectionAbortedError: too many connections are not encrypted yet; asyncio then closes this one.
        """
        if self._look is not None:
            self._look()
        now_s = time.monotonic()
        self._arriving = [c for c in self._arriving if not c.is_here and now_s < c.end_s]
        if len(self._arriving) >= self._arriving_most:
            raise ConnectionAbortedError(f"{len(self._arriving)} connections are not encrypted yet")
        self._arriving.append(_Arriving(self._admit, now_s + HANDSHAKE_S))
        return self._arriving[-1]

    def _admit(self) -> asyncio.Protocol | None:
        """Return the protocol of one more connection, or None if all allowed connections are serving a request."""
        present = [c for c in self._server.connections if c.transport is not None and not c.transport.is_closing()]
        if len(present) < self._most:
            return self._server()
        idle = next((c for c in present if c not in self._busy), None)
        if idle is None:
            return None
        assert idle.transport is not None
        idle.transport.close()
        return self._server()


class _Arriving(asyncio.Protocol):
    """A connection before its TLS handshake is complete.

    Args: admit: makes the protocol that serves the connection after the handshake. end_s: when the handshake must be
        complete.
    """

    def __init__(self, admit: Callable[[], asyncio.Protocol | None], end_s: float) -> None:
        self._admit, self.end_s = admit, end_s
        self.is_here = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.is_here = True
        protocol = self._admit()
        if protocol is None:
            transport.abort()
            return
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


class QuietLogger(logging.LoggerAdapter[logging.Logger]):
    """The logger of the web server's connections.

    It counts requests that are not HTTP, and logs the count at intervals.

    aiohttp would log a traceback for each of them.
    """

    def __init__(self) -> None:
        super().__init__(log, {})
        self._count, self._told_s = 0, -TELL_EVERY_S

    def exception(self, msg: object, *args: object, **options: object) -> None:
        """Count an error of HTTP parsing, of a body, too; log any other error as it is, since it is our own.

        A client may leave at any time, also before it has its answer. That is no error.
        """
        error = options.get("exc_info")
        if isinstance(error, ConnectionError):
            return
        if not isinstance(error, HttpProcessingError | web.RequestPayloadError):
            self.logger.error(msg, *args, exc_info=error if isinstance(error, BaseException) else True)
            return
        self._count += 1
        if time.monotonic() - self._told_s >= TELL_EVERY_S:
            log.warning("%d requests were not valid HTTP; the last error was %s", self._count, type(error).__name__)
            self._count, self._told_s = 0, time.monotonic()


def crosses_in_clear(host: str) -> bool:
    """Return whether requests to this address, and their token, may cross a network unencrypted."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"
