"""Live regions over a list of topics and over unions, which test_live_unions.py runs and kills.

Ids of the list belong to one partition of one of its topics. `web` and `late` have the same ids. `PROCESSORS` names
those that run. BARRIER=off switches the barrier off.
"""

import os

from pyspark.sql import functions as F

import falkirk as fk
from tests.chaos.apps import barrier

SCHEMA = "id STRING NOT NULL, n INT, parts ARRAY<INT>"
app = fk.App("unions", history=90)
app.source("orders", fk.Kafka([os.environ[name] for name in ("US", "EU", "AP")], schema=SCHEMA, key="id"))
app.source("web", fk.Kafka(os.environ["WEB"], schema=SCHEMA))
app.source("late", fk.Kafka(os.environ["LATE"], schema=SCHEMA, starting="latest"))


def counts_of(stream):
    return stream.groupBy("id").agg(fk.latest_value("n"), F.count("*").alias("version"))


@fk.deterministic
def twice(row):
    if row["n"] % 11 == 7:
        raise ValueError(f"no {row['n']}")
    return [row, {**row.asDict(), "n": -row["n"]}]


def divided(orders: fk.Stream, web: fk.Stream) -> fk.Stream:
    """Explodes one side before a union."""
    return orders.explode("parts", "part").select("id", "n", "part").union(web.selectExpr("id", "n", "-1 AS part"))


def counted(orders: fk.Stream) -> fk.Stream:
    """Keeps a state in the region of the list."""
    return counts_of(orders)


def everywhere(orders: fk.Stream, web: fk.Stream) -> fk.Stream:
    """Keeps a state behind a hop: a key is in several topics."""
    return counts_of(orders.select("id", "n").union(web.select("id", "n")))


def mapped(everywhere: fk.Stream, late: fk.Stream) -> fk.Stream:
    """Unites a log between regions and a source, and calls Python."""
    one = everywhere.selectExpr("id", "n", "CAST(version AS INT) AS version")
    return one.union(late.selectExpr("id", "n", "-1")).map_rows(twice, returns="id STRING, n INT, version INT")


BODIES = {each.__name__: each for each in (divided, counted, everywhere, mapped)}
for name in os.environ["PROCESSORS"].split():
    app.stream(fk.Lazy("5 seconds"), engine="live")(BODIES[name])
    app.sink(name, name, fk.Kafka(os.environ[name.upper()], key="id"))

barrier.off_if_asked()
