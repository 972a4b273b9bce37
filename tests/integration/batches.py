"""A small search engine in batches, for tests: words of events counted by epoch, and summed up over all epochs.

A processor that answers queries reads the sums as a view. Another batch is a random walk with a step per epoch, whose
steps no replay repeats.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import falkirk as fk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = 40


@cache
def walking(
    tag: str, home: Path, database: str, *, policy: fk.Lazy | None = None, topics: Sequence[str] = ("events",)
) -> fk.App:
    """Return an application with the random walk alone; its topics are those given, with the tag."""
    app = fk.App("search", home=home, history=3)
    app.source("events", fk.Kafka([f"{each}-{tag}" for each in topics], schema="word STRING NOT NULL, n INT"))

    @app.batch(rows=ROWS, state="n LONG, x DOUBLE, step DOUBLE", policy=policy)
    def walk(events: "DataFrame", walk: "DataFrame") -> "tuple[DataFrame, DataFrame]":
        """Return the step of the epoch before, and choose the next one at random."""
        step = events.agg(F.rand().alias("step"), F.count("*").alias("read"))
        before = walk.agg(
            F.coalesce(F.max("n"), F.lit(0)).alias("before"), F.coalesce(F.max("x"), F.lit(0)).alias("at")
        )
        moved = before.crossJoin(step)
        return walk, moved.select((F.col("before") + 1).alias("n"), (F.col("at") + F.col("step")).alias("x"), "step")

    app.sink("walk", walk, fk.Sql(database, f"walk_{tag}"))
    return app


@cache
def application(
    tag: str, home: Path, database: str, *, policy: fk.Lazy | None = None, topics: Sequence[str] = ("events",)
) -> fk.App:
    """Return the application; its topics are those of events, queries, weights and answers, each with the tag."""
    app = walking(tag, home, database, policy=policy, topics=topics)
    app.source("queries", fk.Kafka(f"queries-{tag}", schema="id LONG NOT NULL, word STRING"))

    @app.batch(rows=ROWS)
    def weights(events: "DataFrame") -> "DataFrame":
        return events.groupBy("word").agg(F.count("*").alias("weight"))

    @app.batch(every="1 second", state="word STRING, total LONG", policy=policy)
    def totals(weights: "DataFrame", totals: "DataFrame") -> "DataFrame":
        new = weights.select("word", F.col("weight").alias("total"))
        return totals.unionByName(new).groupBy("word").agg(F.sum("total").alias("total"))

    @app.stream(fk.Eager())
    def answers(queries: "DataFrame", totals: fk.View) -> "DataFrame":
        return queries.join(totals, "word", "left").select("id", "word", "total")

    app.sink("weights", weights, fk.Kafka(f"weights-{tag}", key="word"))
    app.sink("totals", totals, fk.Sql(database, f"totals_{tag}", key="word"))
    app.sink("answers", answers, fk.Kafka(f"answers-{tag}", key="id"))
    app.sink("answered", answers, fk.Sql(database, f"answered_{tag}"))
    return app
