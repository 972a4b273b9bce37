"""Claim: a record on the broker that says which process owns the home. It reveals a second copy of the home.

A copied folder or a cloned disk has the same identity and a separate store, so no copy sees the other's generation. The
copies share only the broker. So each owner appends a claim to an internal topic before it writes anything, and the last
claim is valid: an owner that finds a later claim than its own ends. The order of the partition decides, so no
transaction is needed. (The transactional ids of a fenced region are another matter: runtime/spark/lanes.py.)

A claim is signed with the secret of the home, which its copies have too. So another writer of the topic can't make an
owner end. Unsigned and repeated records end no owner. They are reported, and a new owner waits as for an unknown owner,
because they may hide one. Only a home of an earlier version accepts them, because its copies may have other secrets.

The claim of a former owner of the same store may arrive late, because that owner stood still or the broker did. Then
the present owner is no older copy. So an owner records a random token before its claim, and the claim names it. A
former owner records nothing after the next one has the store, so the next one knows all such tokens.

Somebody may delete the topic and create it again. Then a later claim may have a smaller offset than an owner's own. So
an owner compares the topic's id from time to time, and reads another topic from its beginning. A new owner that knows
the id of another topic waits as for an unknown owner.

The new owner waits before it starts anything. If it can see the former owner's process, it waits until that process has
ended; otherwise, for longer than an owner takes to find the claim.
"""

import contextlib
import hmac
import json
import logging
import os
import secrets
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
from falkirk.errors.conditions.ownership import HOME_COPIED, LEFTOVER_ALIVE
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.faults import ClientErrors, away, fault, quiet_options
from falkirk.kafka_client.internal import KEEP, internal_topic
from falkirk.kafka_client.ranges import Message
from falkirk.kafka_client.reader import Reader
from falkirk.kafka_client.signing import SigningKey, tag_of
from falkirk.kafka_client.topics import Topics
from falkirk.platform import locks, processes
from falkirk.platform.durable import write_atomically
from falkirk.platform.machine_time import MachineTime
from falkirk.platform.stored import parse_json
from falkirk.recovery.ownership.folder import Home
from falkirk.theory.ids import EpochNumber, Offset

log = logging.getLogger("falkirk")

#: A running owner finds a later claim and ends within this time, which is ten times the measured one.
FENCED_S = 5.0
#: The same for one whose lease was over, so that it has ended or stood still, and whose results the broker refuses.
REPLACED_S = 1.0
#: The time between two looks at the topic's id, and how long one may take. Together less than `FENCED_S`.
LOOK_S, _LOOK_MAX_S = 2.0, 1.0
#: The kind of decision with the token of an owner's claim, and how many of them are kept.
_TOKEN, _TOKENS = "claim", 200
#: The kind of decision with the id of the topic of claims.
_TOPIC = "topic of claims"
#: A new owner reads this many claims before its own, because an older owner may not have found the last one yet.
_FORMER = 100
_POLL_S = 0.1
_TIMEOUT_S = 15.0
#: A file in a home whose owner was replaced by that of a copy. It names the new owner. With this file, nothing starts.
MARK = "copied"
#: The first part of the text that a claim's tag covers, also used in place of an incarnation.
_SIGNED_AS = "claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process that has claimed a home.

    Args: machine: identifies the machine, its boot and its process namespace. began: identifies the process together
        with `pid`. host, home: the machine's name and the home's folder. generation: the generation in its store.
        token: is in its store as well; empty: an earlier version of Falkirk wrote the claim.
    """

    machine: str
    pid: int
    began: str
    host: str
    home: str
    generation: int
    at_s: float
    token: str = ""

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
            token=secrets.token_hex(8),
        )

    @classmethod
    def read(cls, value: bytes | None) -> "Owner":
        """Return the owner that a record names. A record that can't be read counts as the claim of an unknown owner."""
        try:
            content = parse_json(value or b"")
            given = {"token": "", **{f.name: content[f.name] for f in fields(cls) if f.name in content}}
            texts = [given[name] for name in ("machine", "began", "host", "home", "token")]
            if not all(isinstance(text, str) and "\0" not in text for text in texts) or type(given["pid"]) is not int:
                raise ValueError(given)
            return cls(**given)
        except (ValueError, KeyError, TypeError):
            return cls(machine="", pid=0, began="", host="unknown", home="unknown", generation=0, at_s=0.0)

    def signed(self, key: SigningKey, topic: str) -> bytes:
        """Return the record that claims the home for this owner."""
        content = {name: value for name, value in asdict(self).items() if (name, value) != ("token", "")}
        body = json.dumps(content).encode()
        tag = tag_of(key.of(topic, _SIGNED_AS), _SIGNED_AS.encode(), 0, None, body)
        return json.dumps({**content, "tag": tag}).encode()

    def has_signed(self, key: SigningKey, topic: str, value: bytes | None) -> bool:
        """Return whether a process with the secret of the home made a record that names this owner."""
        return hmac.compare_digest(self.signed(key, topic), value or b"")

    def has_ended(self) -> bool | None:
        """Return whether this process has stopped using its home; None: it can't be seen from this machine."""
        if self.machine != processes.machine():
            return None
        gone = processes.find_process(self.pid, self.began) is None
        return gone or not any(locks.is_held(Path(self.home), name) for name in (locks.OWNER, locks.HOST))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, home {self.home}"


