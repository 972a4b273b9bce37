"""Elapsed: the time of a source of requests. It advances while a gateway runs, independent of the machine's clock.

How long a request is remembered must not depend on a clock that someone can set. After a jump, the gateway would forget
a request that was posted a minute ago, and a retry would run twice. So each request carries its elapsed time in its
record, and the next gateway counts from the newest one in the topic. Time in which no gateway ran does not count.
"""

import time
from collections.abc import Callable, Sequence

#: The header of a request that holds its elapsed time, in milliseconds.
HEADER = "falkirk-elapsed-ms"
#: Milliseconds since 1970 have at most this many digits for thousands of years.
_DIGITS_MAX = 15


class Elapsed:
    """The elapsed time of one source, in milliseconds; safe to use from several threads.

    Args: begin_ms: the time at the start. monotonic: a clock that nobody can set, in seconds.
    """

    def __init__(self, begin_ms: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic, self._zero_s = monotonic, monotonic() - begin_ms / 1000

    def now_ms(self) -> int:
        """Return the present elapsed time."""
        return int((self._monotonic() - self._zero_s) * 1000)


def elapsed_of(headers: Sequence[tuple[str, bytes | None]] | None, stamped_ms: int) -> int:
    """Return the elapsed time of a request. A request of an older Falkirk has no header, so its timestamp counts."""
    for name, value in headers or ():
        if name == HEADER and value is not None and value.isdigit() and len(value) <= _DIGITS_MAX:
            return int(value)
    return stamped_ms


def header_of(elapsed_ms: int) -> tuple[str, bytes]:
    """Return the header for a request's elapsed time."""
    return HEADER, str(elapsed_ms).encode()
