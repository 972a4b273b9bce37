"""A live region that looks up the newest number of its word in a view, with all data in an object store.

The environment names the topics, the home and the database.
"""

import os

from pyspark.sql import functions as F

import falkirk as fk

app = fk.App("shop", home=os.environ["DATA"], store=os.environ["STORE"], state_partitions=2)
app.source("events", fk.Kafka(os.environ["EVENTS"], schema="n LONG NOT NULL, word STRING"))


@app.batch(every="1 second", state="word STRING, newest LONG")
def newest(events, newest):
    return newest.unionByName(events.select("word", F.col("n").alias("newest"))).groupBy("word").agg(
        F.max("newest").alias("newest")
    )  # fmt: skip


@app.stream(fk.Lazy("1 second"), engine="live")
def seen(events, newest: fk.View):
    return events.lookup(newest, "word", "found", epoch="epoch")


app.sink("out", seen, fk.Kafka(os.environ["OUT"], key="n"))
