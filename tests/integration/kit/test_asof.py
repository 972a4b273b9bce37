"""As-of joins in micro-batches, in the test kit on real Spark: the results of the model, however the input arrives."""

import os
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.testing import ABORT, kit
from tests import timed_streams, versioned
from tests.duplicates import BEGAN

__all__ = ["kit"]
SCHEMA = "id STRING, at TIMESTAMP, n INT"
RECORDS = 60
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
#: The clock. No time of a record is ahead of it.
AFTER = BEGAN + timedelta(days=2)


def application(how: str, tolerance_s: int | None) -> fk.App:
    app = fk.App("shop")
    for name in versioned.DELAYS_S:
        app.source(name, fk.Kafka(name, schema=SCHEMA))

    @app.stream(engine="micro-batch")
    def priced(orders: fk.Stream, prices: fk.Stream) -> fk.Stream:
        stream = orders.withWatermark("at", f"{versioned.DELAYS_S['orders']} seconds").where("n % 7 <> 0")
        table = prices.withWatermark("at", f"{versioned.DELAYS_S['prices']} seconds").where("n % 7 <> 0")
        # An `explode` gives the records of one side stamps with more fields than those of the other one.
        stream = stream.explode(F.array("n"), "m").selectExpr("id", "at", "m AS n")
        tolerance = None if tolerance_s is None else f"{tolerance_s} seconds"
        return stream.join_asof(table, "id", how, tolerance=tolerance)

    app.sink("priced", priced, fk.Kafka("priced"))
    return app


@pytest.mark.parametrize(
    ("how", "tolerance_s", "first"),
    [("left", versioned.TOLERANCE_S, "orders"), pytest.param("inner", None, "prices", marks=SOAK)],
)
def test_the_results_are_those_of_the_model(kit: Any, how: str, tolerance_s: int | None, first: str) -> None:
    """Args: first: the stream that arrives first. A crash comes between its halves."""
    drawn, (last,) = versioned.drawn(3, RECORDS), timed_streams.ends(RECORDS)[0]
    sent = {name: {0: [*partitions[0], *partitions[1], last]} for name, partitions in drawn.items()}
    due = versioned.expected(sent["orders"], sent["prices"], how, tolerance_s)
    t = kit(application(how, tolerance_s), at=AFTER)
    (other,) = versioned.DELAYS_S.keys() - {first}
    half = RECORDS // 2
    t.feed(first, [*sent[first][0][:half], ABORT])
    t.feed(other, sent[other][0])
    t.feed(first, sent[first][0][half:])
    assert versioned.results(t.read("priced")) == due.results
    assert Counter(letter["reason"] for letter in t.dead_letters()) == Counter(due.letters.values())
    assert len([each for _, each in due.results if each is not None]) > 5
    assert "late" in due.letters.values()
