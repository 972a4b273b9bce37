"""Producers: whether a topic has all that a producer has sent up to the last record there, by the broker's word.

The barrier takes what a topic has accepted for a prefix of what was sent. A batch that the broker refuses for good (too
large for the topic, a right that was taken away, an error of the broker's own) is no such thing: those behind it may
be there already when Spark hears of it. Whoever sees the query fail records that. Nobody does if everything is killed
in that moment, or if the query is being stopped.

The broker knows. A producer numbers its batches for each partition, and no number is accepted before the one below it.
So a producer that has given up a batch can only go on in a new epoch, from 0. While it is in its first, nothing is
missing.
"""

import logging
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from falkirk.errors.spark import first_line

log = logging.getLogger("falkirk")

#: How long to wait for the brokers.
TIMEOUT_S = 10


def are_whole(
    session: SparkSession, options: Mapping[str, str], places: Mapping[str, Mapping[int, int]]
) -> bool | None:
    """Return whether the producers of these partitions have left no hole in them; None: nobody can tell.

    Producers of others count as well: a topic that only Falkirk writes has none.
    Args: options: of Spark's Kafka sink. places: partitions with records, by topic. Their values mean nothing.
    """
    wanted = [(topic, partition) for topic, found in sorted(places.items()) for partition in sorted(found)]
    if not wanted:
        return True
    try:
        epochs = _epochs(session, options, wanted)
    except Py4JError as error:  # a broker that does not know the request, that refuses it, or that is away
        log.warning("the broker does not tell which producers have written to a topic: %s", first_line(error))
        return None
    if not all(epochs):
        return None  # forgotten: it was long ago
    return all(epoch == 0 for found in epochs for epoch in found)


def _epochs(session: SparkSession, options: Mapping[str, str], wanted: list[tuple[str, int]]) -> list[list[int]]:
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
        found = admin.describeProducers(listed).all().get(TIMEOUT_S, jvm.java.util.concurrent.TimeUnit.SECONDS)
        return [[int(p.producerEpoch()) for p in found.get(place).activeProducers()] for place in places]
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(0))
