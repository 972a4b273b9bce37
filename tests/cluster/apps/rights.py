"""Something of each kind, over a connection with TLS and SASL: a hop, a batch with a view, an iteration, and requests.

The environment has the connection, by password or with TOKENS by token, and the tag of the topics.
"""

import os

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.steps.differential import connected_components

tag, by_token = os.environ["TAG"], os.environ.get("TOKENS")
broker = fk.Connection(
    os.environ["SECURED"],
    security_protocol="SASL_SSL",
    sasl_mechanism="OAUTHBEARER" if by_token else "SCRAM-SHA-512",
    username=os.environ["KAFKA_USER"],
    password="env:KAFKA_PASSWORD",
    token_url=by_token,
    scope="kafka" if by_token else None,
    ca_location=os.environ["CA"],
    key_location=None if by_token else os.environ["CLIENT"],
)
app = fk.App(f"rights-{tag}", kafka=broker, transactional=True)
app.source("loose", fk.Kafka(f"events-{tag}", schema="word STRING NOT NULL, n INT"))
app.source("edges", fk.Kafka(f"edges-{tag}", schema="src LONG NOT NULL, dst LONG NOT NULL"))
app.source("queries", fk.Http("/queries", schema="id STRING NOT NULL, word STRING NOT NULL", answers="replies"))


@app.stream(fk.Lazy("4 seconds"))
def counts(loose):
    return loose.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))


@app.batch(every="5 seconds", state="word STRING, total LONG")
def totals(loose, totals):
    new = loose.groupBy("word").agg(F.count("*").alias("total"))
    return totals.unionByName(new).groupBy("word").agg(F.sum("total").alias("total"))


@app.iterate(every="5 seconds")
def components(edges):
    return connected_components(edges)


@app.stream(fk.Eager())
def replies(queries, totals: fk.View):
    return queries.join(totals, "word", "left").select("id", "word", "total")


app.sink("counts", counts, fk.Kafka(f"counts-{tag}", key="word"))
app.sink("totals", totals, fk.Kafka(f"totals-{tag}", key="word"))
app.sink("components", components, fk.Kafka(f"components-{tag}", key="node"))
app.sink("replies", replies, fk.Kafka(f"replies-{tag}", key="id"))
