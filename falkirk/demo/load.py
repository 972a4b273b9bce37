"""The demo's outside world: a producer of pages and an ordinary reader of the index, which measures latency."""

import json
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator

from confluent_kafka import Consumer, Producer, TopicPartition

from falkirk.demo.pages import Page, words


class Collector(threading.Thread):
    """Reads pages while Spark starts: parsing a thousand modules takes several seconds."""

    def __init__(self, source: Iterator[Page]) -> None:
        super().__init__(name="demo-collector", daemon=True)
        self._source = source
        self.stopping = threading.Event()
        self.pages: list[Page] = []

    def run(self) -> None:
        """Read until there are no more or `stopping` is set."""
        for page in self._source:
            self.pages.append(page)
            if self.stopping.is_set():
                break


class PageProducer(threading.Thread):
    """Sends pages at a steady rate, noting when each was sent."""

    def __init__(self, bootstrap: str, topic: str, pages: Iterable[Page], rate: float) -> None:
        super().__init__(name="demo-producer", daemon=True)
        # Idempotent: a page that the client sent twice would be two pages.
        settings = {"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer(settings)
        self._topic, self._pages, self._rate = topic, pages, rate
        self.stopping, self.warm = threading.Event(), threading.Event()
        self.sent_at_s: dict[str, float] = {}
        self.began_s: float | None = None
        self.changes_due = 0

    def run(self) -> None:
        """Send one page, wait until it has come through (`warm`), then send until the pages end or `stopping` is
        set."""
        self.began_s = began = time.monotonic()
        for number, page in enumerate(self._pages):
            if number == 1:
                self.warm.wait()
                began = time.monotonic() - 1 / self._rate
            if self.stopping.wait(max(0.0, began + number / self._rate - time.monotonic())):
                break
            value = json.dumps({"page": page.name, "text": page.text}, ensure_ascii=False)
            self.changes_due += len(set(words(page.text)))
            self.sent_at_s[page.name] = time.monotonic()
            self._producer.produce(self._topic, key=page.name, value=value)
            self._producer.poll(0)
        self._producer.flush()

    def recent(self, window_s: float = 10.0) -> int:
        """Return how many pages were sent in the last seconds."""
        horizon = time.monotonic() - window_s
        return sum(sent_at_s >= horizon for sent_at_s in list(self.sent_at_s.values()))


class IndexReader(threading.Thread):
    """Reads change records as any consumer would, and measures how long after its page each arrives."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, sent_at_s: dict[str, float]) -> None:
        super().__init__(name="demo-reader", daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "demo",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        self._sent_at_s = sent_at_s
        self.stopping = threading.Event()
        self.received = 0
        self.index: dict[str, list[tuple[str, int]]] = {}
        self.latencies_s: list[float] = []
        self._recent: deque[tuple[float, float]] = deque()

    def run(self) -> None:
        """Read until `stopping` is set."""
        while not self.stopping.is_set():
            for message in self._consumer.consume(500, 0.05):
                if message.error() is not None:
                    continue  # the broker's passing troubles; what matters is what arrives
                now = time.monotonic()
                change = json.loads(message.value() or b"{}")
                latency_s = now - self._sent_at_s.get(change["page"], now)
                self.received += 1
                self.latencies_s.append(latency_s)
                self._recent.append((now, latency_s))
                self.index.setdefault(change["word"], []).append((change["page"], len(change["positions"])))
        self._consumer.close()

    def recent_s(self, window_s: float = 10.0) -> list[float]:
        """Return the latencies of the last seconds."""
        horizon = time.monotonic() - window_s
        while self._recent and self._recent[0][0] < horizon:
            self._recent.popleft()
        return [latency_s for _, latency_s in list(self._recent)]


def percentiles_ms(latencies_s: list[float], points: tuple[float, ...] = (50, 95, 99)) -> list[float]:
    """Return percentiles of latencies in milliseconds (nearest rank), then the greatest; empty without latencies."""
    if not latencies_s:
        return []
    ordered = sorted(latencies_s)
    ranks = [min(len(ordered) - 1, int(len(ordered) * point / 100)) for point in points]
    return [1000 * ordered[rank] for rank in ranks] + [1000 * ordered[-1]]
