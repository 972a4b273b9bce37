"""Client: a separate process that produces records at a steady rate and measures the latency of their results."""

import json
import multiprocessing
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.queues import Queue
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

#: After the last record was sent: the longest time without a result, and the longest wait for late results in all.
SILENCE_S = 30.0
PATIENCE_S = 90.0
#: After the last expected result: how long the client waits for repeated results.
LINGER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The records to send, and the topic to read. Each record is (identity, key, value, number of outputs).

    Args:
        sources: the topics to write; they take turns.
        identity_field: the field of an output that names the record that caused it. warm_up_s: the time at the
            beginning whose records are not counted. silence_s: the longest time without a result after the
            last record.
    """

    bootstrap: str
    sources: Sequence[str]
    sink: str
    identity_field: str
    records: Sequence[tuple[str, str, str, int]]
    rate: float
    warm_up_s: float
    silence_s: float = SILENCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The latencies of the counted records, in seconds, and when each was sent, on the monotonic clock.

    Args: missing: the number of records without all their outputs. repeated: surplus outputs, of all records.
    """

    latencies_s: list[float]
    sent_at_s: list[float]
    missing: int
    repeated: int

    def since(self, due_s: float) -> "Measured":
        """Return it with latencies that count from a moment after the records were sent."""
        return replace(self, latencies_s=[latency_s - due_s for latency_s in self.latencies_s])

    def points(self) -> list[tuple[float, float]]:
        """Return (sent at, latency) in the order of sending."""
        return sorted(zip(self.sent_at_s, self.latencies_s, strict=True))

    def longest_per(self, interval_s: float) -> list[float]:
        """Return the longest latency of each full interval: the longest wait for a checkpoint."""
        points = self.points()
        if not points:
            return []
        slots = int((points[-1][0] - points[0][0]) / interval_s + 0.05)
        longest = [0.0] * slots
        for sent, latency_s in points:
            slot = int((sent - points[0][0]) / interval_s)
            if slot < slots:
                longest[slot] = max(longest[slot], latency_s)
        return longest


def start_measuring(measurement: Measurement) -> "tuple[multiprocessing.process.BaseProcess, Queue[Any]]":
    """Start the client; its `Measured` arrives in the queue."""
    context = multiprocessing.get_context("spawn")
    results: Queue[Any] = context.Queue()
    process = context.Process(target=_measure, args=(measurement, results), daemon=True)
    process.start()
    return process, results


def _measure(measurement: Measurement, results: "Queue[Any]") -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the bench ends its children
    consumer = Consumer(
        {
            "bootstrap.servers": measurement.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    admin = AdminClient({"bootstrap.servers": measurement.bootstrap, "log_level": 0})
    partitions = admin.list_topics(measurement.sink, timeout=30).topics[measurement.sink].partitions
    consumer.assign([TopicPartition(measurement.sink, p, 0) for p in partitions])
    due = {identity: count for identity, _, _, count in measurement.records if count}
    sent_at_s: dict[str, float] = {}
    done = threading.Event()
    producer = threading.Thread(target=_produce, args=(measurement, sent_at_s, done), daemon=True)
    producer.start()
    latency_s: dict[str, float] = {}
    repeated, last_s, done_s = 0, time.monotonic(), 0.0
    while due or time.monotonic() - last_s < LINGER_S:
        if done.is_set():
            done_s = done_s or time.monotonic()
            if time.monotonic() - max(last_s, done_s) > measurement.silence_s or time.monotonic() - done_s > PATIENCE_S:
                break
        message = consumer.poll(0.1)  # poll() returns the first message at once; consume() would wait for more
        if message is None or message.error() is not None:
            continue
        now = last_s = time.monotonic()
        identity = str(json.loads(message.value() or b"{}").get(measurement.identity_field))
        if identity not in due:
            repeated += 1
            continue
        due[identity] -= 1
        if due[identity] == 0:
            latency_s[identity] = now - sent_at_s[identity]
            del due[identity]
    consumer.close()
    first = measurement.warm_up_s * measurement.rate
    counted = [i for n, (i, _, _, count) in enumerate(measurement.records) if count and n >= first]
    came = [i for i in counted if i in latency_s]
    results.put(
        Measured(
            latencies_s=[latency_s[i] for i in came],
            sent_at_s=[sent_at_s[i] for i in came],
            missing=len(counted) - len(came),
            repeated=repeated,
        )
    )


def _produce(measurement: Measurement, sent_at_s: dict[str, float], done: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": measurement.bootstrap, "linger.ms": 0, "log_level": 0})
    began = time.monotonic()
    for number, (identity, key, value, _) in enumerate(measurement.records):
        time.sleep(max(0.0, began + number / measurement.rate - time.monotonic()))
        sent_at_s[identity] = time.monotonic()
        producer.produce(measurement.sources[number % len(measurement.sources)], key=key, value=value)
        producer.poll(0)
    producer.flush()
    done.set()
