"""Requests over HTTP: an eager batch answers them, and a live region counts them. The test names the topics."""

import os

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.http_source.registry import RequestRegistry

tag = os.environ["TAG"]
find = RequestRegistry.find
#: Requests with "forgotten" in their id are forgotten at once, on purpose.
RequestRegistry.find = lambda self, request_id, digest: (
    None if "forgotten" in request_id else find(self, request_id, digest)
)

app = fk.App("push", history=0)
app.source("queries", fk.Http("/queries", schema="id STRING NOT NULL, word STRING NOT NULL", answers="replies"))


@app.stream(fk.Eager())
def answers(queries):
    return queries.where("word <> 'silence'").select("id", F.length("word").alias("length"), F.rand().alias("lot"))


@app.stream(fk.Lazy("5 seconds"))
def counts(queries):
    return queries.groupBy("word").count()


app.sink("replies", answers, fk.Kafka(f"answers-{tag}", key="id"))
app.sink("counts", counts, fk.Kafka(f"counts-{tag}", key="word"))
