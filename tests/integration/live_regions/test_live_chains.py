"""Several keyed steps in one live region: no hop, the results of a model and of micro-batches, over a failure.

`counted` aggregates the first record of each key, and a model in plain Python tells its results. `folded` runs live and
in micro-batches: a state with timers and expiry over the first records, of which a step in between makes several rows.
Falkirk adds the key to its results, which `tallied` sums. The live queries end with results behind their checkpoints.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.checker import Guarantee
from falkirk.kafka_client.connection import Connection
from falkirk.plan.shape import read_shape
from falkirk.recovery.ownership.folder import Home
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.rows import Barrier
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.theory.channel import ReleasedTail
from falkirk.theory.ids import BatchId, LogId
from falkirk.user_tools.commands.judge import LiveJudge
from falkirk.user_tools.commands.kept_state import KeptState, StateTable, live_state
from falkirk.user_tools.commands.made_of import MadeOf
from falkirk.user_tools.commands.origins import Origins
from falkirk.user_tools.commands.planned import PlannedRegions
from falkirk.user_tools.commands.records import TopicRecords
from falkirk.user_tools.commands.running import home_to_read
from falkirk.user_tools.commands.spark_state import read_aggregates
from falkirk.user_tools.commands.state_tables import StateTables
from tests.chained import RETURNS, WITHOUT_KEY, chained, reminded_by_key, reminding_by_key
from tests.counted import SCHEMA, Results, counted, first, modelled, results, without_repetitions
from tests.duplicates import BEGAN, drawn
from tests.integration.live import Wire, await_one, fail_behind_a_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
RECORDS = 300
Records = Mapping[int, list[dict[str, Any]]]


@pytest.fixture
def wire(spark: "SparkSession", broker: Broker, tag: str) -> Wire:
    """Topics of the test's own on the broker; there is a session."""
    return Wire(bootstrap=broker.bootstrap, tag=tag)


def folded(clicks: fk.Stream) -> fk.Stream:
    several = first(clicks).explode(F.expr("sequence(n, n + n % 3)"), "m").selectExpr("id", "at", "m AS n")
    return several.stateful(
        reminding_by_key, key="id", state="seen INT", returns=WITHOUT_KEY, on_timer=reminded_by_key,
        expires="20 seconds", include_key=True,
    )  # fmt: skip


def tallied(clicks: fk.Stream) -> fk.Stream:
    return folded(clicks).groupBy("id").agg(F.sum("n").alias("s"), F.count("*").alias("c"))


