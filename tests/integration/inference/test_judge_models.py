"""`falkirk verify outputs` finds results of the tests' own models right, for each kind of step with event time.

No application runs: the models write the topics. So each kind takes a second or two. The kinds that run live before
each merge are judged there, too.
"""

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.check import Guarantee
from falkirk.commands.judge import LiveJudge
from falkirk.kafka.connection import Connection
from tests import duplicates, joined, versioned, windows
from tests.integration.live import Wire

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)

SCHEMA = "id STRING, at TIMESTAMP, n INT"
WINDOWS: Mapping[str, Callable[[], "Column"]] = {
    "tumbling": lambda: F.window("at", f"{windows.SIZE_S} seconds"),
    "sliding": lambda: F.window(F.col("at"), f"{windows.SIZE_S} seconds", f"{windows.SLIDE_S} seconds"),
    "session": lambda: F.session_window("at", f"{windows.GAP_S} seconds").alias("window"),
}
Rows = list[dict[str, Any]]
#: The results that are due, the number of dead letters, and the steps.
Case = tuple[Rows, int, Callable[..., fk.Stream]]


def first(clicks: fk.Stream) -> fk.Stream:
    timed = clicks.withWatermark("at", f"{duplicates.DELAY_S} seconds").where("n % 7 <> 0")
    return timed.dropDuplicates(["id"]).select("id", "n")


def windowed(clicks: fk.Stream, *, kind: str, mode: str) -> fk.Stream:
    timed = clicks.withWatermark("at", f"{duplicates.DELAY_S} seconds").where("n % 7 <> 0")
    grouped = timed.groupBy(WINDOWS[kind](), "id").outputMode(mode)
    return grouped.agg(F.count("*").alias("count"), F.sum("n").alias("total"))


def pairs(shown: fk.Stream, hits: fk.Stream, *, how: str) -> fk.Stream:
    left = shown.withWatermark("at", f"{joined.DELAYS_S['shown']} seconds").where("n % 7 <> 0")
    right = hits.withWatermark("at", f"{joined.DELAYS_S['clicks']} seconds").where("n % 7 <> 0").alias("clicks")
    if how == "named":
        return left.join(right, "id", "full", within=f"{joined.WITHIN_S} seconds").select("n", "right_n")
    return left.join(right, F.expr(joined.CONDITION), how).select("n", "right_n")


def priced(orders: fk.Stream, prices: fk.Stream, *, how: str, tolerance: int | None) -> fk.Stream:
    stream = orders.withWatermark("at", f"{versioned.DELAYS_S['orders']} seconds").where("n % 7 <> 0")
    table = prices.withWatermark("at", f"{versioned.DELAYS_S['prices']} seconds").where("n % 7 <> 0")
    limit = None if tolerance is None else f"{tolerance} seconds"
    return stream.join_asof(table, "id", how, tolerance=limit).select("n", "right_n")


def of_window(result: windows.Result) -> dict[str, Any]:
    key, start, end, count, total = result
    bounds = [datetime.fromtimestamp(each, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") for each in (start, end)]
    return {"window": dict(zip(("start", "end"), bounds, strict=True)), "id": key, "count": count, "total": total}


@pytest.fixture
def cases(wire: Wire) -> dict[str, Case]:
    """The cases by name. Their input is in the topics."""
    clicks = duplicates.drawn(3, 300, ids=6)
    both, priced_ = joined.drawn(5, 150, ids=12), versioned.drawn(5, 120)
    for records, ends in ((both, joined.ends(150)), (priced_, versioned.ends(120))):
        for of in records.values():
            for partition, mine in of.items():
                mine += ends[partition]
    inputs = {"clicks": clicks, "shown": both["shown"], "hits": both["clicks"], **priced_}
    for name, partitions in inputs.items():
        topic = wire.topic(name)
        for partition, mine in partitions.items():
            wire.send(topic, mine, partition)
    ids = {record["n"]: record["id"] for mine in clicks.values() for record in mine}
    kept = duplicates.expected(clicks)
    found: dict[str, Case] = {"first": ([{"id": ids[n], "n": n} for n in kept.results], len(kept.letters), first)}
    for kind in WINDOWS:
        of_kind = windows.expected(clicks, kind)
        for mode, due in (("append", of_kind.final), ("update", of_kind.updates)):
            steps = partial(windowed, kind=kind, mode=mode)
            found[f"{kind}_{mode}"] = [*map(of_window, due)], len(of_kind.letters), steps
    for how in ("inner", "left", "right", "full", "named"):
        of_both = joined.expected(both["shown"], both["clicks"], before_s=joined.WITHIN_S if how == "named" else 0)
        rows = [{"n": one, "right_n": other} for one, other in of_both.of(how)]
        found[f"join_{how}"] = rows, len(of_both.letters), partial(pairs, how=how)
    for how in ("inner", "left"):
        for tolerance in (None, versioned.TOLERANCE_S):
            of_prices = versioned.expected(priced_["orders"], priced_["prices"], how, tolerance)
            rows = [{"n": one, "right_n": other} for one, other in of_prices.results]
            steps = partial(priced, how=how, tolerance=tolerance)
            found[f"asof_{how}_{tolerance}"] = rows, len(of_prices.letters), steps
    return found


def test_the_results_of_the_models_are_right(
    wire: Wire, home: Path, spark: "SparkSession", cases: dict[str, Case]
) -> None:
    app = fk.App("models", home=home)
    for name in ("clicks", "shown", "hits", "orders", "prices"):
        app.source(name, fk.Kafka(f"{name}-{wire.tag}", schema=SCHEMA, key="id" if name == "clicks" else None))
    reads = {"join": ("shown", "hits"), "asof": ("orders", "prices")}
    for name, (rows, _, steps) in cases.items():
        of = reads.get(name.partition("_")[0], ("clicks",))
        app.add_processor(name, steps, reads=of, policy=fk.Lazy("5 seconds"), engine="live")
        app.sink(f"{name}-out", name, fk.Kafka(wire.topic(name, 1)))
        wire.send(f"{name}-{wire.tag}", rows)
    judge, wrong = LiveJudge(app, Connection.of(wire.bootstrap), spark), {}
    for name, (rows, letters, _) in cases.items():
        verdict = judge.judge_sink(app.sinks[f"{name}-out"])
        assert verdict.letters is not None
        counts = verdict.results.counts
        print(name, verdict.results.guarantee, counts.expected_outputs, verdict.letters.counts.lost, flush=True)
        if verdict.results.guarantee is not Guarantee.EXACTLY_ONCE or verdict.letters.counts.lost != letters:
            wrong[name] = counts, verdict.results.anomalies[:3], verdict.letters.counts.lost, letters
        assert counts.observed_outputs == len(rows) > 10, name
    assert not wrong
