"""A count after a hop, over a connection with TLS and SASL that the test's environment describes."""

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


app.sink("counts", counts, fk.Kafka(os.environ["COUNTS"], key="word"))
