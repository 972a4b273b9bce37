"""A batch with a state, a live region that looks up in it, final windows and an iteration, in an object store.

Their states are bounded: 40 words, the windows of the last seconds, and 300 nodes. The environment names the
topics, the home, the database, and the interval between checkpoints.
"""

import os

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.steps.differential import connected_components


def topic(name):
    """Return the topic of this name, beside that of the results."""
    return os.environ["OUT"].replace("out", name, 1)


app = fk.App("shop", home=os.environ["DATA"], store=os.environ["STORE"], state_partitions=2, history=5)
app.source("events", fk.Kafka(os.environ["EVENTS"], schema="n LONG NOT NULL, word STRING NOT NULL", key="word"))


@app.batch(every="5 seconds", state="word STRING, newest LONG")
def newest(events, newest):
    return newest.unionByName(events.select("word", F.col("n").alias("newest"))).groupBy("word").agg(
        F.max("newest").alias("newest")
    )  # fmt: skip


@app.stream(fk.Lazy(os.environ["INTERVAL"]), engine="live")
def looked(events, newest: fk.View):
    return events.select("n", "word").lookup(newest, "word", "found", epoch="epoch")


@app.stream(fk.Lazy(os.environ["INTERVAL"]), engine="live")
def windowed(events):
    timed = events.withColumn("at", F.timestamp_seconds(F.col("n") / 50)).withWatermark("at", "2 seconds")
    return timed.groupBy(F.window("at", "10 seconds"), "word").agg(F.count("*").alias("number"))


@app.iterate(every="15 seconds")
def components(events):
    """Each of 300 numbers is connected with the number before it, unless it is a multiple of 7."""
    number = F.col("n") % 300
    linked = events.where(number % 7 != 0).select(number.alias("src"), (number - 1).alias("dst"))
    return connected_components(linked)


app.sink("looked", looked, fk.Kafka(os.environ["OUT"], key="word"))
app.sink("windowed", windowed, fk.Kafka(topic("windowed"), key="word"))
app.sink("connected", components, fk.Kafka(topic("connected")))
