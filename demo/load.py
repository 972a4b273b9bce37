"""Load: sends the input of the demos, reads their output as any client would, and measures latencies."""

import json
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from confluent_kafka import Consumer, Producer, TopicPartition

from demo.modules import Event
from demo.pages import Page, words

T = TypeVar("T")
#: Seconds that a producer waits for a dead broker when it closes.
FLUSH_S = 5.0
#: The items per second of a slow sender.
SLOW_RATE = 0.5


def producer_of(bootstrap: str) -> Producer:
    """Return a producer that sends no duplicates, and waits for the broker without a limit."""
    settings = {"linger.ms": 0, "enable.idempotence": True, "delivery.timeout.ms": 2_147_483_647, "log_level": 0}
    return Producer({"bootstrap.servers": bootstrap, **settings})


def consumer_of(bootstrap: str, topic: str, partitions: int) -> Consumer:
    """Return a consumer that reads a topic from its beginning, without a group."""
    settings = {"group.id": "demo", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    return consumer


class Collector(threading.Thread, Generic[T]):
    """Reads the items to send while Spark starts: parsing a thousand modules takes several seconds."""

    def __init__(self, source: Iterator[T]) -> None:
        super().__init__(name="demo-collector", daemon=True)
        self._source = source
        self.stopping = threading.Event()
        self.found: list[T] = []

    def run(self) -> None:
        """Read until the items end or `stopping` is set."""
        for each in self._source:
            self.found.append(each)
            if self.stopping.is_set():
                break


class Sender(threading.Thread, Generic[T]):
    """Sends items to a topic at a steady rate, and records when each was sent. Subclasses define `record`.

    Attributes: slow: while it is set, the rate is at most `SLOW_RATE`. changes_due: the number of change records that
        the sent items cause.
    """

    def __init__(self, bootstrap: str, topic: str, items: Iterable[T], rate: float) -> None:
        super().__init__(name="demo-sender", daemon=True)
        self._producer = producer_of(bootstrap)
        self._topic, self._items, self._rate = topic, items, rate
        self.stopping, self.warm, self.slow = threading.Event(), threading.Event(), threading.Event()
        self.sent_at_s: dict[str, float] = {}
        self.began_s: float | None = None
        self.changes_due = 0

    def record(self, item: T) -> tuple[str, str, dict[str, Any], int]:
        """Return the name of an item, its key, its record, and the number of change records that it causes."""
        raise AssertionError("the subclasses define it")

    def run(self) -> None:
        """Send one item, wait for its results (`warm`), then send until the items end or `stopping` is set."""
        self.began_s = due_s = time.monotonic()
        for number, item in enumerate(self._items):
            if number == 1:
                self.warm.wait()
            due_s = max(due_s, time.monotonic() - 1.0)  # after a pause the sender does not catch up
            if self.stopping.wait(max(0.0, due_s - time.monotonic())):
                break
            due_s += 1 / (min(self._rate, SLOW_RATE) if self.slow.is_set() else self._rate)
            name, key, value, changes = self.record(item)
            self.changes_due += changes
            self.sent_at_s[name] = time.monotonic()
            self._producer.produce(self._topic, key=key, value=json.dumps(value, ensure_ascii=False))
            self._producer.poll(0)
        self._producer.flush(FLUSH_S)

    def recent(self, window_s: float = 10.0) -> int:
        """Return the number of items sent in the last seconds."""
        horizon = time.monotonic() - window_s
        return sum(sent_at_s >= horizon for sent_at_s in list(self.sent_at_s.values()))


class PageProducer(Sender[Page]):
    """Sends pages."""

    def record(self, item: Page) -> tuple[str, str, dict[str, Any], int]:
        """See `Sender`."""
        return item.name, item.name, {"page": item.name, "text": item.text}, len(set(words(item.text)))


class ModuleProducer(Sender[Event]):
    """Sends versions of modules."""

    def record(self, item: Event) -> tuple[str, str, dict[str, Any], int]:
        """See `Sender`."""
        said = set(words(f"{item.name} {item.text}"))
        return f"{item.name} {item.version}", item.name, item.as_dict(), len(said)


class Reader(threading.Thread):
    """Reads change records as any consumer would, and measures the latency of each.

    Args: sent_at_s: when each item was sent, by name.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, sent_at_s: dict[str, float]) -> None:
        super().__init__(name="demo-reader", daemon=True)
        self._consumer = consumer_of(bootstrap, topic, partitions)
        self._sent_at_s = sent_at_s
        self.stopping = threading.Event()
        self.received = 0
        self.latencies_s: list[float] = []
        self._recent: deque[tuple[float, float]] = deque()

    def take(self, change: dict[str, Any]) -> str:
        """Process a change record. Return the name of the item that caused it."""
        return f"{change['module']} {change['version']}"

    def run(self) -> None:
        """Read until `stopping` is set."""
        while not self.stopping.is_set():
            for message in self._consumer.consume(500, 0.05):
                if message.error() is not None:
                    continue  # a temporary error of the broker; only records matter
                now = time.monotonic()
                latency_s = now - self._sent_at_s.get(self.take(json.loads(message.value() or b"{}")), now)
                self.received += 1
                self.latencies_s.append(latency_s)
                self._recent.append((now, latency_s))
        self._consumer.close()

    def recent_s(self, window_s: float = 10.0) -> list[float]:
        """Return the latencies of the last seconds."""
        horizon = time.monotonic() - window_s
        while self._recent and self._recent[0][0] < horizon:
            self._recent.popleft()
        return [latency_s for _, latency_s in list(self._recent)]


class IndexReader(Reader):
    """Reads the change records of the word index, and stores them so that words can be looked up."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, sent_at_s: dict[str, float]) -> None:
        super().__init__(bootstrap, topic, partitions, sent_at_s)
        self.index: dict[str, list[tuple[str, int]]] = {}

    def take(self, change: dict[str, Any]) -> str:
        """See `Reader`."""
        self.index.setdefault(change["word"], []).append((change["page"], len(change["positions"])))
        return str(change["page"])


def percentiles_ms(latencies_s: list[float]) -> list[float]:
    """Return the 50th, 95th and 99th percentile (nearest rank) and the maximum of latencies, in milliseconds; empty
    without latencies."""
    if not latencies_s:
        return []
    ordered = sorted(latencies_s)
    ranks = [max(0, -(-len(ordered) * point // 100) - 1) for point in (50, 95, 99)]
    return [1000 * ordered[rank] for rank in ranks] + [1000 * ordered[-1]]
