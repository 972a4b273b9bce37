"""Joins of two sources: the same steps live and in micro-batches, over a stop in the middle.

Both engines give the results of the model in plain Python: pairs, records without a partner, and late records. So they
give the same results as sets, whenever records arrive.
"""

import json
import os
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import run_here
from tests import joined, timed_streams
from tests.duplicates import BEGAN
from tests.integration.explained import explained
from tests.integration.judged import see_judged
from tests.integration.live import Wire, await_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT"
RECORDS = 150
#: A case costs up to a minute of CPU time. One is enough before each merge.
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
#: A "named" join is a full one by the name of a column and `within`.
KINDS = ("inner", "left", "right", "full", "named")


def body_of(how: str) -> Callable[[fk.Stream, fk.Stream], fk.Stream]:
    """Return the steps of a processor. Records that a step leaves out have moved the time."""

    def body(shown: fk.Stream, clicks: fk.Stream) -> fk.Stream:
        left = shown.withWatermark("at", f"{joined.DELAYS_S['shown']} seconds").where("n % 7 <> 0")
        right = clicks.withWatermark("at", f"{joined.DELAYS_S['clicks']} seconds").where("n % 7 <> 0")
        if how == "named":
            return left.join(right, "id", "full", within=f"{joined.WITHIN_S} seconds")
        return left.join(right, F.expr(joined.CONDITION), how).withColumn("sum", F.col("n") + F.col("right_n"))

    return body


@cache
def application(wire: Wire, home: Path, names: tuple[str, ...]) -> fk.App:
    """Return an application that runs processors, whose names have the engine and the kind of join."""
    app = fk.App(f"joins-{wire.tag}", home=home)
    for name in joined.DELAYS_S:
        app.source(name, fk.Kafka(f"{name}-{wire.tag}", schema=SCHEMA))
    for name in names:
        engine, _, how = name.partition("_")
        body = body_of(how)
        body.__name__ = name
        app.stream(fk.Lazy("2 seconds"), engine="live" if engine == "live" else "micro-batch")(body)
        app.sink(f"{name}-out", name, fk.Kafka(f"{name}-out-{wire.tag}", key="id"))
    return app


def dead(wire: Wire, name: str) -> str:
    """Return the name of the topic with a processor's dead letters."""
    return f"{name}-out-{wire.tag}.dead-letters" if name.startswith("live") else f"joins-{wire.tag}-{name}.dead-letters"


def letters(wire: Wire, name: str) -> Counter[tuple[str, str]]:
    """Return the dead letters of a processor: reason and record."""
    return Counter((row["reason"], row["value"]) for row in wire.rows(dead(wire, name)))


def _has(wire: Wire, topic: str, count: int) -> bool:
    return wire.count(topic) >= count


@pytest.mark.parametrize(
    ("engine", "how"),
    [
        pytest.param(engine, how, marks=[] if (engine, how) == ("live", "full") else SOAK)
        for engine in ("live", "micro")
        for how in KINDS
    ],
)
def test_the_results_are_those_of_the_model_over_a_restart(
    wire: Wire, home: Path, engine: str, how: str, spark: "SparkSession"
) -> None:
    names = (f"{engine}_{how}",)
    records = joined.drawn(5, RECORDS, ids=12)
    for name in joined.DELAYS_S:
        wire.topic(name)
    for name in names:
        wire.topic(f"{name}-out")
    sent: dict[str, dict[int, list[dict[str, object]]]] = {name: {} for name in records}
    for half in (0, 1):
        for name, partitions in records.items():
            for partition, mine in partitions.items():
                more = (
                    mine[len(mine) // 2 :] + timed_streams.ends(RECORDS)[partition] if half else mine[: len(mine) // 2]
                )
                wire.send(f"{name}-{wire.tag}", more, partition=partition)
                sent[name].setdefault(partition, []).extend(more)
        due = joined.expected(sent["shown"], sent["clicks"], before_s=joined.WITHIN_S if how == "named" else 0)
        query = run_here(application(wire, home, names), Connection.of(wire.bootstrap), create_topics=True)
        for name in names:
            count = len(due.of(how) if half else due.pairs)
            await_one(query, partial(_has, wire, f"{name}-out-{wire.tag}", count), f"{count} results of {name}")
            await_one(query, partial(_has, wire, dead(wire, name), len(due.letters)), f"dead letters of {name}")
        query.stop()
    assert min(len(due.pairs), len(due.lefts), len(due.rights)) > 20
    assert "late" in due.letters.values()
    for name in names:
        assert joined.results(wire.rows(f"{name}-out-{wire.tag}")) == due.of(how), name
        assert Counter(reason for reason, _ in letters(wire, name)) == Counter(due.letters.values()), name
    if engine == "live":
        app = application(wire, home, names)
        _see_what_made_results(app, f"{names[0]}-out-{wire.tag}", wire, spark)
        see_judged(spark, app, f"{names[0]}-out", wire, lambda: _send_last(wire), late=1)


def _see_what_made_results(app: fk.App, topic: str, wire: Wire, spark: "SparkSession") -> None:
    """See that `falkirk why` names the records of a pair, and why a record has no partner."""
    results = {
        (row["n"] is None, row["right_n"] is None): each
        for each in wire.records(topic)
        for row in [{"n": None, "right_n": None, **json.loads(each.value or b"")}]
    }
    for row, records, made, text in explained(app, wire.bootstrap, spark, topic, results.values()):
        sides = [row.get("n"), row.get("right_n")]
        assert [record["n"] for record in records] == [n for n in sides if n is not None]
        assert made["deleted"] == 0
        if None in sides:
            other = "shown" if sides[0] is None else "clicks"
            assert f"{other} has no record that fits it" in text


def _send_last(wire: Wire) -> None:
    """Send a pair, and a record that is late."""
    pair = {"id": "zz", "at": timed_streams.END, "n": 1}
    wire.send(f"shown-{wire.tag}", [pair, {**pair, "at": BEGAN.isoformat()}])
    wire.send(f"clicks-{wire.tag}", [pair])
