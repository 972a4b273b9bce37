"""The random program of a seed, which test_random_programs.py runs and kills.

With `BARRIER=off` a restarted region drops no result that is already published. With `TIME_ROWS=off` a state partition
does not know the time from the records of others.
"""

import os

import falkirk as fk
from falkirk.steps.live import event_time
from tests.chaos import programs
from tests.chaos.apps import barrier

SEED, TAG = int(os.environ["SEED"]), os.environ["TAG"]

app = fk.App("random", transactional=programs.is_fenced(SEED))
programs.declare(app, programs.program(SEED), lambda name: f"{name}-{TAG}")

barrier.off_if_asked()
if os.environ.get("TIME_ROWS") == "off":
    event_time._with_time_rows = lambda data: data
