"""`stateful(order=)` in micro-batches, in the test kit on real Spark: the results of a model, over a crash."""

from datetime import timedelta
from typing import Any

import falkirk as fk
from falkirk.testing import ABORT, kit
from tests import ordered
from tests.duplicates import BEGAN

__all__ = ["kit"]
RECORDS = 80
#: The clock. No time of a record is ahead of it.
AFTER = BEGAN + timedelta(days=2)
NAMES = ("east", "west")


def application() -> fk.App:
    """Return an application that reads two topics as the two partitions of one."""
    app = fk.App("shop")
    for name in NAMES:
        app.source(name, fk.Kafka(name, schema=ordered.SCHEMA))

    @app.stream(engine="micro-batch")
    def chained(east: fk.Stream, west: fk.Stream) -> fk.Stream:
        return ordered.steps(east.unionByName(west))

    app.sink("chained", chained, fk.Kafka("chained"))
    return app


def test_the_results_are_those_of_the_model_over_a_crash(kit: Any) -> None:
    records = ordered.drawn(4, RECORDS)
    due = ordered.expected(records)
    t = kit(application(), at=AFTER)
    half = len(records[0]) // 2
    t.feed("east", records[0][:half])
    assert t.read("chained") == []  # nothing is known of the other topic
    t.feed("west", [*records[1][: half + 10], ABORT])
    early = ordered.results(t.read("chained"))
    assert 0 < len(early) < len(due.results)
    t.feed("west", records[1][half + 10 :])
    t.feed("east", records[0][half:])
    assert ordered.results(t.read("chained")) == due.results
    assert ordered.letters(t.dead_letters()) == due.letters
    assert {kind for kind, _ in due.letters} == {"late", "unfit", "failed"}
