"""The application that `test_live_joins.py` runs and kills. BARRIER=greatest compares greatest stamps, not sets."""

import os
from dataclasses import replace

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.runtime.spark.outputs import Outputs
from falkirk.runtime.spark.rows import Barrier
from tests import joined

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
    right_barrier = Outputs.barrier

    def wrong_barrier(self: Outputs, *arguments: object) -> Barrier:
        found = right_barrier(self, *arguments)  # type: ignore[arg-type]
        return replace(found, unsafe_main=None, unsafe_dead=None)

    Outputs.barrier = wrong_barrier  # type: ignore[method-assign,assignment]
