"""Copying: the Spark job that takes results out of a held log to the sink that they wait for.

A record's stamp in the sink is its place in the held log, so the sink itself says how far it has come. Spark makes one
task of a partition and keeps its order. A task must not be tried again (`spark.task.maxFailures`), because a second try
would send again what the first has sent.
"""

import json
import re

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from falkirk.errors import SparkError
from falkirk.local.spark import writes_elsewhere
from falkirk.regions import fence
from falkirk.regions.context import Context
from falkirk.regions.outputs import settled_ends
from falkirk.regions.rows import without
from falkirk.spark_errors import SPARK_ERRORS, first_line

_Positions = dict[int, int]


def copy(context: Context, held: str, sink: str, first: _Positions, last: _Positions) -> None:
    """Copy [first, last) of each partition of `held` to the same partition of `sink`, without what is voided.

    Raises: SparkError: `RELEASE_FAILED`: some of it may be there, in order and without a hole.
    """
    if first == last:
        return
    identity, void = context.home.identity, context.home.store.voided_ranges(held)
    ranges = [(v.partition, v.first, v.last_exclusive) for v in void]
    header = F.concat(F.lit(f"{identity}/1/0."), F.concat_ws(".", "partition", "offset"), F.lit("/0"))
    try:
        records = (
            context.session.read.format("kafka")
            .options(**context.connection.spark_options())
            .option("subscribe", held)
            .option("startingOffsets", json.dumps({held: {str(p): o for p, o in first.items()}}))
            .option("endingOffsets", json.dumps({held: {str(p): o for p, o in last.items()}}))
            .option("failOnDataLoss", "true")
            .load()
        )
        counting = without(records, [r for r in ranges if r[2] > first.get(r[0], 0) and r[1] < last.get(r[0], 0)])
        (
            counting.select(
                F.lit(sink).alias("topic"),
                "partition",
                "key",
                "value",
                F.array(F.struct(F.lit("falkirk").alias("key"), header.cast("binary").alias("value"))).alias("headers"),
            )
            .write.format("kafka")
            .options(**context.connection.spark_options())
            .options(**fence.producer_options(identity, f"release-{sink}", 1))
            .option("includeHeaders", "true")
            .save()
        )
    except SPARK_ERRORS as error:
        raise SparkError(
            "RELEASE_FAILED",
            f"what waits in {held!r} could not be copied to {sink!r}: {first_line(error)}.",
            certainty="maybe",
            hint="It goes on from what is there.",
            topic=sink,
        ) from error


def check_session(session: SparkSession) -> None:
    """See that a session's tasks are not tried again: neither alone, nor with their stage after a lost shuffle.

    Raises: SparkError: `SESSION_SETTINGS_MISSING`.
    """
    conf, wanted = session.sparkContext.getConf(), {"spark.speculation": "false"}
    tries = re.fullmatch(r"local\[[^,]+,\s*(\d+)\]", session.sparkContext.master or "")
    given = {} if tries is None else {"spark.task.maxFailures": tries[1]}
    if writes_elsewhere(session) or given:
        wanted |= {"spark.task.maxFailures": "1", "spark.stage.maxConsecutiveAttempts": "1"}
    for name, value in wanted.items():
        found = given.get(name) or conf.get(name, "false" if value == "false" else "4")
        if found != value:
            raise SparkError(
                "SESSION_SETTINGS_MISSING",
                f"results are released by Spark jobs, and {name} is {found}: a second try of a task would repeat them.",
                hint=f"Start the Spark application with {name}={value}, and local[N] without a number of tries.",
                setting=name,
                found=found,
            )


def settle(context: Context, sink: str) -> _Positions:
    """Return where a sink ends once nothing that an earlier copy to it sent can still arrive there: what one in this
    process may still hold is flushed. Raises: as `flush_lingering` and `settled_ends`."""
    mine = fence.client_id(context.home.identity, f"release-{sink}", 1)
    fence.flush_lingering(context.session, lambda client: client == mine)
    return settled_ends(context.topics, (sink,), sink)[sink]
