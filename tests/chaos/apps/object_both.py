"""A live region that counts by key, and an iteration, with their states in an object store.

The environment names the topics, the home and the database.
"""

import os

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.steps.differential import connected_components

app = fk.App("shop", home=os.environ["DATA"], store=os.environ["STORE"], state_partitions=2, history=20)
app.source("events", fk.Kafka(os.environ["EVENTS"], schema="n LONG NOT NULL, word STRING NOT NULL", key="word"))


@app.stream(policy=fk.Lazy("1 second"))
def counts(events):
    return events.groupBy("word").agg(F.count("*").alias("version"))


@app.iterate(every="1 second")
def components(events):
    """Each number is connected with the number before it, unless it is a multiple of 7."""
    linked = events.where("n % 7 <> 0")
    return connected_components(linked.select(F.col("n").alias("src"), (F.col("n") - 1).alias("dst")))


app.sink("counted", counts, fk.Kafka(os.environ["OUT"], key="word"))
app.sink("connected", components, fk.Kafka(os.environ["OUT"].replace("out", "out-connected", 1)))
