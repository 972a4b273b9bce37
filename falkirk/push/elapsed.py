"""Elapsed: the time of a source of requests. It passes while a gateway runs, whatever the machine's clock is set to.

How long a request is remembered must not depend on a clock that can be set: a jump would make the gateway forget what
it was asked a minute ago, and a retry would run twice. So each request carries its elapsed time in its record, and the
next gateway counts from the newest one in the topic. The time in which no gateway ran does not count.
"""

import time
from collections.abc import Callable, Sequence

#: The header of a request: its elapsed time, in milliseconds.
HEADER = "falkirk-elapsed-ms"
#: Milliseconds since 1970 have so many digits for the next thousands of years.
_DIGITS_MAX = 15


class Elapsed:
    """The elapsed time of one source, in milliseconds; safe from several threads.

    Args: begin_ms: where it begins. monotonic: a clock that nobody sets, in seconds.
    """

    def __init__(self, begin_ms: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic, self._zero_s = monotonic, monotonic() - begin_ms / 1000

    def now_ms(self) -> int:
        """Return the present time."""
        return int((self._monotonic() - self._zero_s) * 1000)


def elapsed_of(headers: Sequence[tuple[str, bytes | None]] | None, stamped_ms: int) -> int:
    """Return the elapsed time of a request. One of an older Falkirk has its timestamp alone."""
    for name, value in headers or ():
        if name == HEADER and value is not None and value.isdigit() and len(value) <= _DIGITS_MAX:
            return int(value)
    return stamped_ms


def header_of(elapsed_ms: int) -> tuple[str, bytes]:
    """Return the header of a request."""
    return HEADER, str(elapsed_ms).encode()
