"""Keyed count, one region: the topic is keyed by the grouping key. Topics come from the environment of the test."""

import os

from pyspark.sql import functions as F

import falkirk as fk

app = fk.App("counts")
app.source("events", fk.Kafka(os.environ["EVENTS"], schema="word STRING NOT NULL, n INT", key="word"))


@app.stream(fk.Lazy(os.environ.get("INTERVAL", "3 seconds")))
def counts(events):
    return events.groupBy("word").agg(F.count("*").alias("version"), fk.latest("n"))


app.sink(
    "counts",
    counts,
    fk.Kafka(os.environ["COUNTS"], key="word"),
    delivery=os.environ.get("DELIVERY", "exactly-once"),
)

if __name__ == "__main__":
    app.run(kafka=os.environ["KAFKA"], home=os.environ["HOME_FOLDER"])
