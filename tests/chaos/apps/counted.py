"""A chain of `dropDuplicates` and `groupBy().agg` in one live region. See tests/counted.py.

With `BARRIER=off` a restarted region drops no result that is already published.
"""

import os

import falkirk as fk
from tests.chaos.apps import barrier
from tests.counted import SCHEMA, counted

app = fk.App("counted")
app.source("clicks", fk.Kafka(os.environ["CLICKS"], schema=SCHEMA, key="id"))
app.stream(fk.Lazy("5 seconds"), engine="live")(counted)
app.sink("totals", "counted", fk.Kafka(os.environ["TOTALS"], key="id"))

barrier.off_if_asked()
