"""An iteration whose files are in an object store: a loop keeps components up to date.

The environment names the topics, the home and the database.
"""

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
    return connected_components(linked.select(F.col("n").alias("src"), (F.col("n") - 1).alias("dst")))


app.sink("out", components, fk.Kafka(os.environ["OUT"]))
