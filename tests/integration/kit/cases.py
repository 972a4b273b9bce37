"""Cases of the contract between the test kit and a run on a broker: each declares sources, processors and sinks.

A topic has one partition, as in the kit: the records of one partition have one order in both runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pyspark.sql import Row
from pyspark.sql import functions as F

import falkirk as fk
from tests.chained import RETURNS, chained
from tests.duplicates import BEGAN, DELAY_S, drawn

Topic = Callable[[str], str]
"""Returns the full name of a topic of this test."""

#: So short that a run with `--once`, which ends with a checkpoint of each region, is short.
SOON = fk.Lazy("2 seconds")
EVENTS = "id STRING NOT NULL, at TIMESTAMP, n INT"
#: Later than all windows and waits of the input. Both clocks are later: the broker's, and the kit's.
END = (BEGAN + timedelta(hours=1)).isoformat()
BAD: tuple[bytes, ...] = (b"no json", b'{"n": 1}', b'{"id": "a", "n": "x"}')


@dataclass(frozen=True, kw_only=True)
class Case:
    """A part of an application.

    Args:
        declare: declares it.
        rows: the input of each source.
        keys: for each sink, the columns of its keys if the results of a key have an order; empty: none have.
        dead_letters: the region with the dead letters, if it is not that of the sinks.
        requests: the sources of requests over HTTP; their rows are the bodies.
        lists: the source with several topics that has each of these topics.
    """

    declare: Callable[[fk.App, Topic], None]
    rows: Mapping[str, Sequence[Any]]
    keys: Mapping[str, tuple[str, ...]]
    dead_letters: str = ""
    requests: frozenset[str] = field(default_factory=frozenset)
    lists: Mapping[str, str] = field(default_factory=dict)

    def fed(self, topic: str, app: fk.App) -> str:
        """Return the name of a topic of `rows` as `feed` of the kit takes it."""
        if topic not in self.lists:
            return topic
        (part,) = (name for name in app.sources if name.startswith(f"{self.lists[topic]}/{topic}-"))
        return part


def timed(name: str) -> list[Any]:
    """Return random events of one partition: some are late, or have no time, or an impossible one."""
    events = drawn(len(name), 60, ids=6)[0]
    return [*events, *BAD, {"id": "end", "at": END, "n": 1}]


def clicks(app: fk.App, name: str, topic: Topic) -> None:
    app.source(name, fk.Kafka(topic(name), schema=EVENTS, key="id"))


# -- an iteration -----------------------------------------------------------------------------------------------------


def graph(app: fk.App, topic: Topic) -> None:
    schema = "src LONG NOT NULL, dst LONG NOT NULL, difference INT"
    app.source("edges", fk.Kafka(topic("edges"), schema=schema))

    @app.iterate(rows=4)
    def parts(edges: fk.Collection) -> fk.Collection:
        return fk.connected_components(edges)

    app.sink("parts-out", parts, fk.Kafka(topic("parts"), key="node"))


def edge(src: int, dst: int, difference: int = 1) -> dict[str, int]:
    return {"src": src, "dst": dst, "difference": difference}


#: Three epochs: two chains; a bridge between them, and a record that does not fit; without the bridge, and a ring.
EDGES = [
    edge(1, 2), edge(2, 3), edge(5, 6), edge(6, 7),
    edge(3, 5), edge(8, 8), b"no edge", edge(9, 8),
    edge(3, 5, -1), edge(3, 1), edge(1, 2, -1), edge(8, 7),
]  # fmt: skip

# -- requests over HTTP -----------------------------------------------------------------------------------------------


def desk(app: fk.App, topic: Topic) -> None:
    schema = "id STRING NOT NULL, word STRING, n INT, at TIMESTAMP, tags ARRAY<STRING>"
    app.source("queries", fk.Http("/queries", schema=schema, answers="replies-out", timeout="3 minutes"))

    @app.stream(SOON)
    def replied(queries: fk.Stream) -> fk.Stream:
        heard = queries.where("word is null or word <> 'silence'")
        return heard.selectExpr("id", "upper(word) AS loud", "n * 2 AS twice", "at", "size(tags) AS tags")

    app.sink("replies-out", replied, fk.Kafka(topic("replies"), key="id"))


QUERIES = [
    {"id": "all", "word": "kelpie", "n": 21, "at": "2026-03-01T01:02:03.456789Z", "tags": ["a", None]},
    {"id": "silent", "word": "silence"},
    {"id": "ü", "word": None, "n": -7, "at": "2026-03-01T01:02:03+02:00", "tags": []},
]

# -- windows, states and joins of event time --------------------------------------------------------------------------


def tumbling(app: fk.App, topic: Topic) -> None:
    clicks(app, "visits", topic)

    def counts(visits: fk.Stream, mode: str) -> fk.Stream:
        grouped = visits.withWatermark("at", f"{DELAY_S} seconds").groupBy(F.window("at", "6 seconds"), "id")
        return grouped.outputMode(mode).agg(F.count("*").alias("count"), F.sum("n").alias("sum"))

    @app.stream(SOON)
    def final(visits: fk.Stream) -> fk.Stream:
        return counts(visits, "append")

    @app.stream(SOON)
    def early(visits: fk.Stream) -> fk.Stream:
        return counts(visits, "update")

    app.sink("final-out", final, fk.Kafka(topic("final"), key="id"))
    app.sink("early-out", early, fk.Kafka(topic("early"), key="id"))


def chains_after_windows(app: fk.App, topic: Topic) -> None:
    """Have keyed steps that get the results of windows, whose order they need."""
    clicks(app, "views", topic)

    def paged(views: fk.Stream) -> fk.Stream:
        return views.withColumn("page", F.expr("concat(repeat('x', n % 3), n % 5)")).withWatermark(
            "at", f"{DELAY_S} seconds"
        )

    def counts(pages: fk.Stream, mode: str) -> fk.Stream:
        grouped = pages.groupBy(F.window("at", "6 seconds"), "id", "page")
        return grouped.outputMode(mode).agg(F.count("*").alias("count"), F.sum("n").cast("int").alias("n"))

    @app.stream(SOON)
    def newest(views: fk.Stream) -> fk.Stream:
        sums = (F.sum("count").alias("count"), F.sum("n").alias("n"), fk.latest_value("page"))
        return counts(paged(views), "update").groupBy("id").agg(*sums)

    @app.stream(SOON)
    def last(views: fk.Stream) -> fk.Stream:
        kept = paged(views).dropDuplicates(["id", "page"]).explode(F.array("page", F.lit("y")), "of")
        several = kept.select("id", "at", "n", F.concat("of", "page").alias("page"))
        return counts(several, "append").groupBy("id").agg(fk.latest_value("page"), F.sum("n").alias("n"))

    @app.stream(SOON)
    def folded(views: fk.Stream) -> fk.Stream:
        rows = counts(paged(views), "append").selectExpr("id", "window.start AS at", "n")
        return rows.stateful(chained, key="id", state="seen INT", returns=RETURNS)

    for name, stream in {"newest": newest, "last": last, "folded": folded}.items():
        app.sink(f"{name}-out", stream, fk.Kafka(topic(name), key="id"))


def sessions(app: fk.App, topic: Topic) -> None:
    clicks(app, "steps", topic)

    @app.stream(SOON)
    def walks(steps: fk.Stream) -> fk.Stream:
        grouped = steps.withWatermark("at", f"{DELAY_S} seconds").groupBy(F.session_window("at", "2 seconds"), "id")
        return grouped.agg(F.count("*").alias("count"), F.collect_list("n").alias("all"))

    app.sink("walks-out", walks, fk.Kafka(topic("walks"), key="id"))


def duplicates(app: fk.App, topic: Topic) -> None:
    clicks(app, "copies", topic)

    @app.stream(SOON)
    def firsts(copies: fk.Stream) -> fk.Stream:
        return copies.withWatermark("at", f"{DELAY_S} seconds").dropDuplicates(["id"]).where("n % 5 <> 0")

    app.sink("firsts-out", firsts, fk.Kafka(topic("firsts"), key="id"))


def joined(app: fk.App, topic: Topic) -> None:
    clicks(app, "shown", topic)
    clicks(app, "taps", topic)

    @app.stream(SOON)
    def seen(shown: fk.Stream, taps: fk.Stream) -> fk.Stream:
        left, right = shown.withWatermark("at", "6 seconds"), taps.withWatermark("at", "3 seconds")
        return left.join(right, "id", "full", within="4 seconds")

    app.sink("seen-out", seen, fk.Kafka(topic("seen"), key="id"))


@fk.deterministic
def counted(row: Row, state: Row | None) -> tuple[Any, ...]:
    """Count the records of a key; some fail, and some end the state."""
    if row.n % 11 == 3:
        raise ValueError(f"no {row.n}")
    count = 1 if state is None else state.count_ + 1
    return {"id": row.id, "n": row.n, "count": count}, None if row.n % 8 == 0 else {"count_": count}


def expiring(app: fk.App, topic: Topic) -> None:
    clicks(app, "beats", topic)

    @app.stream(SOON)
    def pulses(beats: fk.Stream) -> fk.Stream:
        return beats.withWatermark("at", f"{DELAY_S} seconds").stateful(
            counted, key="id", state="count_ INT", returns="id STRING, n INT, count INT", expires="12 seconds"
        )

    app.sink("pulses-out", pulses, fk.Kafka(topic("pulses"), key="id"))


@fk.deterministic
def spread(row: Row) -> Any:
    """Return two rows for each record."""
    if row.n % 11 == 5:
        raise ValueError(f"no {row.n}")
    return [{"id": row.id, "at": row.at, "n": row.n + more} for more in (0, 100)]


@fk.deterministic
def wanted(n):  # type: ignore[no-untyped-def]  # PySpark would guess a kind of UDF from hints
    return 100 / (n - 36) < 20


def ordered(app: fk.App, topic: Topic) -> None:
    clicks(app, "marks", topic)

    @app.stream(SOON)
    def ranks(marks: fk.Stream) -> fk.Stream:
        """Have functions that fail before the event time, and between it and the state."""
        timed = marks.map_rows(spread, returns=EVENTS).withWatermark("at", f"{DELAY_S} seconds")
        kept = timed.where(F.udf(wanted, "boolean", useArrow=False)("n"))
        returns = "id STRING, n INT, count INT"
        return kept.stateful(counted, key="id", state="count_ INT", returns=returns, order="at")

    app.sink("ranks-out", ranks, fk.Kafka(topic("ranks"), key="id"))


def hopped(app: fk.App, topic: Topic) -> None:
    clicks(app, "hits", topic)

    @app.stream(SOON)
    def once(hits: fk.Stream) -> fk.Stream:
        return hits.withWatermark("at", f"{DELAY_S} seconds").dropDuplicates(["id"])

    @app.stream(SOON)
    def totals(once: fk.Stream) -> fk.Stream:
        """Count over a log between two regions, in which keys may have any order."""
        return once.withColumn("rest", F.expr("n % 4")).groupBy("rest").count()

    app.sink("totals-out", totals, fk.Kafka(topic("totals"), key="rest"))


# -- results that wait, unions, and Python functions ------------------------------------------------------------------


def held(app: fk.App, topic: Topic) -> None:
    app.source("words", fk.Kafka(topic("words"), schema="word STRING NOT NULL, n INT", key="word"))

    @app.stream(SOON)
    def gathered(words: fk.Stream) -> fk.Stream:
        """Gather a set: Falkirk does not know that it is the same in a replay, so results wait."""
        sets = words.groupBy("word").agg(F.sort_array(F.collect_set("n")).alias("set"), F.count("*").alias("count"))
        return sets.where("count <> 2")

    app.sink("gathered-out", gathered, fk.Kafka(topic("gathered"), key="word"))


WORDS = [*({"word": "abcab"[n % 5], "n": n % 4} for n in range(20)), b"{", {"word": None, "n": 1}]


@fk.deterministic
def parted(row: Row) -> Any:
    """Return a result for each part."""
    if row.parts is None:
        raise ValueError(f"{row.id} has no parts")
    return [{"id": row.id, "part": part, "at": n} for n, part in enumerate(row.parts)]


def united(app: fk.App, topic: Topic) -> None:
    for name in ("north", "south"):
        app.source(name, fk.Kafka(topic(name), schema="id STRING NOT NULL, parts ARRAY<STRING>"))

    @app.stream(SOON)
    def pieces(north: fk.Stream, south: fk.Stream) -> fk.Stream:
        both = north.where("id <> 'none'").unionByName(south)
        return both.map_rows(parted, returns="id STRING, part STRING, at INT").where("part <> 'out'")

    app.sink("pieces-out", pieces, fk.Kafka(topic("pieces"), key="id"))


def boxes(name: str) -> list[Any]:
    rows: list[Any] = [{"id": f"{name}{n % 3}", "parts": ["a", "out", f"{n}"][: n % 4]} for n in range(12)]
    return [*rows, {"id": "none", "parts": ["x"]}, {"id": f"{name}9"}, b"[]"]


# -- lookups, and several topics in one source ------------------------------------------------------------------------

#: One epoch of the view. A code has two rates, and one has none.
RATES: list[Any] = [
    {"code": "a", "rate": 2}, {"code": "b", "rate": 3}, b"no json", {"code": "a", "rate": 5}, {"code": None, "rate": 7},
]  # fmt: skip


def looking(app: fk.App, topic: Topic) -> None:
    app.source("rates", fk.Kafka(topic("rates"), schema="code STRING, rate INT"))
    app.source("amounts", fk.Kafka(topic("amounts"), schema="id STRING NOT NULL, code STRING, n INT", key="id"))

    @app.batch(rows=len(RATES))
    def table(rates: Any) -> Any:
        return rates

    @app.stream(SOON)
    def rated(amounts: fk.Stream, table: fk.View) -> fk.Stream:
        """Have steps before and after a lookup, and a state."""
        found = amounts.where("n <> 4").lookup(table, ["code"], "found", epoch="epoch")
        rates = F.array_sort(F.transform("found", lambda row: row["rate"])).cast("string")
        of = found.withColumn("rates", rates).where("n <> 5")
        return of.groupBy("id").agg(F.sum("n").alias("n"), fk.latest_value("rates"), fk.latest_value("epoch"))

    app.sink("rated-out", rated, fk.Kafka(topic("rated"), key="id"))


AMOUNTS = [*({"id": f"{n % 3}", "code": [*"abc", None][n % 4], "n": n} for n in range(12)), *BAD]


def sailing(app: fk.App, topic: Topic) -> None:
    names = [topic("ships-eu"), topic("ships-us")]
    app.source("ships", fk.Kafka(names, schema="id STRING NOT NULL, n INT", metadata=("topic", "offset")))

    @app.stream(SOON)
    def sailed(ships: fk.Stream) -> fk.Stream:
        return ships.where("n % 4 <> 1").explode(F.array("n", F.col("n") * 2), "twice")

    app.sink("sailed-out", sailed, fk.Kafka(topic("sailed"), key="id"))


def fleet(name: str) -> list[Any]:
    return [*({"id": f"{name}{n % 3}", "n": n} for n in range(10)), *BAD]


CASES: Mapping[str, Case] = {
    "iteration": Case(declare=graph, rows={"edges": EDGES}, keys={"parts-out": ()}),
    "requests": Case(
        declare=desk, rows={"queries": QUERIES}, keys={"replies-out": ("id",)}, requests=frozenset({"queries"})
    ),
    "tumbling windows": Case(
        declare=tumbling, rows={"visits": timed("visits")}, keys={"final-out": (), "early-out": ("id",)}
    ),
    "windows before keyed steps": Case(
        declare=chains_after_windows, rows={"views": timed("views")},
        keys={"newest-out": ("id",), "last-out": ("id",), "folded-out": ("id",)},
    ),
    "session windows": Case(declare=sessions, rows={"steps": timed("steps")}, keys={"walks-out": ()}),
    "dropDuplicates": Case(
        declare=duplicates, rows={"copies": timed("copies")}, keys={"firsts-out": ("id",)}
    ),
    "join": Case(
        declare=joined, rows={"shown": timed("shown"), "taps": timed("taps")}, keys={"seen-out": ()}
    ),
    "stateful": Case(declare=expiring, rows={"beats": timed("beats")}, keys={"pulses-out": ("id",)}),
    "stateful(order=)": Case(declare=ordered, rows={"marks": timed("marks")}, keys={"ranks-out": ("id",)}),
    "dropDuplicates, groupBy": Case(
        declare=hopped, rows={"hits": timed("hits")}, keys={"totals-out": ("rest",)}, dead_letters="once-out"
    ),
    "held": Case(declare=held, rows={"words": WORDS}, keys={"gathered-out": ("word",)}),
    "union, map_rows": Case(
        declare=united, rows={name: boxes(name) for name in ("north", "south")}, keys={"pieces-out": ("id",)}
    ),
    "lookup": Case(declare=looking, rows={"rates": RATES, "amounts": AMOUNTS}, keys={"rated-out": ("id",)}),
    "several topics": Case(
        declare=sailing, rows={name: fleet(name) for name in ("ships-eu", "ships-us")}, keys={"sailed-out": ("id",)},
        lists=dict.fromkeys(("ships-eu", "ships-us"), "ships"),
    ),
}  # fmt: skip
