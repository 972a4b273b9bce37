"""Batches whose data are in an object store: one with a state, and one that reads its results.

The environment names the topics, the home and the database.
"""

import os

from pyspark.sql import functions as F

import falkirk as fk

app = fk.App("shop", home=os.environ["DATA"], store=os.environ["STORE"])
app.source("events", fk.Kafka(os.environ["EVENTS"], schema="n LONG NOT NULL"))


@app.batch(rows=10, state="n LONG")
def seen(events, seen):
    return events.select("n", F.lit(seen.count()).alias("before")), seen.unionByName(events.select("n"))


@app.batch(rows=1)  # of epochs
def doubled(seen):
    return seen.select("n", "before", (F.col("n") * 2).alias("twice"))


app.sink("out", doubled, fk.Kafka(os.environ["OUT"]))
