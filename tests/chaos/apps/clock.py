"""Timers by the clock, live: each record of an id sets one, and each result has both counts of its id.

With `FAULT=held` the plan does not know that a replay may fire timers between other records, so no result waits.
"""

import os
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import Row

import falkirk as fk
from falkirk.plan import python_steps

SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT"
app = fk.App("clock")
app.source("clicks", fk.Kafka(os.environ["CLICKS"], schema=SCHEMA, key="id", metadata=["timestamp"]))
app.source("clock", fk.Clock("0.1 seconds"))


@fk.deterministic
def counted(row: Row, state: Row | None) -> tuple[Any, ...]:
    """Count the records of an id, and set a timer after up to a second."""
    after = {"count_": 1 if state is None else state.count_ + 1, "fired": 0 if state is None else state.fired}
    return {"id": row.id, "n": row.n, **after}, after, row.timestamp + timedelta(seconds=0.2 + row.n % 5 * 0.2)


@fk.deterministic
def woken(key: Row, time: datetime, state: Row) -> tuple[Any, ...]:
    """Count the timers of an id."""
    after = {"count_": state.count_, "fired": state.fired + 1}
    return {"id": key.id, "n": None, **after}, after


@app.stream(fk.Lazy("5 seconds"))
def reminders(clicks: fk.Stream, clock: fk.Stream) -> fk.Stream:
    return clicks.withClock(clock).stateful(
        counted, key="id", state="count_ INT, fired INT", returns="id STRING, n INT, count_ INT, fired INT",
        on_timer=woken,
    )  # fmt: skip


app.sink("reminders", reminders, fk.Kafka(os.environ["REMINDERS"], key="id"))

if os.environ.get("FAULT") == "held":
    python_steps.is_clocked = lambda step: False
