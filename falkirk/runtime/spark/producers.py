"""Producers: asks the broker whether producers have left a hole in a topic, before the last record there.

The barrier assumes that the records in a topic are a prefix of the sent ones. This is wrong if the broker refuses a
record batch permanently, because it is too large, a permission was revoked, or the broker has an internal error. Then
later batches may be in the topic before Spark learns of the refusal. If the query fails visibly, Falkirk records the
error. It records nothing if all processes are killed at that moment, or if the query is being stopped.

But the broker knows. A producer numbers its batches for each partition, and the broker accepts no number before the
previous one. So a producer that has given up a batch can continue only in a new producer epoch, from 0. While it is in
its first epoch, no batch is missing.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from falkirk.errors.spark import first_line
from falkirk.theory.ids import LogId, Offset

log = logging.getLogger("falkirk")

#: How long to wait for the brokers.
_TIMEOUT_S = 10

#: Kafka's errors of reads and requests, which don't affect sent records. After any other error, the accepted records
#: need not be a prefix of the sent ones.
_HARMLESS = ("OffsetOutOfRangeException", "UnknownTopicOrPartitionException", "WakeupException")
_KAFKA_ERROR = re.compile(r"org\.apache\.kafka\.(?:common|clients)\.[\w.$]*?(\w+Exception)\b")


def is_error(text: str) -> bool:
    """Return whether the text of a query's error names an error of a producer."""
    return any(name not in _HARMLESS for name in _KAFKA_ERROR.findall(text))


def are_whole(
    session: SparkSession, options: Mapping[str, str], places: Mapping[LogId, Mapping[int, Offset]]
) -> bool | None:
    """Return whether the producers of these partitions have left no hole in them; None: unknown.

    Producers of others count too. A topic that only Falkirk writes has none.

    Args: options: of Spark's Kafka sink. places: partitions with records, by topic. The values are ignored.
    """
    wanted = [(topic, partition) for topic, found in sorted(places.items()) for partition in sorted(found)]
    if not wanted:
        return True
    try:
        epochs = _epochs(session, options, wanted)
    except Py4JError as error:  # the broker does not know the request, refuses it, or is away
        log.warning("the broker does not report which producers have written to a topic: %s", first_line(error))
        return None
    if not all(epochs):
        return None  # the broker has forgotten old producers
    return all(epoch == 0 for found in epochs for epoch in found)


def _epochs(session: SparkSession, options: Mapping[str, str], wanted: Sequence[tuple[str, int]]) -> list[list[int]]:
    """Return the epoch of each producer that a broker knows of, for each partition."""
    jvm: Any = session._jvm
    kafka, properties = jvm.org.apache.kafka, jvm.java.util.HashMap()
    for name, value in options.items():
        properties.put(name.removeprefix("kafka."), value)
    admin = kafka.clients.admin.Admin.create(properties)
    try:
        places = [kafka.common.TopicPartition(topic, partition) for topic, partition in wanted]
        listed = jvm.java.util.ArrayList()
        for place in places:
            listed.add(place)
        found = admin.describeProducers(listed).all().get(_TIMEOUT_S, jvm.java.util.concurrent.TimeUnit.SECONDS)
        return [[int(p.producerEpoch()) for p in found.get(place).activeProducers()] for place in places]
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(0))
