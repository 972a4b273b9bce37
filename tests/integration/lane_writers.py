"""Writers of single tasks of a region, as Spark calls them, and what readers see of them."""

from typing import Any

from pyspark.sql import SparkSession

from falkirk.checker import TopicRecord
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.fencing import take_ids
from falkirk.kafka_client.header import Header
from falkirk.theory.ids import Incarnation, Offset
from falkirk.theory.stamp import Stamp
from tests.integration.live import Wire

#: The errors by which the broker refuses a producer whose id another one has taken.
REFUSED = r"ProducerFenced|InvalidProducerEpoch"


class Writer:
    """One task's writer of a region, as Spark calls it. Args: name: a name per JVM, because each has its lanes."""

    def __init__(
        self, spark: SparkSession, wire: Wire, topic: str, *, incarnation: int, token: str, jvm: str,
        gate: str = "gate", timeout_ms: int = 60_000, transactional: bool = True, letters: "Writer | None" = None,
        twins: bool = False,
    ) -> None:  # fmt: skip
        assert spark._jvm is not None
        self._spark, self._topic = spark, topic
        options = spark._jvm.java.util.HashMap()
        settings = {"transaction.timeout.ms": str(timeout_ms), "linger.ms": "0", "retry.backoff.ms": "1"}
        for name, value in {"bootstrap.servers": wire.bootstrap, "acks": "all", **settings}.items():
            options.put(name, value)
        made = spark._jvm.org.falkirk.KafkaWriter(f"{jvm}-{wire.tag}", incarnation, 1, "falkirk", options)
        self._writer = made.fenced(f"{wire.tag}.lane-", f"{wire.tag}.{gate}", token, 60_000) if transactional else made
        if letters is not None:
            self._writer.withLetters(letters._topic, letters._writer)
        if twins:
            self._writer.twins(False)

    def batch(self, text: str, *, number: int = 0) -> None:
        self._writer.open(0, number)
        self.send(text)
        self.close()

    def open(self, number: int = 0) -> None:
        self._writer.open(0, number)

    def send(self, text: str, topic: str | None = None) -> None:
        self._writer.process(row_of(self._spark, topic or self._topic, text))

    def send_results(self, *offsets: int, topic: str | None = None) -> None:
        """Send the results of records with these offsets: their texts are the offsets."""
        for offset in offsets:
            stamp = Stamp(source=0, partition=0, offset=Offset(offset))
            header = Header(application="deadbeef", incarnation=Incarnation(1), stamp=stamp, state_partition=0)
            self._writer.process(row_of(self._spark, topic or self._topic, str(offset), header.encode()))

    def close(self) -> None:
        self._writer.close(None)


def row_of(spark: SparkSession, topic: str, text: str, header: bytes = b"header") -> Any:
    """Return a row as a region's query gives it to its writer."""
    gateway, jvm = spark.sparkContext._gateway, spark._jvm
    assert jvm is not None
    values = gateway.new_array(jvm.java.lang.Object, 5)
    for place, value in enumerate((topic, 0, None, text.encode(), header)):
        values[place] = value
    return jvm.org.apache.spark.sql.RowFactory.create(values)


def records(wire: Wire, topic: str) -> list[TopicRecord]:
    """Return the records that a reader of committed records sees."""
    return wire.records(topic)


def replace_writers(wire: Wire, *names: str) -> None:
    take_ids(Connection.of(wire.bootstrap), [f"{wire.tag}.{name}" for name in names])


def token_of(spark: SparkSession, wire: Wire, gate: str = "gate") -> str:
    return epoch_of(spark, wire, f"{wire.tag}.{gate}")


def epoch_of(spark: SparkSession, wire: Wire, name: str) -> str:
    assert spark._jvm is not None
    options = spark._jvm.java.util.Properties()
    options.put("bootstrap.servers", wire.bootstrap)
    found = spark._jvm.org.falkirk.Gate(options, name)
    try:
        return str(found.token())
    finally:
        found.close()


def texts(wire: Wire, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in records(wire, topic)]


def fence_lane(spark: SparkSession, wire: Wire) -> str:
    """Fence former writers, and return the token of the next incarnation."""
    replace_writers(wire, "gate")
    token = token_of(spark, wire)
    replace_writers(wire, "lane-0")
    return token
