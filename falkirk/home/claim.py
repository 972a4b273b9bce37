"""Claim: a record outside the home that says which process is its owner. It finds out a second copy of the home.

A copied folder, or a cloned disk, has the home's identity and a store of its own, in which the other copy's generation
is never seen. What the copies share is the broker. So each owner appends a claim to a topic of the home's before it
writes anything, and the last claim holds: whoever finds a later one than its own ends. The order of a partition is the
owner's epoch, so no transaction is needed. (A transactional id would fence nothing more: the results of regions are
not written in transactions.)

A claim is signed with the secret of the home, which its copies have as well: whoever may write the topic can't make an
owner end. Records that are not signed, and repeated ones, end nobody: they are named, and a newcomer waits as for an
unknown owner, since they may hide one. Only a home of an earlier version believes them, because its copies may have
secrets of their own.

The newcomer waits before it starts anything: until the former owner's process has ended, where it can be seen, or
else for longer than an owner takes to find the claim.
"""

import contextlib
import hmac
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Delivered

from falkirk.errors import HomeError, LogError, StoreError
from falkirk.home.folder import Home, write_atomically
from falkirk.kafka.connection import Connection
from falkirk.kafka.faults import ClientErrors, away, fault, quiet_options
from falkirk.kafka.internal import KEEP, internal_topic
from falkirk.kafka.ranges import Message
from falkirk.kafka.reader import Reader
from falkirk.kafka.signing import SigningKey, tag_of
from falkirk.kafka.topics import Topics
from falkirk.system import locks, processes
from falkirk.system.stored import parse_json

log = logging.getLogger("falkirk")

#: An owner that runs finds a later claim, and has ended, within this time: ten times as long as it is seen to take.
FENCED_S = 5.0
#: So many claims before its own a newcomer looks at: an older owner may not have found the last one yet.
_FORMER = 100
_LOOK_S = 0.1
_TIMEOUT_S = 15.0
#: In a home whose owner was replaced by that of a copy, and says which. While it is there, nothing starts.
MARK = "copied"
#: What the tag of a claim covers first, and in place of an incarnation.
_SIGNED_AS = "claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who has claimed a home.

    Args: machine: which boot of which machine, and which of its process spaces. began: with `pid`, which process.
        host, home: the machine's name and the home's folder. generation: of its store.
    """

    machine: str
    pid: int
    began: str
    host: str
    home: str
    generation: int
    at_s: float

    @classmethod
    def of(cls, home: Home) -> "Owner":
        """Return this process as the owner of a home."""
        pid = os.getpid()
        return cls(
            machine=processes.machine(),
            pid=pid,
            began=processes.began(pid),
            host=socket.gethostname(),
            home=str(home.path),
            generation=home.store.generation or 0,
            at_s=time.time(),
        )

    @classmethod
    def read(cls, value: bytes | None) -> "Owner":
        """Return the owner that a record names. One that can't be read is somebody's claim all the same."""
        try:
            content = parse_json(value or b"")
            given = {field.name: content[field.name] for field in fields(cls)}
            texts = [given[name] for name in ("machine", "began", "host", "home")]
            if not all(isinstance(text, str) and "\0" not in text for text in texts) or type(given["pid"]) is not int:
                raise ValueError(given)
            return cls(**given)
        except (ValueError, KeyError, TypeError):
            return cls(machine="", pid=0, began="", host="unknown", home="unknown", generation=0, at_s=0.0)

    def signed(self, key: SigningKey, topic: str) -> bytes:
        """Return the record that claims the home for this owner."""
        content = asdict(self)
        body = json.dumps(content).encode()
        tag = tag_of(key.of(topic, _SIGNED_AS), _SIGNED_AS.encode(), 0, None, body)
        return json.dumps({**content, "tag": tag}).encode()

    def has_signed(self, key: SigningKey, topic: str, value: bytes | None) -> bool:
        """Tell whether a record that names this owner was made by a process with the secret of the home."""
        return hmac.compare_digest(self.signed(key, topic), value or b"")

    def has_ended(self) -> bool | None:
        """Tell whether this process works with its home no longer; None: it can't be seen from here."""
        if self.machine != processes.machine():
            return None
        gone = processes.find(self.pid, self.began) is None
        return gone or not any(locks.is_held(Path(self.home), name) for name in (locks.OWNER, locks.HOST))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, home {self.home}"


_UNKNOWN = Owner.read(None)


