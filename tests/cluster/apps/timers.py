"""States that expire and have timers by event time, and timers by the clock, on executors: see tests/timers.py.

The environment names the topics and, in REGIONS, the regions. With FAULT=expiry states do not expire, with FAULT=timers
timers do not fire, and with FAULT=held no result waits for a checkpoint. With BARRIER=off a region that is started
again drops no result that is published already.
"""

import os

import pyspark.cloudpickle as cloudpickle

import falkirk as fk
from falkirk.live_steps.python_steps import PythonStep
from falkirk.plan import python_steps
from tests import timers
from tests.chaos.apps import barrier

cloudpickle.register_pickle_by_value(timers)  # executors do not have the tests

REGIONS, FAULT = os.environ["REGIONS"].split(), os.environ.get("FAULT", "")
SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT"
app = fk.App("timers")
app.source("clicks", fk.Kafka(os.environ["CLICKS"], schema=SCHEMA, key="id", metadata=["timestamp"]))


def reminders(clicks: fk.Stream) -> fk.Stream:
    return timers.remembered(clicks)


def ticks(clicks: fk.Stream, clock: fk.Stream) -> fk.Stream:
    return timers.ticked(clicks, clock)


if "ticks" in REGIONS:
    app.source("clock", fk.Clock("0.1 seconds"))
for processor in (reminders, ticks):
    if (name := processor.__name__) in REGIONS:
        declared = app.stream(fk.Lazy("5 seconds"), engine="live")(processor)
        app.sink(name, declared, fk.Kafka(os.environ[name.upper()], key="id"))

if FAULT in ("expiry", "timers"):
    PythonStep.state_times = timers.without(FAULT)
if FAULT == "held":
    python_steps.is_clocked = lambda step: False

barrier.off_if_asked()
