"""Signed headers: signs a text in a header of a request together with the request.

A program that may write the topic may write any header. Only those of a gateway of this home count.
"""

import hmac
from collections.abc import Sequence

from falkirk.kafka_client.signing import tag_of

#: A tag covers this instead of a partition, which is not known when a request is signed.
_ANY_PARTITION = -1


def signed_text(
    headers: Sequence[tuple[str, bytes | None]] | None, name: str, covered: bytes, key: bytes,
    request_id: bytes | None, value: bytes | None,
) -> bytes | None:  # fmt: skip
    """Return the text in a request's header; None: no gateway of this home wrote it.

    Args: covered: a prefix of the text, of which the tag is made. key: of the topic, as of `SigningKey.of`.
    """
    for each, header in headers or ():
        text, _, tag = (header or b"").partition(b"/")
        if each == name and hmac.compare_digest(_tag(covered + text, key, request_id, value), tag):
            return text
    return None


def header_with(
    text: bytes, name: str, covered: bytes, key: bytes, request_id: bytes, value: bytes
) -> tuple[str, bytes]:
    """Return the header with a text without slashes. Args: as of `signed_text`."""
    return name, text + b"/" + _tag(covered + text, key, request_id, value)


def _tag(covered: bytes, key: bytes, request_id: bytes | None, value: bytes | None) -> bytes:
    return tag_of(key, covered + b"/", _ANY_PARTITION, request_id, value).encode()
