"""Fence: ensures that no record of a former incarnation can still arrive before a region reads the tail of its output.

Three measures, each for a failure that was observed:
  1. Processes: Falkirk kills the JVMs of the former run, which it finds by their recorded identity
     (recovery/ownership/folder.py). To kill Python alone is not enough, because its JVM continues to write.
  2. Lingering producers in this JVM: `StreamingQuery.stop()` returns while a region's lanes (lanes.py) still hold
     records, and so does a job that was cancelled. Falkirk waits until no task uses them, and then flushes them. It
     does not touch those of other regions.
  3. A position: the end of every output partition. Falkirk records it as a decision after 1 and 2, and after each
     leader has confirmed that its log ends there (kafka_client/replication.py). If an older incarnation still adds a
     record after it (from a request in the socket of a stalled broker), the record is void (kafka_client/void.py).
"""

import time
from collections.abc import Callable

from falkirk.errors.conditions.spark import WRITER_STILL_RUNNING_TASK
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.rows import RAW_BYTES_MAX
from falkirk.theory.ids import Incarnation

#: The longest time for which a task of a stopped region may still write.
WRITING_S = 60.0
#: The time between two checks whether it still writes.
_POLL_S = 0.02

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


#: In the client ids and headers of jobs that write to a sink: their incarnations have no numbers that last.
RELEASE = Incarnation(1)


def producer_options(
    context: Context, writer: str, incarnation: Incarnation, limit_bytes: int, largest_bytes: int
) -> dict[str, str]:
    """Return the options of the producers of one incarnation, as Spark names them; they contain secrets.

    A topic refuses a batch that is too large for it. The producer then divides it into batches of the size that it was
    configured with. If that size exceeds the limit, it makes the same batch again, forever.

    Args: writer: a region, or the jobs that release to a topic. limit_bytes: the largest batch that all topics accept.
        largest_bytes: the largest batch that one of them accepts.
    """
    options = context.kafka_options()
    return {
        **options,
        **_PRODUCER,
        "kafka.client.id": client_id(context.home.identity, writer, incarnation),
        "kafka.batch.size": str(min(int(options.get("kafka.batch.size", _BATCH_BYTES)), limit_bytes)),
        "kafka.max.request.size": str(largest_bytes + RAW_BYTES_MAX * 2),
    }


def client_id(application: str, region: str, incarnation: Incarnation) -> str:
    """Return the client id of the producer of one incarnation of a region."""
    return f"falkirk-{application}-{region}-{incarnation}"


def await_end(is_used: Callable[[], bool]) -> None:
    """Wait until no task of a stopped region uses a producer. Raises: SparkError: `WRITER_STILL_RUNNING`."""
    deadline = time.monotonic() + WRITING_S
    while is_used():
        if time.monotonic() > deadline:
            raise WRITER_STILL_RUNNING_TASK.error()
        time.sleep(_POLL_S)
