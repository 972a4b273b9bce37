"""Live regions with event time and states in the test kit: they keep their plan, their dead letters and their waits."""

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.testing import KafkaRecord, kit, run
from falkirk.user_tools.testkit.kit import Kit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["kit"]


def undeclared(row: Row, state: Row | None) -> tuple[Any, Any]:
    """Count the records of a key. Nobody says that it is deterministic."""
    count = 1 if state is None else state.count_ + 1
    return {"id": row.id, "count": count}, {"count_": count}


def clicks(app: fk.App, key: str | None = "id") -> None:
    app.source("clicks", fk.Kafka("clicks-2026", schema="id STRING NOT NULL, at TIMESTAMP, n INT", key=key))


def firsts(clicks: fk.Stream) -> fk.Stream:
    return clicks.withWatermark("at", "10 seconds").dropDuplicates(["id"])


def click(id: str, second: int, n: int) -> dict[str, Any]:
    return {"id": id, "at": f"2026-01-01T00:00:{second:02}Z", "n": n}


def test_what_runs_live_in_earnest_runs_live_in_the_kit(kit: Any) -> None:
    app = fk.App("shop")
    clicks(app)
    app.stream(fk.Lazy("5 seconds", twins=True))(firsts)

    @app.stream()
    def counts(firsts: fk.Stream) -> fk.Stream:
        return firsts.groupBy("n").count()

    @app.stream(fk.Snapshots("20 seconds"))
    def visits(clicks: fk.Stream) -> fk.Stream:
        return clicks.stateful(undeclared, key="id", state="count_ INT", returns="id STRING, count INT")

    app.sink("counted", counts, fk.Kafka("counted"))
    app.sink("visited", visits, fk.Kafka("visited", key="id"))
    t = kit(app)
    t.advance("1 minute")  # a record may not be ahead of the clock
    t.feed("clicks", [click("a", 30, 1), click("a", 31, 1), click("b", 19, 1), click("c", 40, 1)])
    assert t.read("counted") == [{"n": 1, "count": 1}, {"n": 1, "count": 2}]
    (late,) = t.dead_letters()
    assert late["value"] == '{"id":"b","at":"2026-01-01T00:00:19.000Z","n":1}'
    del late["value"]
    assert late == {"reason": "late", "region": "firsts-out", "topic": "clicks-2026", "partition": 0, "offset": 2}
    assert t.read("visited") == []  # a replay may give others, so they wait for a checkpoint
    t.advance("20 seconds")
    assert sorted((row["id"], row["count"]) for row in t.read("visited")) == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]


def test_what_a_start_refuses_the_kit_refuses(spark: "SparkSession") -> None:
    app = fk.App("shop")
    clicks(app, key=None)
    app.stream(engine="live")(firsts)
    app.sink("out", firsts, fk.Kafka("out"))
    with pytest.raises(fk.DefinitionError, match="each of its keys is in one partition"):
        run(app)


@fk.deterministic
def numbered(row: Row, state: Row | None) -> tuple[Any, Any]:
    """Number the records of a key."""
    place = 0 if state is None else state.place + 1
    return {"id": row.id, "n": row.n, "place": place}, {"place": place}


@fk.deterministic
def doubled(row: Row) -> Any:
    """Return two rows for each record but one."""
    if row.n == 3:
        raise ValueError("no 3")
    return [{"id": row.id, "at": row.at, "n": row.n + more} for more in (0, 100)]


def small(n):  # type: ignore[no-untyped-def]  # PySpark would guess a kind of UDF from hints
    return 50 / (n - 5) < 25


def ordered() -> fk.App:
    """Return an application with a function before a step with a state, and a UDF between this and its event time."""
    app = fk.App("shop")
    clicks(app, key=None)

    @app.stream(fk.Lazy("5 seconds"))
    def places(clicks: fk.Stream) -> fk.Stream:
        timed = clicks.map_rows(doubled, returns="id STRING, at TIMESTAMP, n INT").withWatermark("at", "10 seconds")
        kept = timed.where(F.udf(fk.deterministic(small), "boolean", useArrow=False)("n"))
        return kept.stateful(numbered, key="id", state="place INT", returns="id STRING, n INT, place INT", order="at")

    app.sink("placed", places, fk.Kafka("placed", key="id"))
    return app


