"""Queries: each as it would be written by a user of Falkirk. The number is Nexmark's.

Where a program asks for a bound that Nexmark does not have (`within`), it is longer than any run.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import falkirk as fk
from benchmarks.nexmark.events import KEYS, SCHEMAS
from falkirk.steps.differential import Collection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERIES: dict[str, Callable[[fk.App, str], None]] = {}
#: How far event times may be ahead of the clock: events of a bench have times of their own.
AHEAD = "3650 days"


def application(queries: Iterable[str], *, tag: str = "", kafka: str | None = None, home: Path | None = None) -> fk.App:
    """Return an application with some of the queries. Each query is a sink, too.

    Args: tag: the topics' names begin with it. The topic of a sink has the sink's name.
    """
    app = fk.App("nexmark", kafka=kafka, home=home)
    for topic, schema in SCHEMAS.items():
        app.source(topic, fk.Kafka(tag + topic, schema=schema, key=KEYS[topic]))
    for query in queries:
        QUERIES[query](app, tag)
    return app


def _query(declare: Callable[[fk.App], tuple[Any, str | None]]) -> Callable[[fk.App, str], None]:
    """Return the query with its result as a sink."""

    def declared(app: fk.App, tag: str) -> None:
        processor, key = declare(app)
        app.sink(declare.__name__, processor, fk.Kafka(tag + declare.__name__, key=key))

    QUERIES[declare.__name__] = declared
    return declared


@_query
def q0(app: fk.App) -> tuple[Any, str | None]:
    """Pass bids on."""

    @app.stream(fk.Ephemeral())
    def passed(bid: fk.Stream) -> fk.Stream:
        return bid

    return passed, "auction"


@_query
def q1(app: fk.App) -> tuple[Any, str | None]:
    """Convert the price of each bid."""

    @app.stream(fk.Ephemeral())
    def converted(bid: fk.Stream) -> fk.Stream:
        return bid.withColumn("price", F.expr("CAST(price * 0.908 AS DECIMAL(23, 3))"))

    return converted, "auction"


@_query
def q2(app: fk.App) -> tuple[Any, str | None]:
    """Select the bids for some auctions."""

    @app.stream(fk.Ephemeral())
    def selected(bid: fk.Stream) -> fk.Stream:
        return bid.where("auction % 13 = 0").select("auction", "price")

    return selected, "auction"


@_query
def q3(app: fk.App) -> tuple[Any, str | None]:
    """Who sells in category 10 in some states?"""

    @app.stream()
    def local(auction: fk.Stream, person: fk.Stream) -> fk.Stream:
        sold = auction.withWatermark("at", "10 seconds", ahead=AHEAD).where("category = 10")
        seller = person.withWatermark("at", "10 seconds", ahead=AHEAD).where("state IN ('OR', 'ID', 'CA')")
        pairs = sold.join(seller, F.expr("auction.seller = person.id"), within="3650 days")
        return pairs.select("name", "city", "state", "id")

    return local, None


@_query
def q4(app: fk.App) -> tuple[Any, str | None]:
    """The average closing price of each category, kept up to date."""

    @app.iterate(every="1 second")
    def averages(auction: Collection, bid: Collection) -> Collection:
        offers = bid.select(F.col("auction").alias("id"), "price", F.col("at").alias("bid_at"))
        final = (
            auction.select("id", "category", "at", "expires").join(offers, "id").where("bid_at BETWEEN at AND expires")
        )
        best = final.groupBy("id", "category").max("price", "final")
        totals = best.groupBy("category").agg({"total": ("sum", "final"), "auctions": ("count", "*")})
        return totals.select("category", F.expr("total / auctions").alias("average"))

    return averages, "category"


@_query
def q5(app: fk.App) -> tuple[Any, str | None]:
    """The auctions with most bids in the last ten seconds, every two seconds."""

    @app.batch(every="2 seconds", by="at", over="10 seconds", late="1 second", ahead=AHEAD)
    def hot(bid: "DataFrame") -> "DataFrame":
        counts = bid.groupBy("auction").count()
        return (
            counts.join(counts.agg(F.max("count").alias("count")), "count")
            .select("auction", "count")
            .withColumn("begins", F.lit(fk.current_epoch().begins))
        )

    return hot, "auction"


@_query
def q6(app: fk.App) -> tuple[Any, str | None]:
    """The average closing price of the ten auctions of each seller that close last, kept up to date.

    As in q4, an auction counts from its first bid on, so in the end those that have closed are left.
    """

    @app.iterate(every="1 second")
    def last_ten(auction: Collection, bid: Collection) -> Collection:
        offers = bid.select(F.col("auction").alias("id"), "price", F.col("at").alias("bid_at"))
        final = (
            auction.select("id", "seller", "at", "expires").join(offers, "id").where("bid_at BETWEEN at AND expires")
        )
        best = final.groupBy("seller", "expires", "id").max("price", "final")
        newest = best.groupBy("seller").top(10, "expires", "id")
        totals = newest.groupBy("seller").agg({"total": ("sum", "final"), "auctions": ("count", "*")})
        return totals.select("seller", F.expr("total / auctions").alias("average"))

    return last_ten, "seller"


@_query
def q7(app: fk.App) -> tuple[Any, str | None]:
    """The highest bids of each ten seconds."""

    @app.batch(every="10 seconds", by="at", late="1 second", ahead=AHEAD)
    def highest(bid: "DataFrame") -> "DataFrame":
        return bid.join(bid.agg(F.max("price").alias("price")), "price").select("auction", "bidder", "price", "at")

    return highest, "auction"


@_query
def q8(app: fk.App) -> tuple[Any, str | None]:
    """Who has registered and opened an auction within the same ten seconds?"""

    @app.batch(every="10 seconds", by="at", late="1 second", ahead=AHEAD)
    def newcomers(person: "DataFrame", auction: "DataFrame") -> "DataFrame":
        sellers = auction.select(F.col("seller").alias("id")).distinct()
        return person.join(sellers, "id").select("id", "name")

    return newcomers, "id"


@_query
def q11(app: fk.App) -> tuple[Any, str | None]:
    """How many bids does a bidder make in a session?"""

    @app.stream()
    def sessions(bid: fk.Stream) -> fk.Stream:
        timed = bid.withWatermark("at", "1 second", ahead=AHEAD)
        counted = timed.groupBy(F.session_window("at", "2 seconds").alias("session"), "bidder").agg(
            F.count("*").alias("bids")
        )
        return counted.selectExpr("bidder", "bids", "session.start AS begins", "session.end AS ends")

    return sessions, "bidder"


@_query
def q12(app: fk.App) -> tuple[Any, str | None]:
    """How many bids does a bidder make in ten seconds of the machine's clock?"""

    @app.batch(every="10 seconds")
    def paced(bid: "DataFrame") -> "DataFrame":
        return bid.groupBy("bidder").agg(F.count("*").alias("bids"))

    return paced, "bidder"


