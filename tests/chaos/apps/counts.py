"""Keyed count: the topic is keyed by the grouping key. Topics and policy come from the environment of the test."""

import os

from pyspark.sql import functions as F

import falkirk as fk

POLICIES = {"lazy": fk.Lazy, "snapshots": fk.Snapshots, "log_sends": fk.LogSends}
interval, policy = os.environ.get("INTERVAL", "3 seconds"), os.environ.get("POLICY", "lazy")

app = fk.App("counts", history=int(os.environ.get("HISTORY", "10")))
app.source("events", fk.Kafka(os.environ["EVENTS"], schema="word STRING NOT NULL, n INT", key="word"))


def passed(events):
    return events.select("word", "n")


def counts(events):
    return events.groupBy("word").agg(F.count("*").alias("version"), fk.latest("n"))


if policy == "acknowledged":  # what is acknowledged has no state, so what counts reads it
    app.add_processor("passed", passed, reads=("events",), policy=fk.Acknowledged(interval))
    app.add_processor("counts", counts, reads=("passed",), policy=fk.Lazy(interval))
else:
    app.add_processor("counts", counts, reads=("events",), policy=POLICIES[policy](interval))

app.sink(
    "counts",
    counts,
    fk.Kafka(os.environ["COUNTS"], key="word"),
    delivery=os.environ.get("DELIVERY", "exactly-once"),
)

if __name__ == "__main__":
    app.run(kafka=os.environ["KAFKA"], home=os.environ["HOME_FOLDER"])