def test_after_a_crash_a_region_gets_its_input_in_the_same_parts(kit: Any) -> None:
    """So a result has the same stamp again, and the barrier drops it."""
    app = fk.App("shop")
    clicks(app)
    app.stream()(firsts)
    app.sink("first", firsts, fk.Kafka("first", key="id"))
    t = kit(app)
    t.advance("1 minute")
    t.feed("clicks", [click("a", 30, 1), click("b", 31, 2)])
    t.feed("clicks", [click("a", 32, 3), click("c", 40, 4)])
    t.crash()
    assert [row["n"] for row in t.read("first")] == [1, 2, 4]


def test_a_groupby_after_drop_duplicates_gives_an_update_for_each_record(kit: Any) -> None:
    """Both are in one region: its state goes from one part of the input to the next one, also over a crash."""
    app = fk.App("shop")
    app.source("hits", fk.Kafka("hits", schema="id STRING, who STRING, n INT, at TIMESTAMP", key="who"))

    @app.stream(fk.Lazy("1 second"))
    def totals(hits: fk.Stream) -> fk.Stream:
        kept = hits.withWatermark("at", "10 seconds").dropDuplicates(["who", "id"])
        return kept.groupBy("who").agg(F.count("*").alias("c"), F.sum("n").alias("s"))

    app.sink("out", totals, fk.Kafka("out", key="who"))
    t = kit(app)
    assert t.by_spark == {"out": "dropDuplicates"}
    t.advance("1 minute")
    t.feed("hits", [{"who": "x", **click("a", 30, 1)}, {"who": "x", **click("a", 31, 1)}])
    t.feed("hits", [{"who": "x", **click("b", 32, 2)}, fk.testing.ABORT, {"who": "x", **click("c", 33, 5)}])
    assert [(row["c"], row["s"]) for row in t.read("out")] == [(1, 1), (2, 3), (3, 8)]


@fk.deterministic
def steps(row: Row, state: Row | None) -> tuple[Any, Any]:
    """Return as many numbers as a record says, or a column of the key, which only Falkirk adds."""
    seen = 0 if state is None else state.seen
    found = [{"m": seen + place} for place in range(row.n)] if row.n else {"id": row.id, "m": 0}
    return found, {"seen": seen + row.n}


@pytest.mark.parametrize("engine", ["live", "micro-batch"])
def test_falkirk_adds_the_key_to_the_results_of_a_state(kit: Any, engine: Any) -> None:
    """Live, an aggregation follows in the same region, and gets the results in the order of the records."""
    app = fk.App("shop")
    app.source("clicks", fk.Kafka("clicks", schema="n INT, id DOUBLE", key="id"))

    @app.stream(engine=engine)
    def numbers(clicks: fk.Stream) -> fk.Stream:
        made = clicks.stateful(steps, key="id", state="seen INT", returns="m INT", include_key=True)
        if engine == "micro-batch":
            return made
        return made.where("m <> 1").groupBy("id").agg(F.sum("m").alias("s"), fk.latest_value("m"))

    app.sink("out", numbers, fk.Kafka("out"))
    t = kit(app)
    t.feed("clicks", [{"id": -0.0, "n": 3}, {"id": 2.5, "n": 1}, {"id": 2.5, "n": 0}])
    t.feed("clicks", [{"id": 0.0, "n": 2}, {"id": None, "n": 1}])
    found = sorted(map(str, t.read("out")))
    if engine == "live":
        rows = [(0.0, 0, 0), (0.0, 2, 2), (0.0, 5, 3), (0.0, 9, 4), (2.5, 0, 0), (None, 0, 0)]
        assert found == sorted(str({"id": i, "s": s, "m": m}) for i, s, m in rows)
    else:
        due = [(0.0, 0), (0.0, 1), (0.0, 2), (0.0, 3), (0.0, 4), (2.5, 0), (None, 0)]
        assert found == sorted(str({"id": i, "m": m}) for i, m in due)
    (letter,) = t.dead_letters()
    assert "result has no column 'id'; it has m" in letter["reason"]


def paged(second: int, who: str, page: str) -> dict[str, Any]:
    return {"who": who, "page": page, "at": f"2026-01-01T00:00:{second:02}Z"}


def paging(body: Any) -> fk.App:
    """Return an application with one processor."""
    app = fk.App("shop")
    app.source("hits", fk.Kafka("hits", schema="who STRING, page STRING, at TIMESTAMP", key="who"))
    app.stream(fk.Lazy("1 second"))(body)
    app.sink("out", body, fk.Kafka("out", key="who"))
    return app


def windows_of_pages(hits: fk.Stream, mode: str) -> fk.Stream:
    """Count the visits of each page in windows of 10 s."""
    grouped = hits.withWatermark("at", "10 seconds").groupBy(F.window("at", "10 seconds"), "who", "page")
    return grouped.outputMode(mode).agg(F.count("*").alias("n"))


