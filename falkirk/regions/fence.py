"""Fence: nothing of a former incarnation may still arrive in an output topic once its tail is being read.

Three walls, each for a failure that was seen:
  1. processes: the JVMs of the former run are killed by recorded identity (coordinator/home.py). Killing Python alone
     leaves its JVM writing.
  2. lingering producers, in this JVM: `StreamingQuery.stop()` returns while Spark's pooled producer still holds
     records. The producer has a client id of its own per region and incarnation; wait until no task uses it, then
     flush it. Other regions' producers are not touched.
  3. a position: the end of every output partition, recorded as a decision once 1 and 2 are done and each leader has
     confirmed that its log ends there (logs/replication.py). What an older incarnation adds behind it (a request that
     sat in a stalled broker's socket) is void (logs/void.py).
"""

import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from falkirk.errors import SparkError

_POOL = "org.apache.spark.sql.kafka010.producer.InternalKafkaProducerPool$"
#: How long a task of a stopped region may go on writing.
WRITING_S = 60.0
#: How often it is looked whether it still does.
_LOOK_S = 0.02

#: The guarantee rests on these: a batch that expired would leave a hole below a released stamp.
_PRODUCER = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.delivery.timeout.ms": "2147483647",
    "kafka.max.block.ms": "9223372036854775807",
    "kafka.linger.ms": "0",
}


def producer_options(application: str, region: str, incarnation: int) -> dict[str, str]:
    """Return Spark's options for what an incarnation of a region writes."""
    return _PRODUCER | {"kafka.client.id": client_id(application, region, incarnation)}


def client_id(application: str, region: str, incarnation: int) -> str:
    """Return the producer's client id of one incarnation of a region."""
    return f"falkirk-{application}-{region}-{incarnation}"


def flush_lingering(session: SparkSession, belongs: Callable[[str], bool]) -> None:
    """Wait until this JVM's pooled producers with a client id that `belongs` are unused, and flush them.

    Blocks while the broker is away: there is nothing right that could be done meanwhile.
    Raises: SparkError: `WRITER_STILL_RUNNING` when a task still uses one after `WRITING_S`.
    """
    deadline = time.monotonic() + WRITING_S
    for entry in [e for name, e in _pooled(session) if belongs(name)]:
        while entry.refCount() > 0:
            if time.monotonic() > deadline:
                raise SparkError(
                    "WRITER_STILL_RUNNING",
                    "a task of a stopped region still writes.",
                    certainty="maybe",
                    hint="The Spark application is restarted to be rid of it.",
                )
            time.sleep(_LOOK_S)
        entry.producer().producer().flush()


def _pooled(session: SparkSession) -> list[tuple[str, Any]]:
    """Return (client id, pool entry) of every Kafka producer that Spark pools in this JVM."""
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
