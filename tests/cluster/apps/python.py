"""Live regions that call Python on executors (rows with a UDF, and states), and one that does not.

The environment names the topics.
Two modules come with --py-files.
"""

import os
import sys

import shop_numbers
import shop_rates
from pyspark.sql import functions as F

import falkirk as fk

app = fk.App("python", state_partitions=1)
app.source("events", fk.Kafka(os.environ["EVENTS"], schema="word STRING NOT NULL, n INT", key="word"))


def place():
    """Return the program of this process: for a worker of a live region, Falkirk's archive."""
    return sys.argv[0]


@fk.deterministic
def doubled(row):
    return {"word": row.word, "n": row.n, "double": shop_numbers.double(row.n), "place": place()}


@fk.deterministic
def summed(row, state):
    total = row.n + (0 if state is None else state.total)
    return {"word": row.word, "n": row.n, "total": total, "place": place()}, {"total": total}


def called(events: fk.Stream) -> fk.Stream:
    rows = events.map_rows(doubled, returns="word STRING, n INT, double BIGINT, place STRING")
    return rows.withColumn("half", F.udf(fk.deterministic(shop_rates.half), "double", useArrow=False)("double"))


def totals(events: fk.Stream) -> fk.Stream:
    return events.stateful(
        summed, key="word", state="total BIGINT", returns="word STRING, n INT, total BIGINT, place STRING"
    )


def passed(events: fk.Stream) -> fk.Stream:
    return events.select("word", "n")


for processor in (called, totals, passed):
    name = processor.__name__
    app.sink(name, app.stream(fk.Lazy("3 seconds"))(processor), fk.Kafka(os.environ[name.upper()], key="word"))