@fk.deterministic
def joined(row: Row, state: Row | None) -> tuple[Any, Any]:
    """Join the pages of a key in their order."""
    pages = row.page if state is None else f"{state.pages} {row.page}"
    return {"who": row.who, "pages": pages}, {"pages": pages}


def test_a_groupby_after_a_window_gets_the_updates_in_the_order_of_the_records(kit: Any) -> None:
    def newest(hits: fk.Stream) -> fk.Stream:
        return windows_of_pages(hits, "update").groupBy("who").agg(fk.latest_value("page"), F.sum("n").alias("n"))

    t = kit(paging(newest))
    t.advance("1 minute")
    t.feed("hits", [paged(30, "x", "a"), paged(31, "x", "b"), paged(32, "x", "a")])
    assert [(row["page"], row["n"]) for row in t.read("out")] == [("a", 1), ("b", 2), ("a", 4)]


def test_a_state_after_a_window_gets_the_windows_in_the_order_of_a_real_run(kit: Any) -> None:
    """That of their ends, and for one end that of the bytes of their keys: a text begins with its length."""

    def pages(hits: fk.Stream) -> fk.Stream:
        closed = windows_of_pages(hits, "append").where("page <> 'c'")
        return closed.stateful(joined, key="who", state="pages STRING", returns="who STRING, pages STRING")

    t = kit(paging(pages))
    t.advance("1 minute")
    t.feed("hits", [paged(12, "x", "aa"), paged(13, "x", "b"), paged(5, "x", "z"), paged(6, "x", "c")])
    t.feed("hits", [paged(40, "y", "a")])
    t.crash()
    t.feed("hits", [paged(33, "x", "a"), paged(59, "y", "b")])
    read = [row["pages"] for row in t.read("out") if row["who"] == "x"]
    assert read == ["z", "z b", "z b aa", "z b aa a"]


def test_event_times_are_compared_with_the_timestamps_of_the_records(kit: Any) -> None:
    """As in a query. The test's clock is at 00:00:00; the limit is that of `ahead=`."""
    app = fk.App("shop")
    clicks(app)
    app.stream()(firsts)
    app.sink("first", firsts, fk.Kafka("first", key="id"))
    t, later = kit(app), datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
    old = datetime(2025, 12, 31, 23, tzinfo=UTC)
    row = {"id": "a", "at": "2026-01-01T00:09:00Z", "n": 1}
    t.feed("clicks", [KafkaRecord(row, timestamp=later), KafkaRecord({**row, "id": "b"}, timestamp=old)])
    assert [each["id"] for each in t.read("first")] == ["a"]
    assert [(each["offset"], "ahead of the clock" in each["reason"]) for each in t.dead_letters()] == [(1, True)]


def test_at_most_once_skips_the_input_after_a_result_before_a_crash(spark: "SparkSession") -> None:
    """As in a query, where each result has the stamp of its record: not all input of a part takes effect again."""
    app = fk.App("shop")
    clicks(app)
    app.stream()(firsts)
    app.sink("first", firsts, fk.Kafka("first", key="id"), delivery="at-most-once")
    with Kit(app, at=datetime(2026, 1, 1, 0, 1, tzinfo=UTC), crash_before=2) as t:
        t.feed("clicks", [click(id, 30, 1) for id in "abc"])
        assert [row["id"] for row in t.read("first")] == ["a"]
        t.feed("clicks", [click("a", 31, 2), click("d", 31, 2)])
        assert [row["id"] for row in t.read("first")] == ["a", "d"]


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
def test_functions_that_fail_before_a_step_with_a_state_make_dead_letters(kit: Any) -> None:
    """Also over a crash. The contract has such a case, too (`cases.py`)."""
    t = kit(ordered())
    t.advance("1 minute")
    t.feed("clicks", [click("a", 9, 1), click("a", 4, 2), click("b", 5, 3), click("c", 40, 9)])
    t.feed("clicks", [click("b", 36, 5), click("e", 59, 20)])
    t.crash()
    assert sorted((row["id"], row["n"], row["place"]) for row in t.read("placed")) == [
        ("a", 1, 2), ("a", 2, 0), ("a", 101, 3), ("a", 102, 1), ("b", 105, 0), ("c", 9, 0), ("c", 109, 1),
    ]  # fmt: skip
    assert [(each["reason"], each["offset"], each["topic"]) for each in t.dead_letters()] == [
        ("the function failed: ValueError: no 3", 2, "clicks-2026"),
        ("the function failed: ZeroDivisionError: division by zero", 4, "clicks-2026"),
    ]
