"""A stateless region, one that calls Python, a keyed one, one with held results, and a batch.

The test's environment names the topics.

With ATTEMPTS=any, no attempt of a task is refused. FENCED says whose writers the broker fences: `yes` all, `jobs` those
of copies and epochs, else none. With GATE, the first release of an epoch waits for a line in the pipe of this folder.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

import falkirk as fk
from falkirk.plan import planner
from falkirk.plan.region import Region
from falkirk.runtime.spark import rows
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.sinks import topic

if os.environ.get("ATTEMPTS") == "any":
    rows.first_attempt_only = lambda value: value

FENCED = os.environ.get("FENCED")
app = fk.App("several", history=10, store=os.environ["STORE"], transactional=FENCED in ("yes", "jobs"))
if FENCED == "jobs":
    # The tests of faults judge the fence of processes. The broker's own fence would hide its faults.
    planner.Region = lambda **given: Region(**given | {"transactional": False})
app.source("events", fk.Kafka(os.environ["EVENTS"], schema="word STRING NOT NULL, n INT", key="word"))


def passed(events: fk.Stream) -> fk.Stream:
    return events.select("word", "n")


@fk.deterministic
def halved(row):  # type: ignore[no-untyped-def]
    return {"word": row.word, "half": row.n / 2}


def called(events: fk.Stream) -> fk.Stream:
    doubled = F.udf(fk.deterministic(lambda half: int(2 * half)), "int", useArrow=False)
    return events.map_rows(halved, returns="word STRING, half DOUBLE").select("word", doubled("half").alias("n"))


def counts(events: fk.Stream) -> fk.Stream:
    return events.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))


def drawn(events: fk.Stream) -> fk.Stream:
    lots = events.select("word", "n", F.expr("uuid()").alias("lot"))
    # Both results share the random value, so they wait for a checkpoint.
    return lots.explode(F.array(F.lit(0), F.lit(1)), "part")


def epochs(events: DataFrame) -> DataFrame:
    return events.select("word", "n")


for processor, declared in (
    (passed, app.stream(fk.Lazy("3 seconds"))),
    (called, app.stream(fk.Lazy("3 seconds"))),
    (counts, app.stream(fk.Lazy("3 seconds"))),
    (drawn, app.stream(fk.Lazy("3 seconds"))),
    (epochs, app.batch(every="4 seconds")),
):
    name = processor.__name__
    if name in os.environ["REGIONS"].split():
        app.sink(name, declared(processor), fk.Kafka(os.environ[name.upper()], key="word"))


def standing_still(folder: Path) -> Callable[[str], Column]:
    """Return a function that returns a column; the first task that computes it names its process, and waits."""

    def wait(value: bytes) -> bytes:
        with contextlib.suppress(FileExistsError):
            (folder / "claimed").mkdir()
            (folder / "pid").write_text(str(os.getpid()))
            (folder / "pid").rename(folder / "stands still")
            with (folder / "resume").open() as pipe:
                pipe.readline()
        return value

    return F.udf(wait, BinaryType(), useArrow=False)  # type: ignore[call-overload, no-any-return]


if gate := os.environ.get("GATE"):
    write, gated = topic.write, standing_still(Path(gate))

    def write_later(context: Context, to: str, rows: DataFrame, limit_bytes: int) -> None:
        write(context, to, rows.withColumn("value", gated("value")), limit_bytes)

    topic.write = write_later
