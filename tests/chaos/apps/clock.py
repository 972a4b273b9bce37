"""Timers by the clock, live: each record of an id sets one, and each result has both counts of its id.

With `FAULT=held` the plan does not know that a replay may fire timers between other records, so no result waits.
"""

import os

import falkirk as fk
from falkirk.plan import python_steps
from tests.timers import ticked

SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT"
app = fk.App("clock")
app.source("clicks", fk.Kafka(os.environ["CLICKS"], schema=SCHEMA, key="id", metadata=["timestamp"]))
app.source("clock", fk.Clock("0.1 seconds"))


@app.stream(fk.Lazy("5 seconds"))
def reminders(clicks: fk.Stream, clock: fk.Stream) -> fk.Stream:
    return ticked(clicks, clock)


app.sink("reminders", reminders, fk.Kafka(os.environ["REMINDERS"], key="id"))

if os.environ.get("FAULT") == "held":
    python_steps.is_clocked = lambda step: False
