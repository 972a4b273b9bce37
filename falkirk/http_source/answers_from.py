"""Answers from: each request carries the positions in the topic of answers from which on its answer can be.

After the window, an id may be used again. So a gateway must know whether an answer belongs to an earlier request with
the same id. A timestamp can't tell: it is as wrong as the clock of the machine that wrote it. But a gateway forgets a
request only once it has read its answer, or all answers up to its acceptance. So the answers of earlier requests are
below the positions that it has read when it sends a request, and the answer to this one is not.

The positions are signed with the request. A forged one would hide an answer.
"""

from collections.abc import Mapping, Sequence

from falkirk.http_source.signed_headers import header_with, signed_text
from falkirk.theory.ids import Offset, Offsets

#: The header of a request with the position in each partition of the topic of answers, and a tag.
ANSWERS_HEADER = "falkirk-answers-from"
#: The tag covers the header's name, too, because that of the elapsed time covers a number as well.
_COVERED = ANSWERS_HEADER.encode() + b"/"
_DIGITS_MAX = 19


def answers_from_of(
    headers: Sequence[tuple[str, bytes | None]] | None, key: bytes, request_id: bytes | None, value: bytes | None
) -> Offsets | None:
    """Return the positions in a request's headers; None: no gateway of this home wrote any.

    Args: key: for the requests of the topic, as of `SigningKey.of`.
    """
    text = signed_text(headers, ANSWERS_HEADER, _COVERED, key, request_id, value)
    numbers = [] if text is None else text.split(b",")
    if not numbers or not all(n.isdigit() and len(n) <= _DIGITS_MAX for n in numbers):
        return None
    return {partition: Offset(int(n)) for partition, n in enumerate(numbers)}


def answers_header_of(
    positions: Mapping[int, Offset], key: bytes, request_id: bytes, value: bytes
) -> tuple[str, bytes]:
    """Return the header with a request's positions. Args: as of `answers_from_of`."""
    text = b",".join(b"%d" % positions.get(p, 0) for p in range(max(positions, default=0) + 1))
    return header_with(text, ANSWERS_HEADER, _COVERED, key, request_id, value)