_UNKNOWN = Owner.read(None)


class Claim:
    """This process's claim on a home.

    Args: clock: measures how long former owners have had to find this claim.
    Attributes: former: the earlier owners, oldest first, without those in the same folder. forged: the number of
        foreign records, and the offset of the first one.
    Raises: HomeError: `HOME_COPIED`: a copy of this home took over earlier. LogError.
    """

    def __init__(self, connection: Connection, home: Home, clock: MachineTime = time) -> None:
        self._home, self._mine, self._lock, self._clock = home, Owner.of(home), threading.Lock(), clock
        refuse_copied(home.path)
        self._place = self._mine.machine, self._mine.home
        self.topic = internal_topic(home.application, home.identity, "owner.claims")  # names of users hold no dots
        self._connection, self._topics = connection, Topics(connection, timeout_s=_LOOK_MAX_S)
        topics = Topics(connection)
        topics.create(self.topic, 1, KEEP)
        self._key = home.store.signing_key()
        self.forged, self._seen = (0, -1), set[bytes]()
        home.store.require_charge()  # a claim after that of a successor would end it
        self._id, is_other = self._held(topics)
        self._tokens = self._record_token()
        self._offset = _append(connection, self.topic, self._mine.signed(self._key, self.topic))
        self._claimed_s = self._looked_s = clock.monotonic()
        self._reader = Reader(connection, self.topic, {0: Offset(max(0, self._offset - _FORMER))})
        self.former: list[Owner] = [_UNKNOWN] if is_other else []
        self._newest: Owner | None = None
        while self._reader.positions[0] <= self._offset:
            self._read(0.2)
            if clock.monotonic() > self._claimed_s + _TIMEOUT_S:
                raise away("reading the owner of the home", connection, self.topic, "STALLED", ClientErrors())

    def _held(self, topics: Topics) -> tuple[str, bool]:
        """Return the topic's id, and whether this home has known another one. Record it if it is new.

        Raises: LogError, StoreError.
        """
        identity, known = topics.identity(self.topic), self._home.store.newest_decision(_TOPIC, self.topic)
        if known is None or known.content["id"] != identity:
            number = 0 if known is None else known.number + 1
            self._home.store.record_decision(_TOPIC, self.topic, number, {"id": identity})
        return identity, known is not None and known.content["id"] != identity

    def _record_token(self) -> frozenset[str]:
        """Record the token of this claim; return those of all owners of this store. Raises: StoreError."""
        store, newest = self._home.store, self._home.store.newest_decision(_TOKEN, self.topic)
        number = 0 if newest is None else newest.number + 1
        store.record_decision(_TOKEN, self.topic, number, {"token": self._mine.token})
        if number % _TOKENS == 0:
            store.forget_epochs(_TOKEN, self.topic, EpochNumber(number - _TOKENS))
        return frozenset(str(decided.content["token"]) for decided in store.decisions(_TOKEN, self.topic))

    def _look(self) -> None:
        """Read the topic from its beginning, if it is another one than before. Raises: LogError."""
        if self._clock.monotonic() < self._looked_s + LOOK_S:
            return
        self._looked_s = self._clock.monotonic()
        if (identity := self._topics.identity(self.topic)) != self._id:
            self._reader.close()
            self._reader = Reader(self._connection, self.topic, {0: Offset(0)})
            self._seen.clear()
            self._id, self._offset = identity, -1  # all claims there are later than that of this process

    def _read(self, timeout_s: float) -> None:
        for message in self._reader.poll(timeout_s):
            owner = Owner.read(message.value())
            if not self._is_believed(owner, message):
                if message.offset() < self._offset and _UNKNOWN not in self.former:
                    self.former.append(_UNKNOWN)
                continue
            if (owner.machine, owner.home) == self._place:
                continue  # the locks and the generation decide between two processes in one folder
            if message.offset() < self._offset:
                self.former.append(owner)
            elif owner.token not in self._tokens:
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
            log.warning("%r has a record at offset %d that is no claim of this home", self.topic, message.offset())
        return False

    def foreign_records(self) -> list[dict[str, object]]:
        """Return the foreign records in the topic of claims, as `Place.foreign_records` does."""
        count, first = self.forged
        example = {
            "topic": self.topic,
            "count": count,
            "partition": 0,
            "offset": first,
            "reason": "no claim of this home",
        }
        return [example] if count else []

    def check(self) -> None:
        """Refuse to continue if this process is no longer the owner. Call it at least once a second.

        If claims can't be read now, the next call reads them.

        Raises: StoreError: `HOME_TAKEN_OVER`: another process works with the same store. HomeError: `HOME_COPIED`:
            another process works with a copy.
        """
        with self._lock, contextlib.suppress(LogError):
            self._read(0)
            self._look()
        newest = self._newest
        try:
            # After reading: an owner with the same store takes its generation before it claims.
            self._home.store.require_charge()
        except StoreError as error:
            if error.condition == "HOME_TAKEN_OVER":
                raise
        else:
            if newest is not None:
                with contextlib.suppress(OSError):  # a full disk; then the next start of this home takes over again
                    write_atomically(self._home.path / MARK, str(newest))
        if newest is not None:
            raise _copied(self._home.path, str(newest))

    def await_former(
        self, is_over: Callable[[], bool] = lambda: False, *, replaced: tuple[str, int] | None = None
    ) -> None:
        """Wait until former owners have ended or must have found this claim. Call it before the first write.

        At its end it looks for later claims, because the owner may have planned for a long time since its own.

        Args: is_over: returns True to end the wait. replaced: the machine and the generation of an owner whose lease
            was over, if outputs are fenced. If it is not visible, the wait is `REPLACED_S`.
        Raises: HomeError: `LEFTOVER_ALIVE`: the process of a former owner is alive, and perhaps stopped. As `check`.
        """
        for former in self.former:
            within_s = REPLACED_S if (former.machine, former.generation) == replaced else FENCED_S
            while not (has_ended := former.has_ended()) and not is_over():
                waited_s = self._clock.monotonic() - self._claimed_s
                if has_ended is None and waited_s > within_s:
                    break
                if waited_s > 2 * FENCED_S:
                    raise LEFTOVER_ALIVE.error(where=self._home.path, pids=[former.pid], former=former)
                self.check()
                self._clock.sleep(_POLL_S)
        self.check()

    def close(self) -> None:
        """Close the reader of claims."""
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
    assert offset is not None, "a delivered record has an offset"
    return offset


def refuse_copied(home: Path) -> None:
    """Refuse a home if a copy of it has taken over. Raises: HomeError: `HOME_COPIED`."""
    mark = home / MARK
    if mark.exists():
        raise _copied(home, mark.read_text())


def _copied(home: Path, by: str) -> HomeError:
    return HOME_COPIED.error(where=home, by=by, mark_file=MARK)
