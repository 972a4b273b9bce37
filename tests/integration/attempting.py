"""A release copy and a live region on a Spark that runs a task again, as clusters do. In each the first attempt of a
task fails when it has sent some records. Prints, as JSON, what is in either output in the end: first as it is, and then
where a second attempt may write.

Arguments: a broker, a tag for topics, a folder for homes.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.coordinator.home import open_home
from falkirk.coordinator.layout import Layout, Stage
from falkirk.coordinator.logs import KafkaLogs
from falkirk.errors import SparkError
from falkirk.local.spark import session
from falkirk.logs.connection import Connection
from falkirk.regions import attempts, copying, rows
from falkirk.regions.context import Context
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.times import TopicPartition
from tests.conftest import INTERPRETED
from tests.integration.live import Wire, settle

COUNT, FAILS_AT = 40, 20


def fail_once(real: Any) -> Any:
    """Return `signed_headers` as it is, but that a first attempt of the first incarnation fails at one record."""

    def headers(key: Column, text: Column, *more: Column) -> Column:
        context = SparkSession.active().sparkContext
        first = attempts._number(context, "attemptNumber") == 0
        here = text.endswith(f"/1/0.0.{FAILS_AT}/0")
        return F.when(here & first, F.raise_error(F.lit("the first attempt fails"))).otherwise(real(key, text, *more))

    return headers


def copied(spark: SparkSession, wire: Wire, home: Path) -> tuple[list[int], bool]:
    """Return what a copy has left in its sink, and whether one was refused."""
    held, sink = wire.topic("held", 1), wire.topic("sink", 1)
    wire.send(held, range(COUNT))
    layout = Layout(
        stages={"r": Stage(name="r", inputs=("in",), output=held, deterministic=False)},
        partitions={"in": 1, held: 1, sink: 1},
        held={held: sink},
    )
    all_of_it = OffsetFrontier.of({TopicPartition(topic=held, partition=0): COUNT})
    refused = False
    with open_home(home / "copy", "copied") as opened:
        context = Context(session=spark, connection=Connection.of(wire.bootstrap), home=opened, state_partitions=2)
        logs = KafkaLogs(layout, context, partial(copying.settle, context), partial(copying.copy, context))
        while (upto := logs.copied(held, sink)) != all_of_it:
            try:
                logs.copy(held, sink, upto, all_of_it)
            except SparkError as error:
                refused = attempts.SECOND_ATTEMPT in error.message
                copying.signed_headers = wire_headers  # the next one is not to fail
    return [int(n) for n in wire.rows(sink)], refused  # type: ignore[call-overload]


def passed(wire: Wire, home: Path) -> tuple[list[int], int]:
    """Return what a live region has left in its output, and its last incarnation."""
    events, out = wire.topic("events", 1), wire.topic("out", 1)
    stream = fk.stream(fk.Kafka(events, schema="n INT NOT NULL")).select("n")
    query = stream.write(fk.Kafka(out), kafka=wire.bootstrap, home=str(home / "live"), interval="2 seconds")
    wire.send(events, [{"n": n} for n in range(COUNT)])
    wire.await_count(out, COUNT, query)
    settle(query)
    incarnation = query.status[0].incarnation
    query.stop()
    return [row["n"] for row in wire.rows(out)], incarnation


wire_headers = copying.signed_headers


def main(bootstrap: str, tag: str, folder: Path) -> int:
    """Run both, twice."""
    spark = session("attempts", master="local[8,3]", settings=INTERPRETED)
    found = []
    for mode in ("on", "off"):
        wire = Wire(bootstrap=bootstrap, tag=f"{tag}-{mode}")
        copying.signed_headers = rows.signed_headers = fail_once(wire_headers)
        if mode == "off":
            copying.first_attempt_only = rows.first_attempt_only = lambda value: value
        copies, refused = copied(spark, wire, folder / mode)
        results, incarnation = passed(wire, folder / mode)
        found.append({"copies": copies, "refused": refused, "results": results, "incarnation": incarnation})
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
