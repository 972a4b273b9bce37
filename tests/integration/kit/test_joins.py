"""Joins of three streams in the test kit, on real Spark: live and in micro-batches, the results of the model."""

import os
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

import falkirk as fk
from falkirk.testing import ABORT, kit
from tests import thrice_joined as model
from tests import timed_streams
from tests.duplicates import BEGAN

__all__ = ["kit"]
RECORDS = 60
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
#: The clock. No time of a record is ahead of it.
AFTER = BEGAN + timedelta(days=2)


def application(engine: Any, first: str, second: str) -> fk.App:
    app = fk.App("shop")
    for name in model.DELAYS_S:
        app.source(name, fk.Kafka(name, schema=model.SCHEMA))
    steps = model.body(first, second)
    app.add_processor("seen", steps, reads=(*model.DELAYS_S,), policy=fk.Lazy("5 seconds"), engine=engine)
    app.sink("seen", "seen", fk.Kafka("seen"))
    return app


@pytest.mark.parametrize(
    ("engine", "first", "second"),
    [
        pytest.param(engine, *kinds, marks=[] if kinds == model.KINDS[0] and engine == "micro-batch" else SOAK)
        for kinds in model.KINDS
        for engine in ("micro-batch", "live")
    ],
)
def test_the_results_are_those_of_the_model(kit: Any, engine: str, first: str, second: str) -> None:
    """A crash comes between the halves of the first stream."""
    records, (last,) = model.drawn(3, RECORDS, ids=6), timed_streams.ends(RECORDS)[0]
    sent = {name: {0: [*partitions[0], *partitions[1], last]} for name, partitions in records.items()}
    due = model.expected(sent, first, second)
    t = kit(application(engine, first, second), at=AFTER)
    half = RECORDS // 2
    t.feed("shown", [*sent["shown"][0][:half], ABORT])
    t.feed("sold", sent["sold"][0])
    t.feed("clicks", sent["clicks"][0])
    t.feed("shown", sent["shown"][0][half:])
    assert model.results(t.read("seen")) == due.results
    assert Counter(letter["reason"] for letter in t.dead_letters()) == Counter(due.letters.values())
    assert len([each for each in due.results if None not in each]) > 5
    assert "late" in due.letters.values()
