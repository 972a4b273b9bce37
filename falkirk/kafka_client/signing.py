"""Signs records: each record of a home carries a tag that only this home can make, so forged records are recognised.

The tag covers the header, the output partition, the key and the value. Anyone who can write to a topic can add records
to it. But a restart, a release, `falkirk redrive` and a gateway trust only records with a correct tag. See
docs/decisions/0042.

The tag is a truncated SHA-256 of a key followed by the text. With a plain SHA-256, an attacker could derive the tag of
a longer text from that of a shorter one; the truncation prevents that. HMAC would hash twice, and Spark has no HMAC.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from falkirk.kafka_client.header import TAG_DIGITS, header_value, split_header
from falkirk.theory.ids import Incarnation, Offset

if TYPE_CHECKING:
    from falkirk.kafka_client.ranges import LogRecord, Message

#: The prefix of a derived key, by which the key can be found and removed from a plan that Spark prints.
KEY_MARK = b"FK1"
_KEY_BYTES = 16
#: Matches a derived key in a plan that Spark prints.
KEY_PATTERN = f"0x{KEY_MARK.hex().upper()}[0-9A-F]{{{_KEY_BYTES * 2}}}"
#: The number of incarnations whose keys are cached. A forged header can name any incarnation.
_KEYS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """The secret of a home.

    Args: secret: 32 random bytes. since_birth: the home has had the secret since its first record; if False, an earlier
        version of Falkirk may have written records without a tag.
    """

    secret: bytes = field(repr=False)
    since_birth: bool

    def of(self, topic: str, incarnation: Incarnation | str) -> bytes:
        """Return the key for the records that one incarnation writes to one topic. The key has no other use."""
        return KEY_MARK + hmac.digest(self.secret, f"{topic}/{incarnation}".encode(), "sha256")[:_KEY_BYTES]


def tag_of(key: bytes, header: bytes, partition: int, record_key: bytes | None, value: bytes | None) -> str:
    """Return the tag of a record.

    Args: key: from `SigningKey.of`. header: the header up to its last slash.
    """
    size = b"-" if record_key is None else b"%d" % len(record_key)
    covered = b"%b%b@%d/%b/%b%b" % (key, header, partition, size, record_key or b"", value or b"")
    return hashlib.sha256(covered).hexdigest()[:TAG_DIGITS]


class VerifiedHeader(NamedTuple):
    """The contents of a verified header. Args: numbers: of the stamp. signed: the header has a correct tag."""

    incarnation: Incarnation
    numbers: tuple[int, ...]
    state: str
    signed: bool


@dataclass(frozen=True, slots=True)
class RejectedHeader:
    """Why a record is not the home's own.

    Args: text: a description for people. may_be_ours: the home can't tell, since it was restored from a copy that is
        older than its key.
    """

    text: str
    may_be_ours: bool = False


NO_HEADER = RejectedHeader("no header of Falkirk")
MALFORMED = RejectedHeader("a malformed header")
OF_ANOTHER = RejectedHeader("the header of another home")
UNSIGNED = RejectedHeader("a header without a tag")
WRONG_TAG = RejectedHeader("a tag that does not fit")
UNKNOWN_TAG = RejectedHeader("a tag that was made with a key that this home does not have", may_be_ours=True)
UNEXPLAINED = RejectedHeader("a stamp of no record of the input")


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A record in one of the home's topics that the home did not write."""

    partition: int
    offset: Offset
    reason: RejectedHeader


class ForeignTally:
    """Counts foreign records. Attributes: count. first: the record to report: a doubtful one, or else the first one."""

    def __init__(self) -> None:
        self.count = 0
        self.first: Foreign | None = None

    def add(self, foreign: Foreign) -> None:
        """Count a record."""
        self.count += 1
        if self.first is None or (foreign.reason.may_be_ours and not self.first.reason.may_be_ours):
            self.first = foreign


class Verifier:
    """Tells records of this home from others, in one topic.

    Args:
        topic, identity, key: of the home.
        unsigned_below: for each partition, where the unsigned records of an earlier version of Falkirk end; None: they
            have no end yet.
        explains: returns whether the input can have a record with a stamp's numbers; called for records without a tag.
    """

    def __init__(
        self, topic: str, identity: str, key: SigningKey, *, unsigned_below: Mapping[int, Offset] | None = None,
        explains: Callable[[tuple[int, ...], str], bool] = lambda numbers, state: True,
    ) -> None:  # fmt: skip
        self._identity, self._explains = identity, explains
        self._unsigned_below = {} if key.since_birth else unsigned_below
        self._key_of = lru_cache(_KEYS_MAX)(lambda incarnation: key.of(topic, incarnation))

    def is_old(self, partition: int, offset: Offset) -> bool:
        """Return whether an earlier version of Falkirk, which did not sign records, may have written a record."""
        return self._unsigned_below is None or offset < self._unsigned_below.get(partition, 0)

    def verify(
        self, partition: int, offset: Offset, header: bytes | None, record_key: bytes | None, value: bytes | None
    ) -> VerifiedHeader | RejectedHeader:
        """Return the contents of a record's header if this home wrote the record, otherwise the reason why not."""
        if header is None:
            return NO_HEADER
        try:
            identity, incarnation, numbers, state, tag = split_header(header)
        except ValueError:
            return MALFORMED
        if identity != self._identity:
            return OF_ANOTHER
        is_old = self.is_old(partition, offset)
        if tag is None:
            if not is_old:
                return UNSIGNED
            if not self._explains(numbers, state):
                return UNEXPLAINED
        else:
            made = tag_of(self._key_of(incarnation), header[:-TAG_DIGITS], partition, record_key, value)
            if not hmac.compare_digest(made, tag):
                return UNKNOWN_TAG if is_old else WRONG_TAG
        return VerifiedHeader(Incarnation(int(incarnation)), numbers, state, tag is not None)

    def verify_message(self, message: "Message") -> VerifiedHeader | RejectedHeader:
        """Verify a message, as `verify` does."""
        header = header_value(message.headers())
        return self.verify(message.partition(), message.offset(), header, message.key(), message.value())

    def verify_record(self, record: "LogRecord") -> VerifiedHeader | RejectedHeader:
        """Verify a record of a range, as `verify` does."""
        return self.verify(record.partition, record.offset, record.raw_header, record.key, record.value)


def explained_by(
    ends: Callable[[], Mapping[int, Offset]], state_partitions: int, depth: int | None
) -> Callable[[tuple[int, ...], str], bool]:
    """Return a function that decides whether records of one source can have caused a stamp.

    Args: ends: returns the ends of the source's partitions; called at most once. state_partitions: their number. depth:
        the number of sub-indexes of a stamp; None: not known.
    """
    known: list[Mapping[int, Offset]] = []

    def explains(numbers: tuple[int, ...], state: str) -> bool:
        known[:] = known or [ends()]
        source, partition, offset, *sub = numbers
        is_input = source == 0 and offset < known[0].get(partition, 0)
        return is_input and depth in (None, len(sub)) and int(state) < state_partitions

    return explains
