"""The application that chaos/test_live_order.py runs and kills.

BARRIER=greatest compares greatest stamps, not sets. BARRIER=early records positions that a replay may fall short of.
"""

import os
from dataclasses import replace

import falkirk as fk
from falkirk.runtime.live import region
from falkirk.runtime.outputs import Outputs
from falkirk.runtime.rows import Barrier
from tests import ordered

app = fk.App("order")
app.source("orders", fk.Kafka(os.environ["ORDERS"], schema=ordered.SCHEMA))


@app.stream(fk.Lazy("5 seconds"), engine="live")
def chained(orders: fk.Stream) -> fk.Stream:
    return ordered.steps(orders)


app.sink("chained", chained, fk.Kafka(os.environ["CHAINED"]))

if os.environ.get("BARRIER") == "greatest":
    right_barrier = Outputs.barrier

    def wrong_barrier(self: Outputs, *arguments: object) -> Barrier:
        found = right_barrier(self, *arguments)  # type: ignore[arg-type]
        return replace(found, unsafe_main=None, unsafe_dead=None)

    Outputs.barrier = wrong_barrier  # type: ignore[method-assign,assignment]
if os.environ.get("BARRIER") == "early":
    region.read_before = lambda *_: {}  # type: ignore[attr-defined,assignment]
