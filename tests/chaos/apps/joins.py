"""The application that `test_live_joins.py` runs and kills. BARRIER=greatest compares greatest stamps, not sets."""

import os

from pyspark.sql import functions as F

import falkirk as fk
from tests import joined
from tests.chaos.wrong_barrier import compare_greatest_stamps

app = fk.App("joins")
for name in ("shown", "clicks"):
    app.source(name, fk.Kafka(os.environ[name.upper()], schema="id STRING NOT NULL, at TIMESTAMP, n INT"))


@app.stream(fk.Lazy("5 seconds"), engine="live")
def seen(shown: fk.Stream, clicks: fk.Stream) -> fk.Stream:
    left = shown.withWatermark("at", f"{joined.DELAYS_S['shown']} seconds").where("n % 7 <> 0")
    right = clicks.withWatermark("at", f"{joined.DELAYS_S['clicks']} seconds").where("n % 7 <> 0")
    return left.join(right, F.expr(joined.CONDITION), "full")


app.sink("seen", seen, fk.Kafka(os.environ["SEEN"]))

if os.environ.get("BARRIER") == "greatest":
    compare_greatest_stamps()
