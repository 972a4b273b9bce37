"""Live lookups in a batch and in a live processor, which test_lookups.py runs and kills."""

import os

from pyspark.sql import functions as F

import falkirk as fk

app = fk.App("lookups", history=20)
app.source("offers", fk.Kafka(os.environ["OFFERS"], schema="product STRING NOT NULL, version LONG"))
app.source("orders", fk.Kafka(os.environ["ORDERS"], schema="id STRING NOT NULL, product STRING", key="product"))


@app.batch(every="1 second", state="product STRING, version LONG")
def prices(offers, prices):
    return prices.unionByName(offers).groupBy("product").agg(F.max("version").alias("version"))


@app.stream(fk.Lazy("4 seconds"))
def counted(orders):
    return orders.groupBy("product").agg(F.count("*").alias("orders"))


@app.stream(fk.Lazy("4 seconds"))
def priced(orders, prices: fk.View, counted: fk.View):
    found = orders.lookup(prices, "product", "found", epoch="epoch").lookup(counted, "product", "known", epoch="counts")
    return found.lookup(prices, "product", "again")


app.sink("priced", priced, fk.Kafka(os.environ["PRICED"], key="id"))