@_query
def q17(app: fk.App) -> tuple[Any, str | None]:
    """Figures of each auction and day, updated by each bid."""

    @app.stream()
    def figures(bid: fk.Stream) -> fk.Stream:
        days = bid.withColumn("day", F.expr("date_format(at, 'yyyy-MM-dd')"))
        return days.groupBy("auction", "day").agg(
            F.count("*").alias("bids"),
            F.expr("count_if(price < 10000)").alias("low"),
            F.expr("count_if(price >= 10000 AND price < 1000000)").alias("middle"),
            F.expr("count_if(price >= 1000000)").alias("high"),
            F.min("price").alias("least"), F.max("price").alias("most"), F.sum("price").alias("total"),
        )  # fmt: skip

    return figures, "auction"


@_query
def q18(app: fk.App) -> tuple[Any, str | None]:
    """The last bid of each bidder for each auction, updated by each bid."""

    @app.stream()
    def last(bid: fk.Stream) -> fk.Stream:
        return bid.groupBy("bidder", "auction").agg(F.max_by("price", "at").alias("price"), F.max("at").alias("at"))

    return last, "auction"


@_query
def q19(app: fk.App) -> tuple[Any, str | None]:
    """The ten highest bids for each auction, kept up to date."""

    @app.iterate(every="1 second")
    def top(bid: Collection) -> Collection:
        return bid.select("auction", "bidder", "price", "at").groupBy("auction").top(10, "price")

    return top, "auction"


@_query
def q20(app: fk.App) -> tuple[Any, str | None]:
    """Bids with their auctions of category 10."""

    @app.stream()
    def joined(bid: fk.Stream, auction: fk.Stream) -> fk.Stream:
        offers = bid.withWatermark("at", "10 seconds", ahead=AHEAD)
        of_ten = auction.withWatermark("at", "10 seconds", ahead=AHEAD).where("category = 10")
        pairs = offers.join(of_ten, F.expr("bid.auction = auction.id"), within="3650 days")
        return pairs.select("auction", "bidder", "price", "item", "category")

    return joined, "auction"
