"""The first record of each id within ten seconds of event time, and timers of each id, live.

See tests/duplicates.py and tests/timers.py. With `BARRIER=off` a restarted region drops no result that is already
published. With `FAULT=expiry` states do not expire, and with `FAULT=timers` timers do not fire.
"""

import os

import falkirk as fk
from falkirk.steps.live.python_steps import PythonStep
from tests.chaos.apps import barrier
from tests.timers import remembered, without

app = fk.App("first")
app.source("clicks", fk.Kafka(os.environ["CLICKS"], schema="id STRING NOT NULL, at TIMESTAMP, n INT", key="id"))


@app.stream(fk.Lazy("5 seconds"), engine="live")
def first(clicks: fk.Stream) -> fk.Stream:
    timed = clicks.withWatermark("at", "10 seconds").where("n % 7 <> 0")
    return timed.dropDuplicates(["id"]).select("id", "n")


@app.stream(fk.Lazy("5 seconds"), engine="live")
def reminders(clicks: fk.Stream) -> fk.Stream:
    return remembered(clicks)


app.sink("first", first, fk.Kafka(os.environ["FIRST"], key="id"))
app.sink("reminders", reminders, fk.Kafka(os.environ["REMINDERS"], key="id"))

if "FAULT" in os.environ:
    PythonStep.state_times = without(os.environ["FAULT"])  # type: ignore[method-assign]

barrier.off_if_asked()
