"""Jobs: defines the measured jobs, with Falkirk and as plain Real-time Mode: keyed count, word index, Python map."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from demo.pages import Page, words
from demo.word_index import example
from falkirk.app import App
from falkirk.declare.asserting import deterministic
from falkirk.declare.endpoints import Kafka
from falkirk.declare.load import load_application
from falkirk.declare.policy import Delivery, Ephemeral, Lazy
from falkirk.declare.stream import Stream, latest_value, source_node

Records = list[tuple[str, str, str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A measured job: its name, its source's schema, and the output field that names the causing record.

    Args: is_plain: plain Real-time Mode can do it, too.
    """

    name: str
    title: str
    schema: str
    key: str | None
    identity_field: str
    output_key: str
    is_plain: bool = True


KEYED_COUNT = Job(
    name="keyed_count",
    title="keyed count",
    schema="word STRING, n STRING",
    key="word",
    identity_field="n",
    output_key="word",
)
WORD_INDEX = Job(
    name="word_index",
    title="word index",
    schema="page STRING, text STRING",
    key=None,
    identity_field="page",
    output_key="word",
)
#: A Python function of each record, which Real-time Mode does not run by itself.
PYTHON_MAP = Job(
    name="python_map",
    title="Python map",
    schema="word STRING, n STRING",
    key="word",
    identity_field="n",
    output_key="word",
    is_plain=False,
)
JOBS = {job.name: job for job in (KEYED_COUNT, WORD_INDEX, PYTHON_MAP)}


def count_records(number: int) -> Records:
    """Return records of the keyed count over 40 words."""
    chosen = random.Random(1)
    found = []
    for n in range(number):
        word = f"w{chosen.randrange(40)}"
        found.append((str(n), word, json.dumps({"word": word, "n": str(n)}), 1))
    return found


def page_records(pages: list[Page], number: int) -> Records:
    """Return records of the word index; the pages repeat until there are enough records."""
    found = []
    for n in range(number):
        page = pages[n % len(pages)]
        name = f"{n} {page.name}"
        found.append((name, name, json.dumps({"page": name, "text": page.text}), len(set(words(page.text)))))
    return found


@deterministic
def shouted(row: Any) -> dict[str, str]:
    """Return the one result of a record of the Python map."""
    return {"word": row.word.upper(), "n": row.n}


def application(
    job: Job, source: str, sink: str, delivery: Delivery, interval_s: float, home: Path, *, twins: bool = False
) -> App:
    """Return the job as a Falkirk application."""
    policy = Lazy(interval_s, twins=twins)
    app = App(job.name.replace("_", "-"), home=home)
    app.sources["records"] = source_node("records", Kafka(source, schema=job.schema, key=job.key))
    if job is KEYED_COUNT:

        def counted(records: Stream) -> Stream:
            return records.groupBy("word").agg(F.count("*").alias("version"), latest_value("n"))

        app.add_processor("result", counted, reads=("records",), policy=policy)
    elif job is PYTHON_MAP:

        def mapped(records: Stream) -> Stream:
            return records.map_rows(shouted, returns="word STRING, n STRING")

        app.add_processor("result", mapped, reads=("records",), policy=policy)
    else:
        declared = load_application(example()).processors
        app.add_processor("words", declared["words"].body, reads=("records",), policy=Ephemeral())
        app.add_processor("result", declared["index"].body, reads=("words",), policy=policy)
    app.sink("result", "result", Kafka(sink, key=job.output_key), delivery=delivery)
    return app


def plain(
    job: Job, session: SparkSession, bootstrap: str, source: str, sink: str, interval_s: float | None, home: Path
) -> Any:
    """Start the job as one plain query, written without Falkirk, and return it.

    Args: interval_s: between checkpoints of Real-time Mode; None: micro-batches, one right after the other.
    """
    reader = session.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    raw = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
    rows = raw.select(F.from_json(F.col("value").cast("string"), job.schema).alias("r")).select("r.*")
    if job is KEYED_COUNT:
        result = rows.groupBy("word").agg(F.count("*").alias("version"), F.last("n").alias("n"))
    else:
        body = load_application(example()).processors["words"].body
        result = (
            _plain_words(rows, body)
            .groupBy("word")
            .agg(
                F.count("*").alias("version"),
                F.last("page").alias("page"),
                F.last("positions").alias("positions"),
            )
        )
    out = result.select(F.col(job.output_key).cast("binary").alias("key"), F.to_json(F.struct("*")).alias("value"))
    writer = (
        out.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink)
        .option("kafka.linger.ms", "0")
        .option("checkpointLocation", str(home))
        .outputMode("update")
    )
    if interval_s is None:
        return writer.trigger(processingTime="0 seconds").start()
    return writer.trigger(realTime=f"{round(interval_s * 1000)} milliseconds").start()  # type: ignore[call-overload]


def _plain_words(rows: DataFrame, body: Any) -> DataFrame:
    """Apply the example's transformation to a plain DataFrame."""
    from falkirk.declare.nodes import ProcessorNode, steps_of

    data = rows
    for step in steps_of(body(Stream(ProcessorNode(name="records"))).node):
        if step.operation == "explode":
            column, name = step.arguments
            # For an inner explode Spark would first filter by the array's size, and compute the array twice for that.
            data = data.select("*", F.explode_outer(column).alias(name))
        elif step.operation == "select":
            data = data.select(*step.arguments)
        elif step.operation == "where":
            data = data.where(*step.arguments)
        else:
            data = data.withColumns(*step.arguments)
    return data
