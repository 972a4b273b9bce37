"""A chain of keyed steps, and a model of it in plain Python: the first record of each key, and aggregates of these."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import functions as F

import falkirk as fk
from tests.duplicates import DELAY_S, HOSTILE

SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT"
#: The results of each id, in their order: total, count and newest number.
Results = Mapping[str, list[tuple[int, int, int]]]


def first(clicks: fk.Stream) -> fk.Stream:
    """Keep the first record of an id and the remainder of its number. The topic is partitioned by one of them."""
    timed = clicks.withWatermark("at", f"{DELAY_S} seconds").withColumn("k", F.expr("n % 5"))
    return timed.dropDuplicates(["k", "id"])


def counted(clicks: fk.Stream) -> fk.Stream:
    """Aggregate the first records by id."""
    kept = first(clicks).where("n % 7 <> 0").withColumn("m", F.col("n") * 2)
    return kept.groupBy("id").agg(F.sum("m").alias("total"), F.count("*").alias("count"), fk.latest_value("n"))


def modelled(records: Mapping[int, Iterable[Mapping[str, Any]]]) -> tuple[Results, int]:
    """Return the results of `counted` for the records of each partition, and the number of late records."""
    found: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    late = 0
    for mine in records.values():
        greatest, known = None, dict[tuple[str, int], datetime]()
        for record in mine:
            if record["at"] is None or record["at"] in HOSTILE:
                continue
            time, key, n = datetime.fromisoformat(record["at"]), (record["id"], record["n"] % 5), record["n"]
            greatest = time if greatest is None else max(greatest, time)
            watermark = greatest - timedelta(seconds=DELAY_S)
            if time < watermark:
                late += 1
            elif key not in known or known[key] < watermark:
                known[key] = time
                if n % 7:
                    total, count, _ = found[record["id"]][-1] if found[record["id"]] else (0, 0, 0)
                    found[record["id"]].append((total + 2 * n, count + 1, n))
    return dict(found), late


def results(rows: Iterable[Mapping[str, Any]]) -> Results:
    """Return published results by id, in their order."""
    found: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for row in rows:
        found[row["id"]].append((row["total"], row["count"], row["n"]))
    return dict(found)


def without_repetitions(found: Results) -> Results:
    """Return each result once, in the order of their first occurrence."""
    return {key: [*dict.fromkeys(mine)] for key, mine in found.items()}
