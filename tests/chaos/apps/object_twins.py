"""A live region with twins that counts by key, with its checkpoints in an object store.

The environment names the topics, the home and the database.
"""

import os

from pyspark.sql import functions as F

import falkirk as fk

app = fk.App("shop", home=os.environ["DATA"], store=os.environ["STORE"], state_partitions=2)
app.source("events", fk.Kafka(os.environ["EVENTS"], schema="word STRING NOT NULL", key="word"))


@app.stream(policy=fk.Lazy("5 seconds", twins=True))
def counts(events):
    return events.groupBy("word").agg(F.count("*").alias("version"))


app.sink("out", counts, fk.Kafka(os.environ["OUT"], key="word"))
