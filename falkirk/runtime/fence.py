"""Fence: ensures that no record of a former incarnation can still arrive before a region reads the tail of its output.

Three measures, each for a failure that was observed:
  1. Processes: Falkirk kills the JVMs of the former run, which it finds by their recorded identity
     (home/folder.py). To kill Python alone is not enough, because its JVM continues to write.
  2. Lingering producers in this JVM: `StreamingQuery.stop()` returns while a region's lanes (lanes.py), or the pooled
     producer of a copy, still hold records. Falkirk waits until no task uses them, and then flushes them. It does not
     touch those of other regions.
  3. A position: the end of every output partition. Falkirk records it as a decision after 1 and 2, and after each
     leader has confirmed that its log ends there (kafka/replication.py). If an older incarnation still adds a record
     after it (from a request in the socket of a stalled broker), the record is void (kafka/void.py).
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from falkirk.errors.conditions.runtime import WRITER_STILL_RUNNING_TASK
from falkirk.theory.ids import Incarnation

_POOL = "org.apache.spark.sql.kafka010.producer.InternalKafkaProducerPool$"
#: The longest time for which a task of a stopped region may still write.
WRITING_S = 60.0
#: The time between two checks whether it still writes.
_LOOK_S = 0.02

#: The guarantee depends on these: a record batch that expires would leave a gap below a published stamp.
_PRODUCER = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.delivery.timeout.ms": "2147483647",
    "kafka.max.block.ms": "9223372036854775807",
    "kafka.linger.ms": "0",
}
#: Kafka's own default.
_BATCH_BYTES = 16_384


#: In the client ids and headers of copies to a sink: copies have no incarnations.
RELEASE = Incarnation(1)


def producer_options(
    application: str, region: str, incarnation: Incarnation, options: Mapping[str, str], limit_bytes: int
) -> dict[str, str]:
    """Return Spark's options for the producer of one incarnation of a region.

    A topic refuses a batch that is too large for it. The producer then divides it into batches of the size that it was
    configured with. If that size exceeds the limit, it makes the same batch again, forever.

    Args: options: of Spark's Kafka sink. limit_bytes: the largest batch that all topics of the region accept.
    """
    batch_bytes = min(int(options.get("kafka.batch.size", _BATCH_BYTES)), limit_bytes)
    client = client_id(application, region, incarnation)
    return _PRODUCER | {"kafka.client.id": client, "kafka.batch.size": str(batch_bytes)}


def client_id(application: str, region: str, incarnation: Incarnation) -> str:
    """Return the client id of the producer of one incarnation of a region."""
    return f"falkirk-{application}-{region}-{incarnation}"


def flush_lingering(session: SparkSession, belongs: Callable[[str], bool]) -> None:
    """Wait until no task uses this JVM's pooled producers with a client id that `belongs`, and flush these producers.

    Blocks while the broker is unreachable, because nothing else would be safe.
    Raises: SparkError: `WRITER_STILL_RUNNING` if a task still uses one after `WRITING_S`.
    """
    for entry in [e for name, e in _pooled(session) if belongs(name)]:
        await_end(partial(_is_used, entry))
        entry.producer().producer().flush()


def _is_used(entry: Any) -> bool:
    return bool(entry.refCount() > 0)


def await_end(is_used: Callable[[], bool]) -> None:
    """Wait until no task of a stopped region uses a producer. Raises: SparkError: `WRITER_STILL_RUNNING`."""
    deadline = time.monotonic() + WRITING_S
    while is_used():
        if time.monotonic() > deadline:
            raise WRITER_STILL_RUNNING_TASK.error()
        time.sleep(_LOOK_S)


def _pooled(session: SparkSession) -> list[tuple[str, Any]]:
    """Return (client id, pool entry) of each Kafka producer that Spark pools in this JVM."""
    jvm = session._jvm
    assert jvm is not None
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    holder = jvm.java.lang.Class.forName(_POOL, True, loader)
    field = holder.getDeclaredField("pool")
    field.setAccessible(True)
    entries = field.get(None).getAsMap().iterator()
    found = []
    while entries.hasNext():
        pair = entries.next()
        found.append((_client_id(pair._1()), pair._2()))
    return found


def _client_id(parameters: Any) -> str:
    for i in range(parameters.size()):
        if parameters.apply(i)._1() == "client.id":
            return str(parameters.apply(i)._2())
    return ""
