"""Four regimes in one application: a live index, a periodic batch, views of both, and durable answers.

The answers go to a topic and a table. The test's environment has the names.
"""

import os
from typing import Annotated

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import falkirk as fk

tag, database = os.environ["TAG"], os.environ["DATABASE"]
app = fk.App("search", store=os.environ.get("STORE"), history=2, transactional=os.environ.get("FENCED") == "yes")
app.source("events", fk.Kafka(f"events-{tag}", schema="word STRING NOT NULL, n INT", key="word"))
app.source("queries", fk.Kafka(f"queries-{tag}", schema="id LONG NOT NULL, word STRING"))


@app.stream(fk.Ephemeral())
def words(events):
    return events.where("word IS NOT NULL")


@app.stream(fk.Lazy("5 seconds"))
def index(words):
    return words.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))


@app.batch(every="2 seconds")
def weights(events):
    return events.groupBy("word").agg(F.count("*").alias("weight"))


@app.batch(rows=1, state="word STRING, total LONG, epoch LONG", policy=fk.Lazy(when=lambda epoch: epoch % 2 == 1))
def totals(weights, totals):
    new = weights.withColumnRenamed("weight", "total")
    summed = totals.drop("epoch").unionByName(new).groupBy("word").agg(F.sum("total").alias("total"))
    return summed.withColumn("epoch", F.lit(fk.current_epoch().number).cast("long"))


@app.stream(fk.Eager())
def answers(queries, totals: Annotated[DataFrame, fk.View], index: Annotated[DataFrame, fk.View]):
    known = totals.join(index.select("word", "version"), "word", "full")
    seen = F.lit(fk.current_epoch().views["totals"]).alias("seen")  # so the judge can look up the view
    return queries.join(known, "word", "left").select("id", "word", "total", "version", seen)


app.sink("counts", index, fk.Kafka(f"counts-{tag}", key="word"))
app.sink("weighed", weights, fk.Sql(database, f"weighed_{tag}"))
app.sink("summed", totals, fk.Sql(database, f"totals_{tag}", key="word"))
app.sink("sums", totals, fk.Kafka(f"sums-{tag}"))
app.sink("replies", answers, fk.Kafka(f"answers-{tag}", key="id"))
app.sink("statistics", answers, fk.Sql(database, f"answered_{tag}"))