class Claim:
    """This process's claim on a home.

    Attributes: former: who had claimed it before, oldest first, without those in the same folder. forged: how many
        records of others there are, and the offset of the first one.
    Raises: HomeError: `HOME_COPIED`: a copy of this home took over earlier. LogError.
    """

    def __init__(self, connection: Connection, home: Home) -> None:
        self._home, self._mine, self._lock = home, Owner.of(home), threading.Lock()
        refuse_copied(home.path)
        self._place = self._mine.machine, self._mine.home
        self.topic = internal_topic(home.application, home.identity, "owner.claims")  # names of users hold no dots
        Topics(connection).create(self.topic, 1, KEEP)
        self._key = home.store.signing_key()
        self.forged, self._seen = (0, -1), set[bytes]()
        self._offset = _append(connection, self.topic, self._mine.signed(self._key, self.topic))
        self._claimed_s = time.monotonic()
        self._reader = Reader(connection, self.topic, {0: max(0, self._offset - _FORMER)})
        self.former: list[Owner] = []
        self._newest: Owner | None = None
        while self._reader.positions[0] <= self._offset:
            self._read(0.2)
            if time.monotonic() > self._claimed_s + _TIMEOUT_S:
                raise away("reading who owns the home", connection, self.topic, "STALLED", ClientErrors())

    def _read(self, timeout_s: float) -> None:
        for message in self._reader.poll(timeout_s):
            owner = Owner.read(message.value())
            if not self._is_believed(owner, message):
                if message.offset() < self._offset and _UNKNOWN not in self.former:
                    self.former.append(_UNKNOWN)
                continue
            if (owner.machine, owner.home) == self._place:
                continue  # two processes in one folder meet at its locks and its generation
            if message.offset() < self._offset:
                self.former.append(owner)
            else:
                self._newest = owner

    def _is_believed(self, owner: Owner, message: Message) -> bool:
        value = message.value() or b""
        if not self._key.since_birth:
            return True
        if owner.has_signed(self._key, self.topic, value) and value not in self._seen:
            self._seen.add(value)
            return True
        count, first = self.forged
        self.forged = count + 1, first if count else message.offset()
        if count == 0:
            log.warning("%r has a record that is no claim of this home, at offset %d", self.topic, message.offset())
        return False

    def foreign_records(self) -> list[dict[str, object]]:
        """Return what others have written into the topic of claims, as `Place.foreign_records` does."""
        count, first = self.forged
        told = {"topic": self.topic, "count": count, "partition": 0, "offset": first, "reason": "no claim of this home"}
        return [told] if count else []

    def look(self) -> None:
        """Refuse to go on if this process is no longer the owner. Call it at least once a second.

        What can't be read at present is looked at the next time.
        Raises: StoreError: `HOME_TAKEN_OVER`: another process works with the same store. HomeError: `HOME_COPIED`:
            another process works with a copy.
        """
        with self._lock, contextlib.suppress(LogError):
            self._read(0)
        newest = self._newest
        try:
            # After reading: an owner with the same store takes its generation before it claims.
            self._home.store.require_charge()
        except StoreError as error:
            if error.condition == "HOME_TAKEN_OVER":
                raise
        else:
            if newest is not None:
                with contextlib.suppress(OSError):  # a full disk; the next start of this home takes over in its turn
                    write_atomically(self._home.path / MARK, str(newest))
        if newest is not None:
            raise _copied(self._home.path, str(newest))

    def await_former(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Wait until former owners have ended, or must have found this claim. Call it before anything is written.

        Args: is_over: tells that nobody waits any more.
        Raises: HomeError: `LEFTOVER_ALIVE`: a process of one is still at work, stopped perhaps. As `look`.
        """
        for former in self.former:
            while not (has_ended := former.has_ended()) and not is_over():
                waited_s = time.monotonic() - self._claimed_s
                if has_ended is None and waited_s > FENCED_S:
                    break
                if waited_s > 2 * FENCED_S:
                    raise HomeError(
                        "LEFTOVER_ALIVE",
                        f"the former owner still runs: {former}.",
                        where=self._home.path,
                        hint="Kill it, then start again: it may still write.",
                        pids=[former.pid],
                    )
                self.look()
                time.sleep(_LOOK_S)

    def close(self) -> None:
        """Look no more."""
        self._reader.close()


def _append(connection: Connection, topic: str, value: bytes) -> int:
    """Append a record to a partition; return its offset. Raises: LogError."""
    errors, found = ClientErrors(), list[tuple[KafkaError | None, int | None]]()

    def note(error: KafkaError | None, message: Delivered) -> None:
        found.append((error, message.offset()))

    settings: dict[str, Any] = {
        **quiet_options(connection, errors),
        "enable.idempotence": True,
        "linger.ms": 0,
        "message.timeout.ms": round(_TIMEOUT_S * 1000),
    }
    producer = Producer(settings)
    producer.produce(topic, partition=0, value=value, on_delivery=note)
    producer.flush(2 * _TIMEOUT_S)
    if not found:
        raise away("claiming the home", connection, topic, "STALLED", errors)
    error, offset = found[0]
    if error is not None:
        raise fault(error, "claiming the home", connection, errors, topic)
    assert offset is not None, "what was taken has an offset"
    return offset


def refuse_copied(home: Path) -> None:
    """Refuse a home of which a copy took over earlier. Raises: HomeError: `HOME_COPIED`."""
    mark = home / MARK
    if mark.exists():
        raise _copied(home, mark.read_text())


def _copied(home: Path, by: str) -> HomeError:
    return HomeError(
        "HOME_COPIED",
        f"another process took over with a copy of this home: {by}.",
        where=home,
        hint="Only one copy may run, because both release the same results. Keep the newer one and delete this folder. "
        f"To keep this one, stop the other for good, delete the file {MARK!r} in this folder, and start again.",
        by=by,
    )
