"""Free ports of this machine for servers that others start again at the same address.

The kernel gives ports of one range to connections, and to servers that ask for any port. A server at such a port may
find it taken when it starts again. Ports below this range are given to nobody who does not name them.
"""

import contextlib
import itertools
import random
import socket
from pathlib import Path

#: The first port that Linux gives away by default. Other systems begin later.
_GIVEN_AWAY = 32_768
#: Below are those of well-known servers.
_FIRST = 10_000
#: How many are tried for each one that is wanted.
_TRIES = 100
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def given_away_from() -> int:
    """Return the first port that the kernel gives to connections."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_RANGE.read_text().split()[0])
    return _GIVEN_AWAY


def free_ports(count: int) -> list[int]:
    """Return so many different ports that nobody uses now, below those that the kernel gives away.

    If it gives away almost all ports, they are among those.
    """
    quiet = range(_FIRST, max(_FIRST, given_away_from()))
    tried = random.SystemRandom().sample(quiet, min(len(quiet), _TRIES * count))
    found = [*itertools.islice(filter(is_free, tried), count)]
    return found if len(found) == count else _any(count)


def is_free(port: int) -> bool:
    """Return whether a server can listen at a port of the loopback interface."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _any(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
