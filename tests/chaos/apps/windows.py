"""The application that `test_live_windows.py` runs and kills. BARRIER=off switches the barrier off."""

import os

from pyspark.sql import functions as F

import falkirk as fk
from tests.chaos.apps import barrier

app = fk.App("windows")
app.source("clicks", fk.Kafka(os.environ["CLICKS"], schema="id STRING NOT NULL, at TIMESTAMP, n INT", key="id"))


def counted(clicks: fk.Stream, mode: str) -> fk.Stream:
    timed = clicks.withWatermark("at", "10 seconds").where("n % 7 <> 0")
    grouped = timed.groupBy(F.window("at", "6 seconds", "4 seconds"), "id").outputMode(mode)
    return grouped.agg(F.count("*").alias("count"), F.sum("n").alias("total"))


@app.stream(fk.Lazy("5 seconds"), engine="live")
def final(clicks: fk.Stream) -> fk.Stream:
    return counted(clicks, "append")


@app.stream(fk.Lazy("5 seconds"), engine="live")
def updates(clicks: fk.Stream) -> fk.Stream:
    return counted(clicks, "update")


app.sink("final", final, fk.Kafka(os.environ["FINAL"], key="id"))
app.sink("updates", updates, fk.Kafka(os.environ["UPDATES"], key="id"))

barrier.off_if_asked()
