"""States that expire and have timers by event time, and timers by the clock, on executors: see tests/timers.py.

The environment names the topics and, in REGIONS, the regions. `reminders` is a chain of two keyed steps. Three regions
have one mechanism off: states do not expire, timers do not fire, or a region that is started again drops no result that
is published already. With HELD=no, the results of timers by the clock do not wait for a checkpoint.
"""

import os
from functools import partial

import pyspark.cloudpickle as cloudpickle

import falkirk as fk
from falkirk.plan import python_steps
from falkirk.steps.live.python_steps import PythonStep
from tests import timers
from tests.chaos.apps import barrier

cloudpickle.register_pickle_by_value(timers)  # executors do not have the tests

#: The timeout of each region's calls, which tells a step's region.
TIMEOUTS = {"reminders": "60 seconds", "unexpired": "61 seconds", "untimed": "62 seconds", "unbarred": "63 seconds"}
FAULTS = {TIMEOUTS["unexpired"]: timers.without("expiry"), TIMEOUTS["untimed"]: timers.without("timers")}
SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT"
app = fk.App("timers")
app.source("clicks", fk.Kafka(os.environ["CLICKS"], schema=SCHEMA, key="id", metadata=["timestamp"]))


for name in os.environ["REGIONS"].split():
    if name == "ticks":
        app.source("clock", fk.Clock("0.1 seconds"))
        body, reads = timers.ticked, ("clicks", "clock")
    else:
        body, reads = partial(timers.remembered, timeout=TIMEOUTS[name], is_chain=name == "reminders"), ("clicks",)
    app.add_processor(name, body, reads=reads, policy=fk.Lazy("5 seconds"), engine="live")
    app.sink(name, name, fk.Kafka(os.environ[name.upper()], key="id"))

right = PythonStep.state_times
PythonStep.state_times = lambda step, watermark: FAULTS.get(step.options["timeout"], right)(step, watermark)
barrier.off_for("unbarred")
if os.environ.get("HELD") == "no":
    python_steps.is_clocked = lambda step: False
