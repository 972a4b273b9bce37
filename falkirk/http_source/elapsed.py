"""Elapsed: the time of a source of requests. It advances while a gateway runs, independent of the machine's clock.

How long a request is remembered must not depend on a clock that someone can set. After a jump, the gateway would forget
a request that was posted a minute ago, and a retry would run twice. So each request carries its elapsed time in its
record, and the next gateway counts from the newest one in the topic. Time in which no gateway ran does not count.

A program that may write the topic may write any time. One forged time in the future would make all requests old. So a
time is signed, together with the request.
"""

import time
from collections.abc import Callable, Sequence

from falkirk.http_source.signed_headers import header_with, signed_text

#: The header of a request that holds its elapsed time, in milliseconds, and the tag of the request.
ELAPSED_HEADER = "falkirk-elapsed-ms"
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


def elapsed_of(
    headers: Sequence[tuple[str, bytes | None]] | None, key: bytes, request_id: bytes | None, value: bytes | None
) -> int | None:
    """Return the elapsed time of a request; None: no gateway of this home wrote it.

    Args: key: for the requests of the topic, as of `SigningKey.of`.
    """
    digits = signed_text(headers, ELAPSED_HEADER, b"", key, request_id, value)
    return int(digits) if digits is not None and digits.isdigit() and len(digits) <= _DIGITS_MAX else None


def header_of(elapsed_ms: int, key: bytes, request_id: bytes, value: bytes) -> tuple[str, bytes]:
    """Return the header for a request's elapsed time. Args: as of `elapsed_of`."""
    return header_with(b"%d" % elapsed_ms, ELAPSED_HEADER, b"", key, request_id, value)
