"""Connections: how many clients may be connected at a time, and what is said of those that speak no HTTP.

A connection costs nothing to open, and needs no token until something is asked on it. So there are at most so many, and
while all are taken the one that asks nothing for longest makes room: whoever opens them and waits gains nothing.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Set
from ipaddress import ip_address

from aiohttp import web
from aiohttp.http import HttpProcessingError

log = logging.getLogger("falkirk")

#: Twice as many as clients may wait, of which each has one.
CONNECTIONS_MAX = 4_000
#: So many connections may be there that are not encrypted yet, where descriptors allow: asyncio does not say which of
#: them have ended since, so whoever opens and closes as many within `HANDSHAKE_S` keeps others out. It is more than one
#: process accepts in that time.
ARRIVING_MAX = 100_000
#: A client that has not agreed on its encryption after this time is cut off.
HANDSHAKE_S = 10.0
#: Requests that are no HTTP are told of once in so long, with their number.
TELL_EVERY_S = 60.0


class Connections:
    """The factory of a server's connections.

    Args: server: of which each connection is one protocol. busy: those on which a request is being served. most: how
        many there may be. look: is called at each. arriving_most: how many may be there that are not encrypted yet.
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
        """Return the protocol of a connection that was just accepted, and with TLS is not encrypted yet.

        Raises: ConnectionAbortedError: too many are not encrypted yet; asyncio then closes the connection.
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
        """Return what serves one more connection, or nothing where there is no room: all others are being served."""
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
    """A connection until it can be talked on. Args: admit: makes what serves it from then on. end_s: when it is cut
    off."""

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
    """What a web server's connections log, without a traceback for each client that speaks no HTTP: such lines are
    counted, and told once in a while."""

    def __init__(self) -> None:
        super().__init__(log, {})
        self._count, self._told_s = 0, -TELL_EVERY_S

    def exception(self, msg: object, *args: object, **options: object) -> None:
        """Count what is no HTTP; log anything else as it is, since that is our own error."""
        error = options.get("exc_info")
        if not isinstance(error, HttpProcessingError):
            self.logger.error(msg, *args, exc_info=error if isinstance(error, BaseException) else True)
            return
        self._count += 1
        if time.monotonic() - self._told_s >= TELL_EVERY_S:
            log.warning("%d requests were no HTTP, the last of them for %s", self._count, type(error).__name__)
            self._count, self._told_s = 0, time.monotonic()


def crosses_in_clear(host: str) -> bool:
    """Tell whether requests to that address, and the token in them, may cross a network, where others can read them."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"
