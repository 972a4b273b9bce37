"""Signing: each record of ours carries a tag that only its home can make, so a forged record is never taken for ours.

The tag covers the header, the output partition, the key and the value. Whoever can write a topic can add records to it,
but none that a restart, a release, `falkirk redrive` or a gateway believes. See docs/decisions/0042.

The tag is a truncated SHA-256 of a key followed by the text. Truncation is what keeps a longer text from being derived
from a shorter one, which is the weakness of a plain SHA-256 here. HMAC would hash twice, and Spark has no HMAC.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from falkirk.logs.header import TAG_DIGITS, header_value, split_header

if TYPE_CHECKING:
    from falkirk.logs.ranges import LogRecord, Message

#: What a derived key begins with, so that it can be found, and struck out, where Spark prints a plan.
KEY_MARK = b"FK1"
_KEY_BYTES = 16
#: Matches a derived key where Spark prints a plan.
KEY_PATTERN = f"0x{KEY_MARK.hex().upper()}[0-9A-F]{{{_KEY_BYTES * 2}}}"
#: Incarnations whose keys are kept. A forged header can name any.
_KEYS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """The secret of a home.

    Args: secret: 32 random bytes. since_birth: the home has had it from its first record on; otherwise an earlier
        version of Falkirk has written records without a tag.
    """

    secret: bytes = field(repr=False)
    since_birth: bool

    def of(self, topic: str, incarnation: int | str) -> bytes:
        """Return the key for the records that an incarnation writes to a topic. It serves for nothing else."""
        return KEY_MARK + hmac.digest(self.secret, f"{topic}/{incarnation}".encode(), "sha256")[:_KEY_BYTES]


def tag_of(key: bytes, header: bytes, partition: int, record_key: bytes | None, value: bytes | None) -> str:
    """Return the tag of a record. Args: key: from `SigningKey.of`. header: up to its last slash."""
    size = b"-" if record_key is None else b"%d" % len(record_key)
    covered = b"%b%b@%d/%b/%b%b" % (key, header, partition, size, record_key or b"", value or b"")
    return hashlib.sha256(covered).hexdigest()[:TAG_DIGITS]


class Believed(NamedTuple):
    """What the header of a record of ours says. Args: numbers: of the stamp. signed: it has a tag, and the tag fits."""

    incarnation: int
    numbers: tuple[int, ...]
    state: str
    signed: bool


@dataclass(frozen=True, slots=True)
class Disbelieved:
    """Why a record is not ours. Args: text: what the record has, as people read it. may_be_ours: a home that was
    restored from a copy older than its key can't tell."""

    text: str
    may_be_ours: bool = False


NO_HEADER = Disbelieved("no header of Falkirk")
MALFORMED = Disbelieved("a malformed header")
OF_ANOTHER = Disbelieved("the header of another home")
UNSIGNED = Disbelieved("a header without a tag")
WRONG_TAG = Disbelieved("a tag that does not fit")
UNKNOWN_TAG = Disbelieved("a tag that was made with a key that this home does not have", may_be_ours=True)
UNEXPLAINED = Disbelieved("a stamp of no record of the input")


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A record of one of our topics that this home did not write."""

    partition: int
    offset: int
    reason: Disbelieved


class ForeignTally:
    """Counts records that are not ours. Attributes: count. first: the one to name: a doubtful one, or the first."""

    def __init__(self) -> None:
        self.count = 0
        self.first: Foreign | None = None

    def add(self, foreign: Foreign) -> None:
        """Take in a record."""
        self.count += 1
        if self.first is None or (foreign.reason.may_be_ours and not self.first.reason.may_be_ours):
            self.first = foreign


class Verifier:
    """Tells records of this home from others, in one topic.

    Args:
        topic, identity, key: of the home.
        unsigned_below: where records without a tag end that an earlier version of Falkirk has written, per partition;
            None: nowhere yet.
        explains: tells whether the input can have a record with a stamp's numbers; asked of records without a tag.
    """

    def __init__(
        self, topic: str, identity: str, key: SigningKey, *, unsigned_below: Mapping[int, int] | None = None,
        explains: Callable[[tuple[int, ...], str], bool] = lambda numbers, state: True,
    ) -> None:  # fmt: skip
        self._identity, self._explains = identity, explains
        self._unsigned_below = {} if key.since_birth else unsigned_below
        self._key_of = lru_cache(_KEYS_MAX)(lambda incarnation: key.of(topic, incarnation))

    def is_old(self, partition: int, offset: int) -> bool:
        """Tell whether an earlier version of Falkirk, which signed nothing, can have written a record."""
        return self._unsigned_below is None or offset < self._unsigned_below.get(partition, 0)

    def verify(
        self, partition: int, offset: int, header: bytes | None, record_key: bytes | None, value: bytes | None
    ) -> Believed | Disbelieved:
        """Return what a record's header says, if this home wrote it."""
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
        return Believed(int(incarnation), numbers, state, tag is not None)

    def verify_message(self, message: "Message") -> Believed | Disbelieved:
        """Do as `verify` does with a message."""
        header = header_value(message.headers())
        return self.verify(message.partition(), message.offset(), header, message.key(), message.value())

    def verify_record(self, record: "LogRecord") -> Believed | Disbelieved:
        """Do as `verify` does with a record of a range."""
        return self.verify(record.partition, record.offset, record.raw_header, record.key, record.value)


def explained_by(
    ends: Callable[[], Mapping[int, int]], state_partitions: int, depth: int | None
) -> Callable[[tuple[int, ...], str], bool]:
    """Return what tells whether records of one source can have led to a stamp.

    Args: ends: returns where the source ends; called at most once. state_partitions, depth: how many there are, and how
        many sub-indexes a stamp has; None: not known.
    """
    known: list[Mapping[int, int]] = []

    def explains(numbers: tuple[int, ...], state: str) -> bool:
        known[:] = known or [ends()]
        source, partition, offset, *sub = numbers
        is_input = source == 0 and offset < known[0].get(partition, 0)
        return is_input and depth in (None, len(sub)) and int(state) < state_partitions

    return explains
