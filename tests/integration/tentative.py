"""An application whose first region makes random values, and the check that no published result was ever contradicted.

    events ▶ [drawn: adds a uuid to each] ▶ log ▶ [by word] ▶ hop ▶ [lots: a chain over the uuids] ▶ held ▶ sink

The valid records of the hop (all but its void ranges) determine every result, so the oracle needs only them.
"""

import json
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.checker import read_topic
from falkirk.declare.policy import Duration
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.recovery.decision_store import Store

#: Regions of the application, upstream first.
REGIONS = DRAWN, BY_WORD, COUNTS = "drawn-out", "lots-by-word", "counts"


def application(
    events: str, counts: str, home: Path, *, history: int = 1000, interval: Duration = "4 seconds",
    often: Duration = "2 seconds",
) -> fk.App:  # fmt: skip
    """Return the application. Args: interval, often: between checkpoints of the first region, and of the second."""
    app = fk.App("tentative", home=home, history=history)
    app.source("events", fk.Kafka(events, schema="word STRING NOT NULL, n INT"))

    @app.stream(fk.Lazy(interval))
    def drawn(events: fk.Stream) -> fk.Stream:
        # The planner must assume that several results of an event share the uuid, so they wait for a checkpoint.
        return events.withColumn("lot", F.expr("uuid()")).explode(F.array(F.lit(0)), "part")

    @app.stream(fk.Lazy(often))  # it saves more often than the region before it, so it must go back by several
    def lots(drawn: fk.Stream) -> fk.Stream:
        return drawn.groupBy("word").agg(
            F.count("*").alias("version"),
            fk.latest_value("n"),
            fk.latest_value("lot"),
            F.sum(F.crc32(F.col("lot").cast("binary"))).alias("chain"),
        )

    app.sink("counts", lots, fk.Kafka(counts, key="word"))
    return app


class Hop:
    """Every record that was ever in a topic, taken down before anything of it is collected."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.records: dict[tuple[int, int], dict[str, Any]] = {}
        self._stop = Event()

    def take_down(self) -> None:
        for record in read_topic({"bootstrap.servers": self.bootstrap}, self.topic):
            self.records[record.partition, record.offset] = json.loads(record.value or b"null")

    @contextmanager
    def watched(self) -> Iterator["Hop"]:
        thread = Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()
            self.take_down()

    def _watch(self) -> None:
        """Take down each record when it arrives. Only a consumer that stays open reads none of them twice."""
        topics = Topics(Connection.of(self.bootstrap))
        while not topics.exists(self.topic):
            if self._stop.wait(0.5):
                return
        settings = {"bootstrap.servers": self.bootstrap, "group.id": f"hop-{uuid4()}", "enable.auto.commit": False}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "log_level": 0})
        try:
            partitions = topics.end_positions(self.topic)
            consumer.assign([TopicPartition(self.topic, partition, OFFSET_BEGINNING) for partition in partitions])
            while not self._stop.is_set():
                for message in consumer.consume(1_000, timeout=0.5):
                    if message.error() is None:  # collected records were taken down before
                        self.records[message.partition(), message.offset()] = json.loads(message.value() or b"null")
        finally:
            consumer.close()


def expected(hop: Hop, store: Store) -> dict[str, list[dict[str, Any]]]:
    """Return, per word, the results that the counting records of the hop determine."""
    void = {(v.partition, o) for v in store.voided_ranges(hop.topic) for o in range(v.first, v.last_exclusive)}
    results: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for place in sorted(hop.records):
        if place in void:
            continue
        record = hop.records[place]
        before = results[record["word"]][-1] if results[record["word"]] else {"version": 0, "chain": 0}
        results[record["word"]].append(
            {
                "word": record["word"],
                "version": before["version"] + 1,
                "n": record["n"],
                "lot": record["lot"],
                "chain": before["chain"] + _crc32(record["lot"]),
            }
        )
    return results


def released(bootstrap: str, counts: str) -> dict[str, list[dict[str, Any]]]:
    """Return, per word, the results that an ordinary consumer of the sink has found, in order."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in sorted(read_topic({"bootstrap.servers": bootstrap}, counts), key=lambda r: (r.partition, r.offset)):
        row = json.loads(record.value or b"null")
        found[row["word"]].append(row)
    return found


def _crc32(text: str) -> int:
    return zlib.crc32(text.encode())
