"""The test kit: rows in, rows out, a clock that the test moves, and crashes; on real Spark, without a broker."""

import json
import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.testing import ABORT, Kit, crash_between_writes, kit, run
from falkirk.theory.ids import Incarnation, Offset
from falkirk.user_tools.testkit.quick import QuickState
from falkirk.user_tools.testkit.steps import LiveSteps, RegionResult
from falkirk.user_tools.testkit.world import MemoryRecord
from tests import duplicates, timers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["kit"]
#: Tests that the page and the others cover in part. They run with FALKIRK_STRIKES alone.
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
ORDERS = [{"id": "1", "customer": "ann", "items": ["tea", "milk"]}, {"id": "2", "customer": "bob", "items": ["tea"]}]
SALES = [
    {"item": "tea", "sold": 1, "customer": "ann"},
    {"item": "milk", "sold": 1, "customer": "ann"},
    {"item": "tea", "sold": 2, "customer": "bob"},
]


def shop(**options: Any) -> fk.App:
    """The application of the README: two live regions with a hop."""
    app = fk.App("shop", **options)
    app.source("orders", fk.Kafka("orders", schema="id STRING NOT NULL, customer STRING, items ARRAY<STRING>"))

    @app.stream(fk.Ephemeral())
    def items(orders: fk.Stream) -> fk.Stream:
        return orders.explode("items", "item").select("item", "customer")

    @app.stream(fk.Lazy("10 seconds"))
    def sales(items: fk.Stream) -> fk.Stream:
        return items.groupBy("item").agg(F.count("*").alias("sold"), fk.latest_value("customer"))

    app.sink("sales", sales, fk.Kafka("sales", key="item"))
    return app


@pytest.fixture(scope="module")
def planned_shop(spark: "SparkSession") -> fk.App:
    """The shop, which is planned once."""
    return shop()


def test_rows_in_rows_out_and_bad_records_are_dead_letters(planned_shop: fk.App, kit: Any) -> None:
    t = kit(planned_shop)
    assert t.by_spark == {}
    t.feed("orders", [*ORDERS, b"no json"])
    assert t.read("sales") == SALES
    assert [(d["reason"], d["value"]) for d in t.dead_letters()] == [("does not fit the schema", "no json")]
    t.feed("orders", [("3", "cy", ["tea"])])  # Spark now computes it, from the records so far
    assert t.read("sales")[3:] == [{"item": "tea", "sold": 3, "customer": "cy"}]


@SOAK
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([*ORDERS, ABORT, "checkpoint"]), max_size=12))
def test_a_crash_anywhere_changes_no_result(planned_shop: fk.App, actions: list[Any]) -> None:
    rows = [row for row in actions if isinstance(row, dict)]
    with run(planned_shop) as expected, run(planned_shop) as t:
        expected.feed("orders", rows)
        for action in actions:
            if action == "checkpoint":
                t.checkpoint()
            else:
                t.feed("orders", [action])
        assert t.read("sales") == expected.read("sales")


