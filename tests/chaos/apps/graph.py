"""Edges that are added and removed: a live count of each node's changes, and a loop that keeps components up to date.

The test's environment has the names, and the folder of files that say where to kill the process.
"""

import os
from pathlib import Path

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.steps.differential import connected_components
from tests.chaos.apps.striking import strike_anywhere

strike_anywhere(Path(os.environ["DIES"]))

tag = os.environ["TAG"]
app = fk.App("graph")
app.source("edges", fk.Kafka(f"edges-{tag}", schema="src LONG NOT NULL, dst LONG NOT NULL, difference INT", key="src"))


@app.stream(fk.Lazy("4 seconds"))
def seen(edges):
    return edges.groupBy("src").agg(F.count("*").alias("version"))


@app.iterate(every="2 seconds")
def components(edges):
    return connected_components(edges)


app.sink("seen", seen, fk.Kafka(f"seen-{tag}", key="src"))
app.sink("components", components, fk.Sql(os.environ["DATABASE"], f"components_{tag}"))
