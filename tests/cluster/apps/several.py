"""One region of each kind: stateless, keyed, and one with held results. The test's environment names the topics.

With ATTEMPTS=any, no attempt of a task is refused.
"""

import os

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.runtime import rows

if os.environ.get("ATTEMPTS") == "any":
    rows.first_attempt_only = lambda value: value

# These tests judge the fence of processes. The broker's own fence would hide its faults.
app = fk.App("several", history=10, store=os.environ["STORE"], fenced=os.environ.get("FENCED") == "yes")
app.source("events", fk.Kafka(os.environ["EVENTS"], schema="word STRING NOT NULL, n INT", key="word"))


def passed(events: fk.Stream) -> fk.Stream:
    return events.select("word", "n")


def counts(events: fk.Stream) -> fk.Stream:
    return events.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))


def drawn(events: fk.Stream) -> fk.Stream:
    lots = events.select("word", "n", F.expr("uuid()").alias("lot"))
    # Both results share the random value, so they wait for a checkpoint.
    return lots.explode(F.array(F.lit(0), F.lit(1)), "part")


for processor in (passed, counts, drawn):
    name = processor.__name__
    if name in os.environ["REGIONS"].split():
        app.sink(name, app.stream(fk.Lazy("3 seconds"))(processor), fk.Kafka(os.environ[name.upper()], key="word"))
