"""Regions that fail on a value, each in another way, beside one that does not. The environment names the topics.

One failure is enough here, or as many as FAILURES names, and one Spark application without a checkpoint. (The counting
of several has tests with a simulated cluster: tests/unit/home/test_failures_across_hosts.py.)
"""

import os

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.runtime.supervision import coordinator, failures

failures.FAILURES_MAX = coordinator.FRUITLESS_MAX = int(os.environ.get("FAILURES", "1"))
failures.LOSSES_MAX = 2

app = fk.App("failing", state_partitions=1)
app.source("events", fk.Kafka(os.environ["EVENTS"], schema="word STRING NOT NULL, n INT", key="word"))


def passed(events: fk.Stream) -> fk.Stream:
    return events.select("word", "n")


def refused(events: fk.Stream) -> fk.Stream:
    """Fail with an error that Falkirk does not know."""
    return events.select("word", F.expr("CASE WHEN n = -1 THEN raise_error('no such n') ELSE n END AS n"))


def swollen(events: fk.Stream) -> fk.Stream:
    """Take more memory than an executor has."""
    return events.select("word", F.expr("length(CASE WHEN n = -2 THEN repeat(word, 2147483000) ELSE word END) AS n"))


def killed(events: fk.Stream) -> fk.Stream:
    """End the executor, not by its heap, as native code that crashes does."""
    return events.select(
        "word",
        F.expr("CASE WHEN n = -3 THEN int(reflect('java.lang.System', 'exit', 137)) ELSE n END AS n"),
    )


def counts(events: fk.Stream) -> fk.Stream:
    return events.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))


for processor in (passed, refused, swollen, killed, counts):
    name = processor.__name__
    if name in os.environ["REGIONS"].split():
        app.sink(
            name, app.stream(fk.Lazy(os.environ["INTERVAL"]))(processor), fk.Kafka(os.environ[name.upper()], key="word")
        )

if __name__ == "__main__":
    app.run(kafka=os.environ["KAFKA"], home=os.environ["HOME_FOLDER"], secure=os.environ.get("SECURE"))
