"""The header of every record that Falkirk writes: who wrote the record, and which input record caused it.

Anyone who can write to a topic can write headers. So Falkirk trusts a header only after
`falkirk/kafka_client/signing.py` has verified it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from falkirk.errors.conditions.kafka_client import HEADER_MALFORMED
from falkirk.theory.ids import Incarnation, Offset
from falkirk.theory.stamp import Stamp

#: The key of Falkirk's header among the headers of a record.
HEADER_KEY = "falkirk"
#: Hexadecimal digits of an application's id.
APPLICATION_DIGITS = 8
#: Hexadecimal digits of a tag: 96 bits.
TAG_DIGITS = 24
#: No header of Falkirk is longer.
BYTES_MAX = 400
#: Kafka's offsets and all other numbers of a header are below this limit.
_LIMIT = 1 << 63
_LIMIT_DIGITS = 19
_HEXADECIMAL = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The text ``application/incarnation/stamp/state_partition``; in a record, ``/tag`` follows.

    Args:
        application: the identity of the home, 8 hexadecimal digits.
        incarnation: the incarnation of the region that wrote the record, from 0.
        stamp: the record's stamp.
        state_partition: the state partition that computed the record, from 0.
    """

    application: str
    incarnation: Incarnation
    stamp: Stamp
    state_partition: int

    def encode(self) -> bytes:
        """Return the header's value without a tag."""
        return f"{self.application}/{self.incarnation}/{self.stamp.encode()}/{self.state_partition}".encode()

    @classmethod
    def decode(cls, value: bytes) -> "Header":
        """Return the header in a value, without verifying who wrote it.

        Raises: LogError: `HEADER_MALFORMED`.
        """
        try:
            application, incarnation, numbers, state, _ = split_header(value)
        except ValueError as error:
            raise HEADER_MALFORMED.error(value=value, shown=value[:100]) from error
        return cls(
            application=application,
            incarnation=Incarnation(int(incarnation)),
            stamp=stamp_of(numbers),
            state_partition=int(state),
        )


def header_value(headers: Sequence[tuple[str, bytes | None]] | None) -> bytes | None:
    """Return the value of Falkirk's header among a record's `headers`, or None."""
    for key, value in headers or ():
        if key == HEADER_KEY:
            return value
    return None


def split_header(value: bytes) -> tuple[str, str, tuple[int, ...], str, str | None]:
    """Return application, incarnation, the stamp's numbers, state partition and tag of a header's value.

    Earlier versions of Falkirk wrote no tag. A tail may hold millions of headers, so this function builds no objects.
    The two fields that repeat from record to record stay strings.

    Raises: ValueError: the value is malformed.
    """
    if len(value) > BYTES_MAX:
        raise ValueError(value[:BYTES_MAX])
    application, incarnation, stamp, state, *tags = value.decode("ascii").split("/")
    digits = stamp.split(".")
    if len(digits) < 3 or not (all(map(_is_number, digits)) and _is_number(incarnation) and _is_number(state)):
        raise ValueError(value)
    if len(application) != APPLICATION_DIGITS or not _HEXADECIMAL.issuperset(application):
        raise ValueError(value)
    if tags and (len(tags) != 1 or len(tags[0]) != TAG_DIGITS or not _HEXADECIMAL.issuperset(tags[0])):
        raise ValueError(value)
    return application, incarnation, tuple(map(int, digits)), state, tags[0] if tags else None


def _is_number(text: str) -> bool:
    """Return whether the text is a number in the form in which Falkirk writes numbers."""
    if not text.isdigit() or len(text) > _LIMIT_DIGITS or (text[0] == "0" and len(text) > 1):
        return False
    return len(text) < _LIMIT_DIGITS or int(text) < _LIMIT


def stamp_of(numbers: tuple[int, ...]) -> Stamp:
    """Return the stamp with these numbers: source, partition, offset and sub-indexes."""
    source, partition, offset, *sub = numbers
    return Stamp(source=source, partition=partition, offset=Offset(offset), sub=tuple(sub))
