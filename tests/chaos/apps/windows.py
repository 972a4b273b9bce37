"""The application that `test_live_windows.py` runs and kills. BARRIER=off switches the barrier off."""

import os
from dataclasses import replace

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.runtime.live import query

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

if os.environ.get("BARRIER") == "off":
    made = query.LiveQuery

    def without_barrier(**options: object) -> query.LiveQuery:
        found = made(**options)  # type: ignore[arg-type]
        return replace(found, release=replace(found.release, barrier=None))

    from falkirk.runtime.live import region

    region.LiveQuery = without_barrier  # type: ignore[assignment,misc]