def tallies(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the results of `tallied` for those of `folded`, by id, in their order."""
    found, seen = list[dict[str, Any]](), defaultdict[str, list[int]](list)
    for row in rows:
        seen[row["id"]].append(row["n"])
        found.append({"id": row["id"], "s": sum(seen[row["id"]]), "c": len(seen[row["id"]])})
    return by_id(found)


def windowed(clicks: fk.Stream) -> fk.Stream:
    grouped = first(clicks).where("n % 7 <> 0").groupBy(F.window("at", "7 seconds"), "id")
    return grouped.agg(F.sum("n").alias("n"), F.count("*").alias("count"))


def three(clicks: fk.Stream) -> fk.Stream:
    """Count the records of an id, add these counts, and number the sums.

    All keys are the same, because a hop by another key would mix the records of an id in an order of its own.
    """
    counts = clicks.groupBy("id").agg(F.count("*").alias("c"), fk.latest_value("n"))
    sums = counts.where("c % 4 <> 3").groupBy("id").agg(F.sum("c").alias("s"), fk.latest_value("n"))
    rows = sums.selectExpr("id", "timestamp_seconds(s) AS at", "n")
    return rows.stateful(chained, key="id", state="seen INT", returns=RETURNS)


RUNS: dict[str, tuple[Callable[[fk.Stream], fk.Stream], str]] = {
    "counted": (counted, "live"), "folded": (folded, "live"), "tallied": (tallied, "live"),
    "batch": (folded, "micro-batch"), "windowed": (windowed, "live"), "three": (three, "live"), "hops": (three, "live"),
}  # fmt: skip


@cache
def application(tag: str, home: Path, names: tuple[str, ...]) -> fk.App:
    app = fk.App(f"chains-{tag}", home=home)
    app.source("clicks", fk.Kafka(f"clicks-{tag}", schema=SCHEMA, key="id"))
    for name in names:
        body, engine = RUNS[name]
        policy = fk.LogSends("5 seconds") if name == "hops" else fk.Lazy("5 seconds")
        app.add_processor(name, body, reads=("clicks",), policy=policy, engine=engine)  # type: ignore[arg-type]
        sink = f"{name}-{'end' if name == 'hops' else 'out'}"  # fk.LogSends has a log with the name of the other
        app.sink(sink, name, fk.Kafka(f"{name}-out-{tag}", key="id"))
    return app


def published(wire: Wire) -> Results:
    """Return the results of `counted`."""
    return results(wire.rows(f"counted-out-{wire.tag}"))


def by_id(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return results by id, in their order."""
    found = defaultdict(list)
    for row in rows:
        found[row["id"]].append(str(row))
    return dict(found)


def has_all(found: Results, due: Results) -> bool:
    return all({*mine} <= {*found.get(key, ())} for key, mine in due.items())


def letters(wire: Wire, name: str) -> Counter[tuple[str, int, int]]:
    topic = f"chains-{wire.tag}-batch.dead-letters" if name == "batch" else f"{name}-out-{wire.tag}.dead-letters"
    return Counter((row["reason"], row["partition"], row["offset"]) for row in wire.rows(topic))


class Sent:
    """The records of a run, sent part by part."""

    def __init__(self, wire: Wire, names: tuple[str, ...]) -> None:
        self.records = drawn(11, RECORDS)
        for mine in self.records.values():  # its time makes all timers fire
            mine.append({"id": mine[0]["id"], "at": BEGAN.replace(hour=5).isoformat(), "n": 7})
        self._wire, self._upto = wire, 0.0
        wire.topic("clicks")
        for name in names:
            wire.topic(f"{name}-out")

    def send(self, end: float) -> None:
        """Send the records until this part of them."""
        for p, mine in self.records.items():
            part = mine[round(len(mine) * self._upto) : round(len(mine) * end)]
            self._wire.send(f"clicks-{self._wire.tag}", part, partition=p)
        self._upto = end

    def send_more(self) -> Callable[[], object]:
        """Send the next part. Return a condition: its results of `counted` are published."""
        self.send(self._upto + 0.1)
        topic, due = f"counted-out-{self._wire.tag}", modelled(self.part())[0]
        return lambda: self._wire.count(topic) >= sum(map(len, due.values())) and has_all(published(self._wire), due)

    def part(self) -> Records:
        """Return the records that are sent."""
        return {p: mine[: round(len(mine) * self._upto)] for p, mine in self.records.items()}


def run_over_a_failure(wire: Wire, home: Path, names: tuple[str, ...]) -> Sent:
    """Run the application, end the query of `counted` behind its checkpoint, stop, and run to the end of the input."""
    sent, app = Sent(wire, names), application(wire.tag, home, names)
    sent.send(0.3)
    query = run_here(app, Connection.of(wire.bootstrap), create_topics=True)
    try:
        assert {region.name for region in query.status} == {
            f"{name}-out" if name != "batch" else name for name in names
        }
        fail_behind_a_checkpoint(query, "counted-out", sent.send_more)
    finally:
        query.stop()
    sent.send(1.0)
    query = app.start(kafka=wire.bootstrap, home=home, once=True)
    try:
        assert query.awaitTermination(300), query.status
    finally:
        query.stop()
    return sent


def test_a_chain_gives_the_results_of_a_model_and_of_micro_batches_without_a_hop(
    wire: Wire, home: Path, spark: "SparkSession"
) -> None:
    names = ("counted", "folded", "tallied", "windowed", "batch")
    sent = run_over_a_failure(wire, home, names)
    due, late = modelled(sent.records)
    assert late > 5
    assert published(wire) == due
    found, batch = (Counter(map(str, wire.rows(f"{name}-out-{wire.tag}"))) for name in ("folded", "batch"))
    assert found.total() > 100
    assert found == batch
    assert by_id(wire.rows(f"tallied-out-{wire.tag}")) == tallies(wire.rows(f"folded-out-{wire.tag}"))
    assert letters(wire, "counted") == letters(wire, "folded") == letters(wire, "tallied") == letters(wire, "batch")
    assert sum(count for (reason, *_), count in letters(wire, "counted").items() if reason == "late") == late
    app = application(wire.tag, home, names)
    with home_to_read(app, home) as (held, _):
        see_what_made_results(app, held, wire, spark)
        see_states(app, held, wire, spark)


def see_what_made_results(app: fk.App, held: Home, wire: Wire, spark: "SparkSession") -> None:
    """Compare the answers of `falkirk why` with the results."""
    shape, place = read_shape(held.path), Storage(home=held, connection=Connection.of(wire.bootstrap))
    assert shape is not None
    records = TopicRecords(place)
    made_of = MadeOf(app, place, records, look=10_000, session=lambda: spark)
    origins = Origins(app, shape, place, records, limit=1_000, look=10_000, made_of=made_of)

    def origins_of(name: str, number: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        results = records.last(LogId(f"{name}-out-{wire.tag}"), 10_000)
        for each in results[:: max(1, len(results) // number)]:
            yield dict(each.content), origins.explain(each.at)["origin"]

    def rows_of(made: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
        assert (made["agrees"], made["deleted"], made["not_looked_at"]) == (True, 0, 0), made
        assert (made["columns"], made["values"]) == (["id"], [key])
        rows = [json.loads(each["record"]["value"]) for each in made["records"]]
        assert {row["id"] for row in rows} == {key}
        return rows

    for result, origin in origins_of("counted", 2):  # duplicates, late records, and those of the filter are left out
        rows = rows_of(origin["made_of"], result["id"])
        assert (result["total"], result["count"]) == (sum(2 * row["n"] for row in rows), len(rows))
        assert result["n"] == rows[0]["n"], "the newest record comes first"
    for result, origin in origins_of("windowed", 1):
        rows = rows_of(origin["made_of"], result["id"])
        assert (result["n"], result["count"]) == (sum(row["n"] for row in rows), len(rows))
        start, end = map(datetime.fromisoformat, origin["made_of"]["window"])
        assert start == datetime.fromisoformat(result["window"]["start"])
        assert all(start <= datetime.fromisoformat(row["at"]) < end for row in rows)
    for result, origin in origins_of("folded", 2):  # also the results of timers
        assert rows_of(origin["made_of"], result["id"])
    ((_, origin),) = origins_of("tallied", 1)
    assert (origin["made_of"], origin["not_recomputed"]) == (None, "it has steps after its `stateful`")


def see_states(app: fk.App, held: Home, wire: Wire, spark: "SparkSession") -> None:
    """Compare the answers of `falkirk state` with the results."""
    shape, planned = read_shape(held.path), PlannedRegions(app=app, home=held, session=spark)
    assert shape is not None

    def parts_of(name: str) -> dict[str, KeptState]:
        logs = next(r for r in shape.regions if r.name == f"{name}-out")
        region = planned.region(logs)
        assert region is not None

        def tables(folder: Path, number: BatchId, key: Any, limit: int) -> list[StateTable]:
            shown = StateTables(region=region, folder=folder, number=number, key=key, limit=limit, session=spark)
            return list(shown.all())

        found = live_state(logs, held, partial(read_aggregates, spark), (), 1_000, tables)
        return {each.what.partition(" (")[0]: each for each in found}

    counted, published = parts_of("counted"), wire.rows(f"counted-out-{wire.tag}")
    assert counted.keys() == {"first records", "aggregates"}
    assert counted["aggregates"].rows
    assert all(row in published for row in counted["aggregates"].rows)
    assert counted["first records"].columns == ("k", "id", "time", "partition")
    folded = parts_of("folded")
    assert folded.keys() == {"first records", "states", "timers and expiry"}
    states = {row["id"]: row["seen"] for row in folded["states"].rows}
    assert states
    timers = {row["id"]: row["timer"] for row in folded["timers and expiry"].rows}
    assert timers.keys() <= states.keys()
    windowed = parts_of("windowed")
    assert windowed.keys() == {"first records", "open windows"}
    for row in windowed["open windows"].rows:
        assert row.keys() == {"id", "start", "end", "n", "count"}


@SOAK
def test_a_chain_gives_the_results_of_regions_with_hops(wire: Wire, home: Path) -> None:
    """Under `fk.LogSends`, each keyed step reads a log."""
    names = ("three", "hops")
    app = application(wire.tag, home, names)
    sent = Sent(wire, names)
    sent.send(1.0)
    query = app.start(kafka=wire.bootstrap, home=home, once=True)
    try:
        assert sum("hops" in region.name for region in query.status) > 2
        assert sum("three" in region.name for region in query.status) == 1
        assert query.awaitTermination(300), query.status
    finally:
        query.stop()
    one, other = (by_id(wire.rows(f"{name}-out-{wire.tag}")) for name in names)
    assert sum(map(len, one.values())) > 100
    assert one == other


@SOAK
def test_windows_and_an_aggregation_after_first_records_are_judged(
    wire: Wire, home: Path, spark: "SparkSession"
) -> None:
    names = ("counted", "windowed")
    run_over_a_failure(wire, home, names)
    app = application(wire.tag, home, names)
    judge = LiveJudge(app, Connection.of(wire.bootstrap), spark)
    for name in names:
        found = judge.judge_sink(app.sinks[f"{name}-out"])
        assert found.satisfies(Guarantee.EXACTLY_ONCE), found.results.anomalies
        assert found.results.counts.observed_outputs > 50


@SOAK
def test_without_the_barrier_a_chain_repeats_results(wire: Wire, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mechanism is off: the replay publishes results again."""

    def opened(*_: Any) -> Barrier:
        return Barrier(main=ReleasedTail(), dead=ReleasedTail())

    monkeypatch.setattr("falkirk.runtime.spark.outputs.Outputs.barrier", opened)
    sent = Sent(wire, ("counted",))
    query = run_here(application(wire.tag, home, ("counted",)), Connection.of(wire.bootstrap), create_topics=True)
    try:
        for _ in range(4):
            await_one(query, sent.send_more(), "results")
            before = query.status[0].incarnation
            next(each for each in query.queries if (each.name or "").endswith(".counted-out")).stop()
            await_one(query, lambda: query.status[0].incarnation > before, "another incarnation")  # noqa: B023
            await_one(query, sent.send_more(), "results")
            found, due = published(wire), modelled(sent.part())[0]
            assert without_repetitions(found) == due
            if found != due:
                return
    finally:
        query.stop()
    raise AssertionError("no result was published twice")
