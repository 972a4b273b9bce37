"""The application that `test_live_udfs.py` runs and kills. BARRIER=off switches the barrier off."""

import os

from pyspark.sql import functions as F

import falkirk as fk
from tests.chaos.apps import barrier

app = fk.App("udfs")
app.source("clicks", fk.Kafka(os.environ["CLICKS"], schema="id STRING NOT NULL, at TIMESTAMP, n INT", key="id"))


@fk.deterministic
def is_wanted(n):
    if n % 10 == 7:
        raise ValueError(f"no {n}")
    return n % 3 != 0


@fk.deterministic
def told(name, n):
    return {"id": name, "n": n, "twice": [n, n]}


@app.stream(fk.Lazy("5 seconds"))
def chosen(clicks: fk.Stream) -> fk.Stream:
    call = F.udf(told, "id STRING, n INT, twice ARRAY<INT>", useArrow=True)
    return clicks.where(F.udf(is_wanted, "boolean", useArrow=False)("n")).select("n", call("id", "n").alias("told"))


@app.stream(fk.Lazy("5 seconds"))
def summed(clicks: fk.Stream) -> fk.Stream:
    halves = F.udf(fk.deterministic(lambda n: n / 2), "double", useArrow=True)
    return clicks.withColumn("half", halves("n")).groupBy("id").agg(F.count("half").alias("n"))


app.sink("chosen", chosen, fk.Kafka(os.environ["CHOSEN"]))
app.sink("summed", summed, fk.Kafka(os.environ["SUMMED"], key="id"))

barrier.off_if_asked()
