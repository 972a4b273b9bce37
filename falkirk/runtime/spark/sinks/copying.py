"""Copying: copies results from a held log to their sink, as a Spark job.

The stamp of a record in the sink is its position in the held log. So the last record of the sink shows how much was
copied. Spark reads each partition in one task and keeps its order. If Spark runs a task again, the task fails
(falkirk/runtime/spark/attempts.py), because it would send the records of its first attempt again.
"""

from pyspark.sql import functions as F

from falkirk.errors.conditions.spark import RELEASE_FAILED_COPY
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.runtime.spark import fence
from falkirk.runtime.spark.attempts import first_attempt_only
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.rows import without
from falkirk.runtime.spark.signed import signed_header
from falkirk.runtime.spark.sinks.writing import write
from falkirk.steps.sources import reads
from falkirk.theory.ids import Incarnation, LogId, Offsets


def copy(context: Context, held: LogId, sink: str, first: Offsets, last: Offsets) -> None:
    """Copy [first, last) of each partition of `held` to the same partition of `sink`, without void records.

    Raises: SparkError: `RELEASE_FAILED`: some of the records may be in the sink, in order.
    """
    if first == last:
        return
    identity, void = context.home.identity, context.void(held).within(first, last)
    header = signed_header(
        identity, Incarnation(1), [F.lit(0), F.col("partition"), F.col("offset")], F.lit(0),
        signing_key=F.lit(context.signing_key.of(sink, fence.RELEASE)), partition=F.col("partition"),
        record_key=F.col("key"), value=F.col("value"),
    ).alias("header")  # fmt: skip
    try:
        # The range ends where the held log ends, even if a transaction is open there.
        records = reads.spark_records(
            context.session, context.kafka_options(), held, first=first, last=last, headers=bool(void.fences),
            committed=False,
        )  # fmt: skip
        to = first_attempt_only(F.lit(sink)).alias("topic")
        # The writer of the log has given each record the timestamp of its cause (KafkaWriter.java).
        rows = without(records, void).select(to, "partition", "key", "value", header, "timestamp")
        write(context, sink, rows, context.topics.facts(sink).max_message_bytes)
    except SPARK_ERRORS as error:
        raise RELEASE_FAILED_COPY.error(topic=sink, held=held, reason=first_line(error)) from error
