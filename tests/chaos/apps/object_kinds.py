"""Live regions of several kinds with their states in an object store: a lookup, a window, a join, and Python.

The environment names the topics, the home and the database.
"""

import os

from pyspark.sql import functions as F

import falkirk as fk


def topic(name):
    """Return the topic of this name, beside that of the results."""
    return os.environ["OUT"].replace("out", name, 1)


app = fk.App("shop", home=os.environ["DATA"], store=os.environ["STORE"], state_partitions=2)
SCHEMA = "n LONG NOT NULL, word STRING NOT NULL, at TIMESTAMP"
app.source("events", fk.Kafka(os.environ["EVENTS"], schema=SCHEMA, key="word"))
app.source("others", fk.Kafka(topic("others"), schema="m LONG NOT NULL, word2 STRING NOT NULL, then TIMESTAMP"))


@app.batch(every="1 second", state="word STRING, newest LONG")
def newest(events, newest):
    return newest.unionByName(events.select("word", F.col("n").alias("newest"))).groupBy("word").agg(
        F.max("newest").alias("newest")
    )  # fmt: skip


@app.stream(fk.Lazy("1 second"), engine="live")
def looked(events, newest: fk.View):
    return events.select("n", "word").lookup(newest, "word", "found", epoch="epoch")


@app.stream(fk.Lazy("1 second"), engine="live")
def windowed(events):
    timed = events.withWatermark("at", "10 seconds")
    return timed.groupBy(F.window("at", "1 day"), "word").outputMode("update").agg(F.count("*").alias("version"))


@app.stream(fk.Lazy("1 second"), engine="live")
def joined(events, others):
    left, right = events.withWatermark("at", "10 seconds"), others.withWatermark("then", "10 seconds")
    near = "then >= at - INTERVAL 5 SECONDS AND then <= at + INTERVAL 5 SECONDS"
    return left.join(right, F.expr(f"n = m AND {near}"), "inner")


@fk.deterministic
def doubled(n):
    return 2 * n


@app.stream(fk.Lazy("1 second"), engine="live")
def called(events):
    return events.select("n", F.udf(doubled, "long", useArrow=True)("n").alias("twice"))


for name, keys in (("looked", "n"), ("windowed", "word"), ("joined", None), ("called", None)):
    app.sink(name, name, fk.Kafka(topic(name), **({} if keys is None else {"key": keys})))
