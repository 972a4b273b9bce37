"""`falkirk verify outputs` finds results of the tests' own models right, and each planted fault in them, for each kind
of step with event time.

No application runs: the models write the topics. So a judgement takes some seconds. `integration/judged.py` judges
live regions that have run.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.checker import Guarantee
from falkirk.kafka_client.connection import Connection
from falkirk.user_tools.commands.judge import LiveJudge, LiveVerdict
from tests import duplicates, joined, timed_streams, versioned, windows
from tests.integration.judged import changed
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
KINDS = ("first", *WINDOWS, "join", "asof")
#: The faults that a verdict counts, but for those of records with several results.
FAULTS = ("duplicates", "lost", "unexplained", "broken_sequences", "forgotten", "repeated_inputs")
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


def cases(wire: Wire) -> dict[str, Case]:
    """Return the cases by name. Send their input."""
    clicks = duplicates.drawn(3, 300, ids=6)
    for partition, mine in clicks.items():  # the last record only moves time: steps after that get no record of it
        mine += [{**last, "id": f"end{partition}"} for last in timed_streams.ends(300)[partition]]
    both, priced_ = joined.drawn(5, 150, ids=12), versioned.drawn(5, 120)
    for records, ends in ((both, timed_streams.ends(150)), (priced_, timed_streams.ends(120))):
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


class Judged:
    """All cases in one application. The tests fill the topics of its sinks, and no application writes them."""

    def __init__(self, wire: Wire, home: Path, spark: "SparkSession", kind: str, variants: Sequence[str]) -> None:
        self._wire, every = wire, cases(wire)
        self.cases = {name: case for name, case in every.items() if name.startswith(kind)}
        self._app = fk.App("models", home=home)
        for name in ("clicks", "shown", "hits", "orders", "prices"):
            key = "id" if name == "clicks" else None
            self._app.source(name, fk.Kafka(f"{name}-{wire.tag}", schema=SCHEMA, key=key))
        reads = {"join": ("shown", "hits"), "asof": ("orders", "prices")}
        for name, (_, _, steps) in self.cases.items():
            of = reads.get(name.partition("_")[0], ("clicks",))
            self._app.add_processor(name, steps, reads=of, policy=fk.Lazy("5 seconds"), engine="live")
            for variant in variants:
                self._app.sink(f"{name}-{variant}", name, fk.Kafka(wire.topic(f"{name}-{variant}", 1)))
        self._judge = LiveJudge(self._app, Connection.of(wire.bootstrap), spark)

    def judge(self, name: str, variant: str, rows: Rows) -> LiveVerdict:
        """Return the verdict on these rows as the results of a case. Call it once for each variant."""
        self._wire.send(f"{name}-{variant}-{self._wire.tag}", rows)
        return self._judge.judge_sink(self._app.sinks[f"{name}-{variant}"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_results_of_the_models_are_right(wire: Wire, home: Path, spark: "SparkSession", kind: str) -> None:
    judged, wrong = Judged(wire, home, spark, kind, ("right",)), {}
    for name, (rows, letters, _) in judged.cases.items():
        verdict = judged.judge(name, "right", rows)
        assert verdict.letters is not None
        counts, lost = verdict.results.counts, verdict.letters.counts.lost
        print(name, verdict.results.guarantee, counts.expected_outputs, lost, flush=True)
        if verdict.results.guarantee is not Guarantee.EXACTLY_ONCE or lost != letters:
            wrong[name] = counts, verdict.results.anomalies[:3], lost, letters
        assert counts.observed_outputs == len(rows) > 10, name
    assert not wrong


@pytest.mark.parametrize("kind", KINDS)
def test_planted_faults_are_found(wire: Wire, home: Path, spark: "SparkSession", kind: str) -> None:
    judged, missed = Judged(wire, home, spark, kind, ("lost", "changed", "swapped")), {}
    for name, (rows, letters, _) in judged.cases.items():
        one = len(rows) // 2
        before, after = rows[:one], rows[one + 1 :]
        planted = {
            "lost": ([*before, *after], {"lost": 1}),
            "changed": ([*before, changed(rows[one]), *after, rows[0]], {"lost": 1, "unexplained": 1, "duplicates": 1}),
        }
        if kind not in ("join", "asof"):
            planted["swapped"] = swapped(rows), {"broken_sequences": 1}
        for variant, (wrong, faults) in planted.items():
            verdict = judged.judge(name, variant, wrong)
            assert verdict.letters is not None
            counts = verdict.results.counts
            found = {fault: number for fault, number in counts.as_dict().items() if fault in FAULTS and number}
            print(name, variant, counts, verdict.letters.counts.lost, flush=True)
            if found != faults or verdict.letters.counts.lost != letters:
                missed[name, variant] = verdict.results
    assert not missed


def swapped(rows: Rows) -> Rows:
    """Return results in which two neighbours of one key change their places."""
    places = [n for n, row in enumerate(rows) if row["id"] == rows[0]["id"]]
    one, other = next((a, b) for a, b in pairwise(places) if rows[a] != rows[b])
    found = list(rows)
    found[one], found[other] = rows[other], rows[one]
    return found