def test_the_barrier_is_what_drops_repeated_results(planned_shop: fk.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falkirk.user_tools.testkit.live._greatest", lambda records: {})
    with run(planned_shop) as t:
        t.feed("orders", [*ORDERS, ABORT])
        assert Counter(map(str, t.read("sales"))) != Counter(map(str, SALES))


def test_a_crash_before_any_write_changes_no_result(planned_shop: fk.App) -> None:
    runs = 0
    for t in crash_between_writes(planned_shop):
        runs += 1
        t.feed("orders", ORDERS[:1])
        t.advance("10 seconds")
        t.feed("orders", ORDERS[1:])
        assert t.read("sales") == SALES, t
        assert t.crash_before == runs - 1
    assert runs == 10  # 9 writes: results in the hop and the topic, and checkpoints


def test_a_crash_during_the_start_after_a_crash_changes_no_result(planned_shop: fk.App) -> None:
    points = set[tuple[int, int]]()
    for t in crash_between_writes(planned_shop, twice=True):
        t.feed("orders", ORDERS[:1])
        t.advance("10 seconds")
        t.feed("orders", ORDERS[1:])
        assert t.read("sales") == SALES, t
        points.add((t.crash_before, t.and_before))
    later = {(first, second) for first, second in points if second > first > 0}
    assert {first for first, _ in later} == {*range(1, 10)}, later


def test_the_second_crash_follows_the_planned_one_not_one_of_the_test(planned_shop: fk.App) -> None:
    with run(planned_shop) as t:
        t.feed("orders", [ORDERS[0], ABORT])
        before = t.writes
    with Kit(planned_shop, crash_before=before + 1) as t:
        t.feed("orders", [ORDERS[0], ABORT, ORDERS[1]])
        assert t.read("sales") == SALES
        assert t.recovered.start == before + 2


def test_at_most_once_skips_the_input_after_the_last_result_before_a_crash(spark: "SparkSession") -> None:
    app = fk.App("counts")
    app.source("words", fk.Kafka("words", schema="word STRING NOT NULL", key="word"))
    app.stream()(counted)
    app.sink("counts", counted, fk.Kafka("counts", key="word"), delivery="at-most-once")
    with Kit(app, crash_before=3) as t:
        t.feed("words", [("a",), ("b",), ("a",), ("b",)])
        assert t.read("counts") == [{"word": "a", "count": 1}, {"word": "b", "count": 1}]
        t.feed("words", [("a",)])
        assert t.read("counts")[2:] == [{"word": "a", "count": 2}]


def counted(words: fk.Stream) -> fk.Stream:
    """Count per word."""
    return words.groupBy("word").count()


def vouchers() -> fk.App:
    """An application whose results wait for a checkpoint."""
    app = fk.App("vouchers")
    app.source("orders", fk.Kafka("orders", schema="id STRING NOT NULL, items ARRAY<STRING>"))

    @app.stream(fk.Lazy("20 seconds"))
    def coded(orders: fk.Stream) -> fk.Stream:
        return orders.withColumn("code", F.expr("uuid()")).explode("items", "item").select("code", "item")

    app.sink("vouchers", coded, fk.Kafka("vouchers"))
    return app


@SOAK
def test_results_that_may_differ_wait_for_a_checkpoint_and_agree(spark: "SparkSession") -> None:
    with run(vouchers()) as t:
        assert t.by_spark == {"vouchers": "Uuid"}
        t.feed("orders", [("1", ["tea", "milk"]), ABORT])
        assert t.read("vouchers") == []
        t.advance("20 seconds")
        first = t.read("vouchers")
        assert [row["item"] for row in first] == ["tea", "milk"]
        assert len({row["code"] for row in first}) == 1
        t.crash()
        assert t.read("vouchers") == first


def questions(path: Path) -> tuple[fk.App, "Appending"]:
    """An application with a batch, its state, views, and a sink of the user's own."""
    app, own = fk.App("questions"), Appending(path)
    app.source("items", fk.Kafka("items", schema="item STRING NOT NULL, price INT"))
    app.source("questions", fk.Kafka("questions", schema="id LONG NOT NULL, item STRING"))

    @app.batch(every="1 minute", state="item STRING, total LONG")
    def turnover(items: "DataFrame", turnover: "DataFrame") -> "DataFrame":
        new = items.select("item", F.col("price").cast("long").alias("total"))
        return turnover.unionByName(new).groupBy("item").agg(F.sum("total").alias("total"))

    @app.stream(fk.Eager())
    def answers(questions: "DataFrame", turnover: fk.View) -> "DataFrame":
        return questions.join(turnover, "item", "left").select("id", "total")  # type: ignore[attr-defined]

    app.sink("turnover", turnover, fk.Sql("postgresql://nobody@nowhere/shop", "turnover", key="item"))
    app.sink("answers", answers, fk.Kafka("answers", key="id"))
    app.sink("own", answers, own)
    return app, own


class Appending:
    """A sink that appends an epoch to a file, and remembers it in the same line."""

    def __init__(self, path: Path) -> None:
        self.path, self.address = path, f"file {path.name}"

    def delivered(self) -> int:
        """See fk.Sink."""
        lines = self.lines()
        return lines[-1]["epoch"] + 1 if lines else 0

    def deliver(self, epoch: int, rows: "DataFrame") -> None:
        """See fk.Sink."""
        with self.path.open("a") as file:
            file.write(json.dumps({"epoch": epoch, "rows": [row["id"] for row in rows.collect()]}) + "\n")

    def lines(self) -> list[dict[str, Any]]:
        """Return the stored lines."""
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


def asked(t: Kit, *, crashes: bool = False) -> None:
    """Ask before there is a view, and compare all sinks. Args: crashes: between the steps, too.

    Others wait for the first epoch of a view, so it does not wait for the minute.
    """
    crash = t.crash if crashes else lambda: None
    t.feed("questions", [(1, "tea")])
    assert t.read("answers") == []
    t.feed("items", [("tea", 3), ("milk", 2), ("tea", 4)])
    crash()
    assert t.read("answers") == [{"id": 1, "total": 7}]
    t.feed("items", [("tea", 1)])
    assert t.read("turnover") == [{"item": "tea", "total": 7}, {"item": "milk", "total": 2}]
    crash()
    t.advance("1 minute")
    crash()
    assert t.read("turnover") == [{"item": "tea", "total": 8}, {"item": "milk", "total": 2}]


def test_batches_views_and_a_sink_of_ones_own_over_crashes(spark: "SparkSession", tmp_path: Path) -> None:
    app, own = questions(tmp_path / "own")
    with run(app, own_sinks=True) as t:
        asked(t, crashes=True)
        with pytest.raises(fk.DefinitionError, match="sink of your own"):
            t.read("own")
    assert own.lines() == [{"epoch": 0, "rows": [1]}]


@SOAK
def test_batches_and_a_sink_of_ones_own_over_a_crash_before_any_write(spark: "SparkSession", tmp_path: Path) -> None:
    app, own = questions(tmp_path / "own")
    for t in crash_between_writes(app, own_sinks=True):
        asked(t)
        assert own.lines() == [{"epoch": 0, "rows": [1]}], t
        own.path.unlink()


def doubtful(events: fk.Stream) -> fk.Stream:
    """Steps that this process computes: a filter, arithmetic, and aggregates that ignore nulls."""
    kept = events.where("n is null or n > -5").withColumn("twice", F.col("n") * 2).select("k", "n", "twice", "x", "b")
    return kept.groupBy("k", "b").agg(
        F.count("*").alias("all"), F.count("n").alias("some"), F.sum("twice").alias("sum"), F.min("x").alias("least"),
        F.max("k").alias("most"), fk.latest_value("n"),
    )  # fmt: skip


def drawn(seed: int) -> list[dict[str, Any]]:
    """Return events whose values this process can compute."""
    random = Random(seed)
    values: dict[str, list[Any]] = {
        "n": [None, *range(-9, 9), 2**30 - 1], "x": [None, 0, 1.5, -0.25, 3, 1e300, 2**40], "b": [None, True, False],
        "other": [["ignored"]],
    }  # fmt: skip
    return [
        {"k": random.choice("abü"), **{name: random.choice(v) for name, v in values.items() if random.random() < 0.8}}
        for _ in range(random.randint(1, 60))
    ]


@fk.deterministic
def called(row: Any) -> Any:
    """Return up to two results."""
    return None if row.x is None else [{"k": f"{row.k}{i}", "b": row.b, "half": (row.n or 0) / 2} for i in range(2)]


def mapped(events: fk.Stream) -> fk.Stream:
    """Steps around a Python function, which this process calls."""
    found = events.where("n is null or n > -5").map_rows(called, returns="k STRING, b BOOLEAN, half DOUBLE, no INT")
    return found.where("half is not null").withColumn("twice", F.col("half") * 2)


@pytest.mark.parametrize("body", [doubtful, mapped])
def test_this_process_and_spark_compute_the_same(spark: "SparkSession", body: Any) -> None:
    app = fk.App("both")
    app.source("events", fk.Kafka("events", schema="k STRING NOT NULL, n INT, x DOUBLE, b BOOLEAN", key=["k", "b"]))
    app.stream()(body)
    app.sink("out", body, fk.Kafka("out", key=["k", "b"]))
    with run(app) as t:
        (region,) = t._plan.regions
    quick, by_spark = (LiveSteps(region, spark, "00000000") for _ in range(2))
    by_spark._quick = None
    for seed in range(1 if "FALKIRK_STRIKES" not in os.environ else 100):
        values = [json.dumps(row).encode() for row in drawn(seed)]
        records = [(Offset(i), MemoryRecord(key=None, value=value, timestamp_us=0)) for i, value in enumerate(values)]
        first, state = quick.compute(records, None, Incarnation(1))
        second, _ = by_spark.compute(records, None, Incarnation(1))
        assert isinstance(state, QuickState), f"Spark computed the results: {quick.spark_reason}"
        assert [seen(result) for result in first] == [seen(result) for result in second], seed


def seen(result: RegionResult) -> Any:
    """Return a result as a reader sees it, and its stamp."""
    return result.stamp, result.key, json.loads(result.value or b""), result.is_dead


@fk.deterministic
def positive(n):  # type: ignore[no-untyped-def]  # PySpark would guess a kind of UDF from hints
    if n < 0:
        raise ValueError(f"no {n}")
    return n > 0


def test_a_udf_that_fails_makes_a_dead_letter_before_and_after_a_group(spark: "SparkSession") -> None:
    app = fk.App("udfs")
    app.source("events", fk.Kafka("events", schema="k STRING NOT NULL, n INT NOT NULL", key="k"))

    @app.stream()
    def totals(events: fk.Stream) -> fk.Stream:
        wanted = F.udf(positive, "boolean", useArrow=False)
        sums = events.where(wanted("n")).groupBy("k").agg(F.sum("n").cast("int").alias("total"))
        return sums.withColumn("small", wanted(5 - F.col("total")))

    app.sink("totals", totals, fk.Kafka("totals", key="k"))
    with run(app) as t:
        t.feed("events", [("a", 1), ("a", -1), ("b", 0), ("a", 4), ("a", 1)])
        assert t.read("totals") == [
            {"k": "a", "total": 1, "small": True}, {"k": "a", "total": 5, "small": False},
        ]  # fmt: skip
        assert [(each["reason"], json.loads(each["value"])) for each in t.dead_letters()] == [
            ("the function failed: ValueError: no -1", {"k": "a", "n": -1}),
            ("the function failed: ValueError: no -1", {"k": "a", "total": 6}),
        ]


def test_what_the_kit_can_not_run_is_refused(spark: "SparkSession", planned_shop: fk.App) -> None:
    app = fk.App("clocked")
    app.source("clock", fk.Clock())
    app.sink("out", "clock", fk.Kafka("out"))
    with pytest.raises(fk.DefinitionError, match="is a clock") as refused:
        run(app)
    assert refused.value.condition == "APPLICATION_UNSUITABLE"
    with run(planned_shop) as t:
        for call in (lambda: t.read("nothing"), lambda: t.feed("nothing", []), lambda: t.feed("orders", [("1",)])):
            with pytest.raises(fk.DefinitionError) as refused:
                call()
            assert refused.value.condition in ("NAME_UNKNOWN", "ROW_INVALID")


def test_a_stream_that_begins_with_read(spark: "SparkSession") -> None:
    words = fk.read(fk.Kafka("words", schema="word STRING NOT NULL"))
    with run(words.where("word <> ''").groupBy("word").count()) as t:  # type: ignore[arg-type]
        t.feed("words", [("a",), ("",), ("a",)])
        assert t.read("result") == [{"word": "a", "count": 1}, {"word": "a", "count": 2}]
        assert isinstance(t, Kit)


def test_two_streams_are_joined(spark: "SparkSession") -> None:
    """A live join runs in micro-batches, which give the same set of results."""
    app = fk.App("ads")
    for name in ("shown", "clicks"):
        app.source(name, fk.Kafka(name, schema="id STRING NOT NULL, at TIMESTAMP"))

    @app.stream(fk.Lazy("2 seconds"))
    def clicked(shown: fk.Stream, clicks: fk.Stream) -> fk.Stream:
        left, right = (side.withWatermark("at", "1 second") for side in (shown, clicks))
        return left.join(right, "id", "left", within="10 seconds").select("id", "right_at")

    app.sink("clicked", clicked, fk.Kafka("clicked", key="id"))
    with run(app) as t:
        t.feed("shown", [{"id": name, "at": "2026-01-01T00:00:00Z"} for name in "ab"])
        t.feed("clicks", [{"id": "a", "at": "2026-01-01T00:00:05Z"}])
        assert [row["id"] for row in t.read("clicked")] == ["a"]
        t.advance("1 hour")  # a record may not be ahead of the clock
        for source in ("shown", "clicks"):
            t.feed(source, [{"id": source, "at": "2026-01-01T01:00:00Z"}])
        assert sorted((row["id"], row.get("right_at") is None) for row in t.read("clicked")) == [
            ("a", False),
            ("b", True),
        ]


def test_timers_fire_and_states_expire(spark: "SparkSession") -> None:
    app = fk.App("shop")
    app.source("clicks", fk.Kafka("clicks", schema="id STRING NOT NULL, at TIMESTAMP, n INT", key="id"))
    app.add_processor("reminders", timers.remembered, reads=("clicks",), policy=fk.Lazy())
    app.sink("reminders", "reminders", fk.Kafka("reminders", key="id"))
    records = timers.ended(duplicates.drawn(2, 200, ids=6))[0]
    model = timers.Model().read({0: records})
    with run(app) as t:
        t.advance("100 days")  # a record may not be ahead of the clock
        t.feed("clicks", [*records[:50], ABORT])
        t.feed("clicks", records[50:-1])
        before = timers.results(t.read("reminders"))
        t.feed("clicks", records[-1:])  # timers fire without records of their keys
        assert timers.results(t.read("reminders")) != before
        assert timers.results(t.read("reminders")) == model.results
        assert timers.letters(t.dead_letters()) == model.letters
    assert any(timer is not None for *_, timer in model.results)
