"""Jobs: defines the measured jobs, with Falkirk and as plain Real-time Mode: keyed count, word index, operators."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.job import BEGAN, Job, Records, operator
from benchmarks.moments import MOMENTS
from demo.pages import Page, words
from demo.word_index import example
from falkirk.app import App
from falkirk.declare.asserting import deterministic
from falkirk.declare.clock import Clock
from falkirk.declare.cut import ByClock
from falkirk.declare.endpoints import Kafka
from falkirk.declare.grouped import latest_value
from falkirk.declare.load import load_application
from falkirk.declare.policy import Delivery, Eager, Ephemeral, Lazy
from falkirk.declare.stream import Stream, source_node
from falkirk.declare.view import View


def _counted(records: Stream) -> Stream:
    return records.groupBy("word").agg(F.count("*").alias("version"), latest_value("n"))


@deterministic
def shouted(row: Any) -> dict[str, str]:
    """Return the one result of a record of the Python map."""
    return {"word": row.word.upper(), "n": row.n}


@deterministic
def _next(row: Any, state: Any) -> tuple[dict[str, Any], dict[str, int]]:
    version = 1 if state is None else state.version + 1
    return {"word": row.word, "version": version, "n": row.n}, {"version": version}


def _timed(records: Stream) -> Stream:
    return records.withWatermark("at", "2 seconds")


def _chain(records: Stream) -> Stream:
    """Return the count without duplicates: two keyed steps in one region, whose records are all different."""
    return _counted(_timed(records).dropDuplicates(["word", "n"]))


def _windows(mode: str) -> Callable[[Stream], Stream]:
    def counted(records: Stream) -> Stream:
        grouped = _timed(records).groupBy(F.window("at", "10 seconds"), "word").outputMode(mode)
        return grouped.agg(F.count("*").alias("version"), latest_value("n"))

    return counted


def _udf(*, arrow: bool) -> Callable[[Stream], Stream]:
    def called(records: Stream) -> Stream:
        shout = F.udf(deterministic(lambda word: word.upper()), "string", useArrow=arrow)
        return records.select(shout("word").alias("word"), "n")

    return called


def _known(records: DataFrame, known: DataFrame) -> DataFrame:
    """Return the epoch of the view: how often each word has been there."""
    new = records.groupBy("word").agg(F.count("*").alias("times"))
    return known.unionByName(new).groupBy("word").agg(F.sum("times").alias("times"))


def _looked_up(records: Stream, known: View) -> Stream:
    return records.lookup(known, "word", "found").select("word", "n", F.get("found.times", F.lit(0)).alias("times"))


def _joined(left: Stream, right: Stream) -> Stream:
    pairs = _timed(left).join(_timed(right), "word", within="0.1 seconds")
    return pairs.select("word", F.col("right_n").alias("n"))


KEYED_COUNT = Job(
    name="keyed_count",
    title="keyed count",
    schema="word STRING, n STRING",
    key="word",
    identity_field="n",
    output_key="word",
    body=_counted,
)
WORD_INDEX = Job(
    name="word_index",
    title="word index",
    schema="page STRING, text STRING",
    key=None,
    identity_field="page",
    output_key="word",
)


PYTHON_MAP = operator(
    "python_map", "Python map", lambda records: records.map_rows(shouted, returns="word STRING, n STRING")
)
PYTHON_COUNT = operator(
    "python_count",
    "count in Python",
    lambda records: records.stateful(
        _next, key="word", state="version LONG", returns="word STRING, version LONG, n STRING"
    ),
)
OPERATORS = (
    operator("windows", "windows, updates", _windows("update")),
    operator("duplicates", "first of each key", lambda records: _timed(records).dropDuplicates(["word", "n"])),
    operator("chain", "first of each key, counted", _chain),
    replace(operator("join", "join of two topics", _joined, sources=2), has_twins=False),
    PYTHON_MAP,
    PYTHON_COUNT,
    replace(operator("lookup", "lookup", _looked_up), looks_up=True),
    operator("udf", "UDF", _udf(arrow=False)),
    operator("arrow_udf", "Arrow UDF", _udf(arrow=True)),
    *MOMENTS,
)
#: The jobs that are measured unless others are named.
MAIN = (KEYED_COUNT, WORD_INDEX, PYTHON_MAP)
JOBS = {job.name: job for job in (*MAIN, *OPERATORS)}


def timed_records(number: int, rate: float, sources: int) -> Records:
    """Return records of an operator over 40 words, with times in order.

    Of two sources, each gets every other record. The two records of a pair alone have the same word, and the same time.
    The pair is caused by the later one.

    Args: rate: in records per second of all sources.
    """
    chosen, found = random.Random(1), []
    word = at = ""
    for n in range(number):
        if n % sources == 0:
            word = f"w{chosen.randrange(40) if sources == 1 else n}"
            at = (BEGAN + timedelta(seconds=n / rate)).isoformat()
        causes = int(n % sources == sources - 1)
        found.append((str(n), word, json.dumps({"word": word, "n": str(n), "at": at}), causes))
    return found


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


def application(
    job: Job, source: str, sink: str, delivery: Delivery, interval_s: float, home: Path, *, twins: bool = False
) -> App:
    """Return the job as a Falkirk application. Args: source: the topic of its first source; see `topics_of`."""
    policy = Lazy(interval_s, twins=twins)
    app = App(job.name.replace("_", "-"), home=home)
    topics = topics_of(job, source)
    for name, topic in topics.items():
        app.sources[name] = source_node(name, Kafka(topic, schema=job.schema, key=job.key))
    clocks = () if job.ticks_s is None else ("clock",)
    if job.ticks_s is not None:
        app.source("clock", Clock(job.ticks_s))
    views = frozenset({"known"} if job.looks_up else ())
    if views:
        state, reads = "word STRING, times LONG", ("records", "known")
        app.add_processor("known", _known, reads=reads, policy=Eager(), cut=ByClock(every_s=2.0), state=state)
    if job.body is not None:
        app.add_processor("result", job.body, reads=(*topics, *views, *clocks), policy=policy, views=views)
    else:
        declared = load_application(example()).processors
        app.add_processor("words", declared["words"].body, reads=("records",), policy=Ephemeral())
        app.add_processor("result", declared["index"].body, reads=("words",), policy=policy)
    app.sink("result", "result", Kafka(sink, key=job.output_key), delivery=delivery)
    return app


def topics_of(job: Job, source: str) -> dict[str, str]:
    """Return the topics of a job's sources, by the names of the sources."""
    return {"records": source} if job.sources == 1 else {"records": source, "right": f"{source}-right"}


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
