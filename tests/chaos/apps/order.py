"""The application that chaos/test_live_order.py runs and kills: a state whose function gets records by their times."""

import os

import falkirk as fk
from tests import ordered

app = fk.App("order")
app.source("orders", fk.Kafka(os.environ["ORDERS"], schema=ordered.SCHEMA))


@app.stream(fk.Lazy("5 seconds"), engine="live")
def chained(orders: fk.Stream) -> fk.Stream:
    return ordered.steps(orders)


app.sink("chained", chained, fk.Kafka(os.environ["CHAINED"]))
