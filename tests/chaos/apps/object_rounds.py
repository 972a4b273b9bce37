"""As `object_loops.py`, with keys of a type that keeps single tasks from computing epochs: Spark jobs compute all."""

import os

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.steps.differential import connected_components

app = fk.App("shop", home=os.environ["DATA"], store=os.environ["STORE"], history=2)
app.source("events", fk.Kafka(os.environ["EVENTS"], schema="n LONG NOT NULL, word STRING"))


@app.iterate(every="1 second")
def components(events):
    """Each number is connected with the number before it, unless it is a multiple of 7."""
    linked = events.where("n % 7 <> 0")
    ends = {"src": F.col("n"), "dst": F.col("n") - 1}
    found = connected_components(linked.select(*(end.cast("decimal(18,0)").alias(n) for n, end in ends.items())))
    return found.select(*(F.col(name).cast("long").alias(name) for name in ("node", "component")))


app.sink("out", components, fk.Kafka(os.environ["OUT"]))
