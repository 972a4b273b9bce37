"""Probes: sends load to a running subject, and measures its results, round by round.

A record is *answered* once a result of its key that includes it can be read. A running count answers each record with
one result; an epoch answers all its records of a key with one result. Records of a key have rising numbers and stay in
one partition, so a result with the number n answers all records of its key up to n.
"""

import json
import random
import threading
import time
from collections import deque
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics

WORDS = 40
#: After the last record was sent: the longest time without a result before the probe gives up.
SILENCE_S = 300.0
#: The pause between two looks for the results of a burst.
LOOK_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Records at a steady rate: the latencies of answered records, in seconds, and when each was sent on the monotonic
    clock, in the order of sending. Args: missing: the number of records without an answer."""

    latencies_s: list[float]
    sent_at_s: list[float]
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Records sent at once. Args: since_first_s: from the first record until all were answered. since_there_s: from
    the moment when all were sent."""

    records: int
    since_first_s: float
    since_there_s: float


class Probe:
    """Sends records (word, n) to one topic and reads results (word, n) from another.

    Args: each: every record has a separate result, so results need only be counted. text: the number of random letters
        in each record.
    """

    def __init__(self, bootstrap: str, source: str, sink: str, *, each: bool, text: int = 0) -> None:
        self._source, self._sink, self._each, self._text = source, sink, each, text
        self._random = random.Random(1)
        self._topics = Topics(Connection.of(bootstrap))
        common = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer = Producer({**common, "linger.ms": 0})
        self._in_bursts = Producer({**common, "linger.ms": 5, "queue.buffering.max.messages": 2_000_000})
        self._consumer = Consumer({**common, "group.id": "bench", "enable.auto.commit": False})
        self.sent = 0
        #: The records that wait for an answer, oldest first, by word.
        self._waiting: dict[str, deque[tuple[int, float]]] = {f"w{i}": deque() for i in range(WORDS)}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def steady(self, rate: float, seconds: float) -> Window:
        """Send records at a steady rate. Wait until all are answered, or no result has arrived for a long time."""
        self._from_now()
        found: list[tuple[float, float]] = []
        done = threading.Event()
        sender = threading.Thread(target=self._send_steadily, args=(rate, seconds, done), daemon=True)
        last_s = time.monotonic()
        sender.start()
        while not (done.is_set() and not self._left()):
            message = self._consumer.poll(0.1)  # returns the first message at once
            now = time.monotonic()
            if message is not None and message.error() is None:
                last_s = now
                found += [(sent, now - sent) for sent in self._answer(message.value() or b"{}")]
            if done.is_set() and now - last_s > SILENCE_S:
                break
        sender.join()
        missing = self._left()
        for waiting in self._waiting.values():
            waiting.clear()
        found.sort()
        return Window(latencies_s=[s for _, s in found], sent_at_s=[at for at, _ in found], missing=missing)

    def burst(self, records: int) -> Burst | None:
        """Send records as fast as possible, and wait for the results. None: some results did not arrive."""
        values = [self._record() for _ in range(records)]
        before = self._results()
        self._from_now()
        began = time.monotonic()
        for word, value in values:
            self._in_bursts.produce(self._source, key=word, value=value)
        self._in_bursts.flush()
        there = time.monotonic()
        if not (self._counted(before + records) if self._each else self._all_answered()):
            return None
        now = time.monotonic()
        for waiting in self._waiting.values():
            waiting.clear()
        return Burst(records=records, since_first_s=now - began, since_there_s=now - there)

    def results_beyond(self) -> int:
        """Return the number of surplus results; for epochs, by how much the counts are too high. It is negative if
        results are missing."""
        ends = self._topics.end_positions(self._sink)
        if self._each:
            return sum(ends.values()) - self.sent
        self._consumer.assign([TopicPartition(self._sink, p, 0) for p in ends])
        left, counted = int(sum(ends.values())), 0
        while left and (message := self._consumer.poll(10.0)) is not None:
            if message.error() is None:
                counted += int(json.loads(message.value() or b"{}")["version"])
                left -= 1
        return counted - self.sent

    def _counted(self, results: int) -> bool:
        last, last_s = -1, time.monotonic()
        while (found := self._results()) < results:
            if found != last:
                last, last_s = found, time.monotonic()
            elif time.monotonic() - last_s > SILENCE_S:
                return False
            time.sleep(LOOK_S)
        return True

    def _all_answered(self) -> bool:
        last_s = time.monotonic()
        while self._left():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                last_s = time.monotonic()
                self._answer(message.value() or b"{}")
            elif time.monotonic() - last_s > SILENCE_S:
                return False
        return True

    def _from_now(self) -> None:
        ends = self._topics.end_positions(self._sink)
        self._consumer.assign([TopicPartition(self._sink, p, end) for p, end in ends.items()])

    def _results(self) -> int:
        ends = self._topics.end_positions(self._sink)
        return sum(ends.values())

    def _record(self) -> tuple[str, str]:
        word = f"w{self._random.randrange(WORDS)}"
        with self._lock:
            self._waiting[word].append((self.sent, time.monotonic()))
        text = {"text": self._random.randbytes(self._text // 2).hex()} if self._text else {}
        value = json.dumps({"word": word, "n": self.sent, **text})
        self.sent += 1
        return word, value

    def _send_steadily(self, rate: float, seconds: float, done: threading.Event) -> None:
        began = time.monotonic()
        try:
            for number in range(int(rate * seconds)):
                time.sleep(max(0.0, began + number / rate - time.monotonic()))
                word, value = self._record()
                self._producer.produce(self._source, key=word, value=value)
                self._producer.poll(0)
            self._producer.flush()
        finally:
            done.set()

    def _answer(self, value: bytes) -> list[float]:
        """Return when the records were sent that a result answers first."""
        row = json.loads(value)
        answered = []
        with self._lock:
            waiting = self._waiting[row["word"]]
            while waiting and waiting[0][0] <= int(row["n"]):
                answered.append(waiting.popleft()[1])
        return answered

    def _left(self) -> int:
        with self._lock:
            return sum(map(len, self._waiting.values()))
