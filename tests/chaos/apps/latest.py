"""The application that `test_live_latest.py` runs and kills. HOP=off: no log records the order of orders and prices."""

import os
from typing import Any

import falkirk as fk
from falkirk.declare.nodes import NEWEST_ROW
from falkirk.plan import chains
from falkirk.steps.live import newest

app = fk.App("latest")
app.source("offers", fk.Kafka(os.environ["OFFERS"], schema="id STRING NOT NULL, n LONG"))
app.source("orders", fk.Kafka(os.environ["ORDERS"], schema="id STRING NOT NULL, n LONG"))


@app.stream(fk.Lazy("3 seconds"), engine="live")
def prices(offers: fk.Stream) -> fk.Stream:
    return offers.where("n % 7 <> 0").selectExpr("id", "n AS price")


@app.stream(fk.Lazy("5 seconds"), engine="live")
def priced(orders: fk.Stream, prices: fk.Stream) -> fk.Stream:
    return orders.where("n % 5 <> 0").lookup(fk.Newest(prices), "id", "found")


app.sink("priced", priced, fk.Kafka(os.environ["PRICED"], key="id"))

if os.environ.get("HOP") == "off":
    needs_hop, unchecked = chains.needs_hop, lambda data, keys: data

    def without_order(draft: Any, step: Any, keys: Any, operation: str = "") -> str | None:
        return None if operation == NEWEST_ROW else needs_hop(draft, step, keys, operation)

    chains.needs_hop = without_order
    newest.order_checked = unchecked
