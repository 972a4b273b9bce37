"""Nexmark in the test kit: each query gives the results that Spark SQL finds in the events, also after a crash."""

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import falkirk as fk
from benchmarks.nexmark.events import BEGIN, KEYS, closing, events
from benchmarks.nexmark.queries import QUERIES, application
from benchmarks.nexmark.reference import Reference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 400 if "FALKIRK_STRIKES" in os.environ else 240
CLOSING = BEGIN + timedelta(hours=1)


#: One of each kind, with `difference` or a window or two inputs. The others run with FALKIRK_STRIKES alone.
SOME = ("q6", "q8", "q11", "q17")
OTHERS = tuple(query for query in QUERIES if query not in SOME)
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")


@pytest.mark.parametrize("queries", [SOME, pytest.param(OTHERS, marks=SOAK)])
def test_each_query_gives_what_is_due(spark: "SparkSession", queries: tuple[str, ...]) -> None:
    sent = [*events(COUNT), *closing(CLOSING)]
    rows = {t: [e.row for e in sent if e.topic == t] for t in KEYS}
    with fk.testing.run(application(queries)) as t:
        for topic, begun in rows.items():
            t.feed(topic, begun[: len(begun) // 2])
        t.crash()
        for topic, begun in rows.items():
            t.feed(topic, begun[len(begun) // 2 :])
        t.advance("1 minute")
        assert t.dead_letters() == []
        found = {query: t.read(query) for query in queries}
    reference = Reference(spark, rows)
    differing = {query: reference.differences(query, rows) for query, rows in found.items()}
    assert not {query: found for query, found in differing.items() if any(found.values())}
    assert all(found.values())
