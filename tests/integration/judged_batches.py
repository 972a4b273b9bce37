"""An application of batches, whose results commands judge and explain."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import falkirk as fk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS, EPOCHS, WORDS = 12, 2, ("ash", "birch", "cedar", "dill")
#: The formats of folders. A CSV file costs 2 s more, so it is not part of each landing.
FORMATS = ("json", "csv") if os.environ.get("FALKIRK_STRIKES") else ("json",)


def application(tag: str, home: Path, database: str) -> fk.App:
    app = fk.App("judged", home=home)
    app.source("events", fk.Kafka(f"events-{tag}", schema="word STRING NOT NULL, n INT"))

    @app.batch(rows=ROWS)
    def weights(events: "DataFrame") -> "DataFrame":
        found = events.groupBy("word").agg(F.sum("n").alias("n"), F.avg("n").cast("decimal(10, 2)").alias("mean"))
        return found.withColumn("at", F.timestamp_micros(F.col("n") * 1_000_001)).withColumn("of", F.array("word"))

    @app.batch(rows=1, state="word STRING, total LONG")
    def totals(weights: "DataFrame", totals: "DataFrame") -> "DataFrame":
        both = totals.unionByName(weights.select("word", F.col("n").alias("total")))
        return both.groupBy("word").agg(F.sum("total").alias("total"))

    @app.batch(rows=ROWS)
    def drawn(events: "DataFrame") -> "DataFrame":
        return events.select("n", F.rand().alias("r"))

    @app.batch(rows=ROWS)
    def odd(events: "DataFrame") -> "DataFrame":
        found = events.where("n % 2 = 1").groupBy(F.upper("word").alias("word"))
        return found.agg(F.sum("n").alias("n"), F.count("*").alias("rows"))

    @app.batch(rows=ROWS)
    def runs(events: fk.Stamped) -> "DataFrame":
        return fk.stateful(events, _run, key="word", state="total LONG", returns="word STRING, total LONG")

    app.sink("runs", runs, fk.Kafka(f"runs-{tag}", key="word"))
    app.sink("topic", weights, fk.Kafka(f"weights-{tag}", key="word"))
    app.sink("odd", odd, fk.Kafka(f"odd-{tag}", key="word"))
    app.sink("totals", totals, fk.Kafka(f"totals-{tag}", key="word"))
    app.sink("epochs", weights, fk.EpochTopic(f"epochs-{tag}", key="word", compacted=True))
    app.sink("table", weights, fk.Sql(database, "weights"))
    for kind in FORMATS:
        app.sink(kind, weights, fk.Files(f"{home}-{kind}", kind))
    app.sink("latest", totals, fk.Sql(database, "totals", key="word"))
    app.sink("drawn", drawn, fk.Files(f"{home}-drawn"))
    return app


@fk.deterministic
def _run(row: Any, state: Any) -> Any:
    """Sum numbers up to one that can be divided by 5, with which the next sum begins."""
    total = row["n"] + (0 if state is None else state["total"])
    return [{"word": row["word"], "total": total}], None if row["n"] % 5 == 0 else {"total": total}
