"""Recompute: computes components and ranks from scratch with plain DataFrames, as the baseline for incremental results.

The code is careful: tables that do not change are partitioned and sorted by key once, and cached. The lineage of other
tables is cut in each round. Nodes send only changes to their neighbours. Sessions have no adaptive execution.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def components(edges: DataFrame, partitions: int) -> tuple[DataFrame, int]:
    """Return `(node, component)` as a local checkpoint, and the number of rounds."""
    there = edges.select(F.col("src").alias("node"), F.col("dst").alias("neighbour"))
    back = edges.select(F.col("dst").alias("node"), F.col("src").alias("neighbour"))
    ways = _kept(there.unionAll(back), partitions)
    try:
        labels = ways.select("node").distinct().select("node", F.col("node").alias("component")).localCheckpoint()
        told, rounds = labels, 0
        while not told.isEmpty():
            heard = told.join(ways, "node").groupBy(F.col("neighbour").alias("node")).agg(F.min("component").alias("h"))
            labels = labels.join(heard, "node", "left").select(
                "node", F.least("component", "h").alias("component"), (F.col("h") < F.col("component")).alias("lesser")
            )
            labels = labels.localCheckpoint()
            told, rounds = labels.where("lesser").select("node", "component"), rounds + 1
        return labels.select("node", "component"), rounds
    finally:
        ways.unpersist()


def ranks(edges: DataFrame, partitions: int, rounds: int, damping: float = 0.85) -> DataFrame:
    """Return `(node, rank)` as a local checkpoint, after a number of rounds."""
    ways = edges.select(F.col("src").alias("node"), F.col("dst").alias("next"))
    degrees = ways.groupBy("node").agg(F.count("*").alias("degree"))
    shares = ways.join(degrees, "node").select("node", "next", (damping / F.col("degree")).alias("share"))
    shares = _kept(shares, partitions)
    try:
        nodes = ways.select("node").unionAll(ways.select("next")).distinct().localCheckpoint()
        found = nodes.select("node", F.lit(1 - damping).alias("rank"))
        for _ in range(rounds):
            given = found.join(shares, "node").groupBy(F.col("next").alias("node"))
            summed = given.agg(F.sum(F.col("rank") * F.col("share")).alias("given"))
            rank = F.lit(1 - damping) + F.coalesce("given", F.lit(0.0))
            found = nodes.join(summed, "node", "left").select("node", rank.alias("rank")).localCheckpoint()
        return found
    finally:
        shares.unpersist()


def _kept(rows: DataFrame, partitions: int) -> DataFrame:
    return rows.repartition(partitions, "node").sortWithinPartitions("node").persist()
