"""Chains of steps and of joins, in the test kit on real Spark: each gives the results that a plain loop gives."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from pyspark.sql import Row
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.testing import kit

__all__ = ["kit"]
ORDERS, EXTRA = "id STRING NOT NULL, at TIMESTAMP, parts ARRAY<INT>", "id STRING NOT NULL, n INT"


@fk.deterministic
def counted(row: Row, state: Row | None) -> tuple[Any, Any]:
    """Number the rows of a key, so each result tells its place among them."""
    place = 0 if state is None else state.place + 1
    return {"id": row.id, "n": row.n, "place": place}, {"place": place}


def application() -> fk.App:
    app = fk.App("shop")
    app.source("orders", fk.Kafka("orders", schema=ORDERS, key="id"))
    app.source("extra", fk.Kafka("extra", schema=EXTRA, key="id"))

    @app.stream(engine="micro-batch")
    def spread(orders: fk.Stream, extra: fk.Stream) -> fk.Stream:
        """Have an `explode` before the event time, between two steps with a state, and after the last one."""
        timed = orders.explode("parts", "part").drop("parts").withWatermark("at", "10 seconds")
        pairs = timed.explode(F.array("part", F.expr("10 * part")), "n").dropDuplicates(["id", "n"])
        both = pairs.explode(F.array("n", F.expr("-n")), "signed").selectExpr("id", "signed AS n").union(extra)
        numbered = both.stateful(counted, key="id", state="place INT", returns="id STRING, n INT, place INT")
        return numbered.explode(F.array(F.lit("a"), F.lit("b")), "copy")

    app.sink("spread", spread, fk.Kafka("spread", key="id"))
    return app


def expected(orders: Iterable[dict[str, Any]]) -> list[tuple[str, int, int, str]]:
    """Return the results of orders, which are all in time."""
    seen, places, found = set[tuple[str, int]](), dict[str, int](), list[tuple[str, int, int, str]]()
    for order in orders:
        for n in (n for part in order["parts"] for n in (part, 10 * part)):
            if (order["id"], n) in seen:
                continue
            seen.add((order["id"], n))
            for signed in (n, -n):
                place = places[order["id"]] = places.get(order["id"], -1) + 1
                found += [(order["id"], signed, place, copy) for copy in "ab"]
    return sorted(found)


def test_steps_before_between_and_after_those_with_event_time(kit: Any) -> None:
    def order(number: int) -> dict[str, Any]:
        parts = [number % 3 + 1, number % 7 + 1, 10]
        return {"id": f"k{number % 2}", "at": f"2026-01-01T00:00:{number % 8:02}Z", "parts": parts}

    orders = [order(number) for number in range(16)]
    t = kit(application())
    t.feed("orders", orders[:9])
    assert _results(t) == expected(orders[:9])
    t.feed("orders", orders[9:])
    t.feed("extra", [{"id": "k9", "n": 5}])
    assert _results(t) == sorted([*expected(orders), ("k9", 5, 0, "a"), ("k9", 5, 0, "b")])
    assert t.dead_letters() == []


def _results(t: Any) -> list[tuple[str, int, int, str]]:
    return sorted((row["id"], row["n"], row["place"], row["copy"]) for row in t.read("spread"))


def test_two_aggregations_in_one_live_region_have_states_of_their_own(kit: Any) -> None:
    app = fk.App("shop")
    app.source("extra", fk.Kafka("extra", schema=EXTRA, key="id"))

    @app.stream(engine="live")
    def counts(extra: fk.Stream) -> fk.Stream:
        """Add the counts of each pair, by id."""
        pairs = extra.groupBy("id", "n").agg(F.count("*").alias("count")).where("n <> 2")
        return pairs.groupBy("id").agg(F.sum("count").alias("sum"), fk.latest_value("n"))

    app.sink("counts", counts, fk.Kafka("counts", key="id"))
    records: list[dict[str, Any]] = [{"id": f"k{n % 2}", "n": n % 5} for n in range(20)]
    due, seen, sums = [], Counter[tuple[str, int]](), Counter[str]()
    for each in records:
        seen[each["id"], each["n"]] += 1
        if each["n"] != 2:
            sums[each["id"]] += seen[each["id"], each["n"]]
            due.append((each["id"], sums[each["id"]], each["n"]))
    t = kit(app)
    for part in (records[:7], records[7:]):
        t.feed("extra", part)
    assert [(row["id"], row["sum"], row["n"]) for row in t.read("counts")] == due


def test_a_join_of_three_streams_is_a_join_of_two_and_another_one(kit: Any) -> None:
    app = fk.App("shop")
    for name in "abc":
        app.source(name, fk.Kafka(name, schema="id STRING NOT NULL, at TIMESTAMP, n INT", key="id"))

    def timed(stream: fk.Stream) -> fk.Stream:
        return stream.withWatermark("at", "10 seconds")

    @app.stream()
    def pairs(a: fk.Stream, b: fk.Stream) -> fk.Stream:
        """Join rows that wait with a stamp that an `explode` made longer, and with a column without nulls in it."""
        marked = timed(a).explode(F.array("n"), "own").withColumn("mark", F.struct(F.col("own").alias("n"), F.lit(1)))
        both = marked.join(timed(b), "id", within="3 seconds")
        return both.selectExpr("id", "right_at AS at", "mark.n AS n", "right_n AS of_b")

    @app.stream()
    def triples(pairs: fk.Stream, c: fk.Stream) -> fk.Stream:
        return timed(pairs).join(timed(c), "id", within="2 seconds").select("id", "n", "of_b", "right_n")

    app.sink("triples", triples, fk.Kafka("triples", key="id"))
    rows = {
        name: [{"id": f"k{n % 3}", "at": f"2026-01-01T00:00:{n * step % 9:02}Z", "n": n} for n in range(9)]
        for name, step in (("a", 1), ("b", 2), ("c", 4))
    }
    t = kit(app)
    t.feed("a", rows["a"][:5])
    for name in ("b", "c"):  # rows of a wait for those of b, and pairs for those of c; then the others for a
        t.feed(name, rows[name])
    t.feed("a", rows["a"][5:])

    def apart(one: dict[str, Any], other: dict[str, Any]) -> int:
        return abs(int(one["at"][-3:-1]) - int(other["at"][-3:-1]))

    due = sorted(
        (x["id"], x["n"], y["n"], z["n"]) for x in rows["a"] for y in rows["b"] for z in rows["c"]
        if x["id"] == y["id"] == z["id"] and apart(x, y) <= 3 and apart(y, z) <= 2
    )  # fmt: skip
    assert len(due) > 5
    assert sorted((row["id"], row["n"], row["of_b"], row["right_n"]) for row in t.read("triples")) == due
    assert t.dead_letters() == []
