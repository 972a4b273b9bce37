"""The first record of each id within ten seconds of event time, live; see tests/duplicates.py.

With `BARRIER=off` a restarted region drops no result that is already published.
"""

import os
from dataclasses import replace

import falkirk as fk
from falkirk.runtime.live import query

app = fk.App("first")
app.source("clicks", fk.Kafka(os.environ["CLICKS"], schema="id STRING NOT NULL, at TIMESTAMP, n INT", key="id"))


@app.stream(fk.Lazy("5 seconds"), engine="live")
def first(clicks: fk.Stream) -> fk.Stream:
    timed = clicks.withWatermark("at", "10 seconds").where("n % 7 <> 0")
    return timed.dropDuplicates(["id"]).select("id", "n")


app.sink("first", first, fk.Kafka(os.environ["FIRST"], key="id"))

if os.environ.get("BARRIER") == "off":
    made = query.LiveQuery

    def without_barrier(**options: object) -> query.LiveQuery:
        found = made(**options)  # type: ignore[arg-type]
        return replace(found, release=replace(found.release, barrier=None))

    from falkirk.runtime.live import region

    region.LiveQuery = without_barrier  # type: ignore[assignment,misc]
