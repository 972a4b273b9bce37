"""A count in a live region, a batch, and a batch that answers requests. The connection has TLS and SASL.

The test's environment describes the connection.
"""

import os

from pyspark.sql import functions as F

import falkirk as fk

by_token = os.environ.get("TOKENS")
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
app = fk.App("secured", kafka=broker, fenced=True)
app.source("loose", fk.Kafka(os.environ["EVENTS"], schema="word STRING NOT NULL, n INT"))


@app.stream(fk.Lazy("3 seconds"))
def counts(loose):
    return loose.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))


app.source("queries", fk.Http("/queries", schema="id STRING NOT NULL, word STRING NOT NULL", answers="replies"))


@app.stream(fk.Eager())
def answers(queries):
    return queries.select("id", F.length("word").alias("length"))


@app.stream(fk.Eager())
def copies(loose):
    return loose.select("word")


app.sink("counts", counts, fk.Kafka(os.environ["COUNTS"], key="word"))
app.sink("replies", answers, fk.Kafka(os.environ["ANSWERS"], key="id"))
app.sink("copies", copies, fk.Kafka(os.environ["COPIES"]))
