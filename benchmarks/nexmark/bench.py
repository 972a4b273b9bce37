"""Nexmark bench: runs each query, and compares its results with Spark SQL (`python -m benchmarks nexmark`).

Each query runs alone, in a process and a JVM of its own. Events arrive at a steady rate, and the time of an event is
the time at which it is sent. At the end, an event for each partition closes all windows. The latency is that of live
queries, as Falkirk's metrics have it: from the timestamp of a record until its result is acknowledged.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from benchmarks.child import Child, serve_application
from benchmarks.nexmark.events import KEYS, Event, closing, events
from benchmarks.nexmark.queries import QUERIES, application
from benchmarks.nexmark.reference import Reference
from benchmarks.report import Report
from falkirk.app import App
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import read_range
from falkirk.kafka_client.topics import Topics
from falkirk.runtime.spark.status import LATENCY_BOUNDS_S
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.spark import spark_session
from falkirk.theory.ids import Offset, Offsets
from falkirk.user_tools.commands.dashboard.latency import quantile

PARTITIONS = 2
#: A query is complete when no result has come for this long after the last event, and its epochs have passed.
SILENCE_S = 15.0
PATIENCE_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NexmarkSettings:
    """The settings. Args: rate: events per second. warm_up_s: without measurement. seconds: measured."""

    queries: tuple[str, ...] = tuple(QUERIES)
    rate: float = 100.0
    warm_up_s: float = 15.0
    seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A query that is run."""

    query: str
    bootstrap: str
    tag: str
    home: Path

    def application(self) -> App:
        """See Declared."""
        return application([self.query], tag=self.tag, home=self.home)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    sent: list[Event]
    found: list[dict[str, Any]]


def run_nexmark(settings: NexmarkSettings, say: Callable[[str], None]) -> Report:
    """Run the queries, one after the other, and compare their results. Args: say: takes a line for each query."""
    report = Report(bench="nexmark", settings={"rate": settings.rate, "seconds": settings.seconds})
    ran: dict[str, _Ran] = {}
    folder = Path(tempfile.mkdtemp(prefix="falkirk-nexmark-"))
    try:
        bootstrap = local_broker.start(folder / "broker").bootstrap
        for query in settings.queries:
            ran[query] = _run_query(query, bootstrap, folder / query, settings, report, say)
    finally:
        local_broker.stop(folder / "broker")
        shutil.rmtree(folder, ignore_errors=True)
    session = spark_session("nexmark", master="local[2]", brief=True, shows_log=False)
    for query, each in ran.items():
        rows = {topic: [e.row for e in each.sent if e.topic == topic] for topic in KEYS}
        differing = Reference(session, rows).differences(query, each.found)
        counts = {kind: found.total() for kind, found in differing.items()}
        report.figures |= {f"{query}_{kind}": float(count) for kind, count in counts.items()}
        say(f"{query}: {len(each.found)} results, {counts['missing']} missing, {counts['surplus']} surplus")
    session.stop()
    return report


def _run_query(
    query: str, bootstrap: str, home: Path, settings: NexmarkSettings, report: Report, say: Callable[[str], None]
) -> _Ran:
    tag, topics = f"{query}-", Topics(Connection.of(bootstrap))
    for topic in KEYS:
        topics.create(tag + topic, PARTITIONS)
    child = Child(serve_application, Subject(query=query, bootstrap=bootstrap, tag=tag, home=home), query)
    try:
        child.await_running()
        begin, apart = datetime.now(UTC) + timedelta(seconds=1), timedelta(seconds=1 / settings.rate)
        count = int(settings.rate * (settings.warm_up_s + settings.seconds))
        made = list(events(count, begin=begin, apart=apart))
        warm = int(settings.rate * settings.warm_up_s)
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
        _send(producer, tag, made[:warm])
        before = child.ask()
        _send(producer, tag, made[warm:])
        after = child.ask()
        for partition in range(PARTITIONS):
            last = list(closing(begin + timedelta(hours=1), partition))
            _send(producer, tag, last, partition)
            made += last
        found = _settled(topics, bootstrap, tag + query)
        child.stop()
    finally:
        child.kill()
    _tell(query, before, after, report, say)
    return _Ran(sent=made, found=found)


def _send(producer: Producer, tag: str, sent: Iterable[Event], partition: int | None = None) -> None:
    """Send events, each at its time if that has not passed."""
    for event in sent:
        wait_s = (event.row["at"] - datetime.now(UTC)).total_seconds()
        if 0 < wait_s < 60:
            producer.poll(0)
            time.sleep(wait_s)
        key, value = str(event.row[KEYS[event.topic]]), json.dumps(event.row, default=_text)
        producer.produce(tag + event.topic, value, key, -1 if partition is None else partition)
    producer.flush(30)


def _text(at: datetime) -> str:
    return at.isoformat()


def _settled(topics: Topics, bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """Return all results, once no more come."""
    began = changed_s = time.monotonic()
    ends: Offsets = {}
    while time.monotonic() - changed_s < SILENCE_S and time.monotonic() - began < PATIENCE_S:
        time.sleep(0.5)
        now = topics.end_positions(topic)
        if now != ends:
            ends, changed_s = now, time.monotonic()
    return [json.loads(r.value or b"null") for r in read_range(bootstrap, topic, dict.fromkeys(ends, Offset(0)), ends)]


def _tell(query: str, before: Any, after: Any, report: Report, say: Callable[[str], None]) -> None:
    """Report the latencies that were measured between two looks."""
    counts = [b - a for a, b in zip(_counts(before), _counts(after), strict=True)]
    p50, p99 = quantile(counts, 0.5), quantile(counts, 0.99)
    if p50 is None or p99 is None:
        say(f"{query}: in epochs")
        return
    report.figures |= {f"{query}_p50_ms": 1000 * p50, f"{query}_p99_ms": 1000 * p99, f"{query}_count": sum(counts)}
    say(f"{query}: live, {sum(counts)} results, p50 {1000 * p50:.1f} ms, p99 {1000 * p99:.0f} ms")


def _counts(figures: Sequence[dict[str, Any]]) -> list[int]:
    """Return the histogram of the only live sink, over all of its regions."""
    found = [0] * (len(LATENCY_BOUNDS_S) + 1)
    for region in figures:
        for sink in region.get("sinks", {}).values():
            found = [a + b for a, b in zip(found, sink.get("counts") or found, strict=True)]
    return found
