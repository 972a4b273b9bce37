"""Two eager streams and a live one read one topic: a slow sink or step delays only its own stream.

The test's environment has the names. While the file BRAKE exists, each row takes extra time.
"""

import os
import threading

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

import falkirk as fk

tag, brake = os.environ["TAG"], os.environ["BRAKE"]
app = fk.App("slow", history=0)
app.source("events", fk.Kafka(f"events-{tag}", schema="word STRING NOT NULL, n INT", key="word"))


@F.udf(IntegerType())
def pondered(n):  # from hints, PySpark would guess a kind of UDF
    if os.path.exists(brake):
        threading.Event().wait(0.05)
    return n


@app.stream(fk.Lazy("5 seconds"))
def counts(events):
    return events.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))


@app.stream(fk.Eager())
def kept(events):
    return events.select("n", "word")


@app.stream(fk.Eager())
def weighed(events):
    return events.select(pondered("n").alias("n"))


app.sink("counts", counts, fk.Kafka(f"counts-{tag}", key="word"))
app.sink(f"kept_{tag}", kept, fk.Sql(os.environ["DATABASE"], f"kept_{tag}"))
app.sink("weighed", weighed, fk.Kafka(f"weighed-{tag}"))
