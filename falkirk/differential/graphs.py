"""Graphs: PageRank, connected components and shortest paths over edges that change, each a page of its own.

Edges are rows with the columns `src` and `dst`; what else they have is ignored, but for the `length` of shortest paths.
"""

from pyspark.sql import functions as F

from falkirk.differential.collection import Collection, fixpoint, limits

#: Of a rank.
TOLERANCE = 1e-6


def connected_components(edges: Collection) -> Collection:
    """Return the component of each node: `(node, component)`, the least node of those that it is connected with.

    Each node tells its neighbours the least that it has heard of, until nobody hears of a lesser one. An edge that is
    taken away takes back what was heard over it, round by round. Edges count in both directions.
    """
    there = edges.select(F.col("src").alias("node"), F.col("dst").alias("neighbour"))
    back = edges.select(F.col("dst").alias("node"), F.col("src").alias("neighbour"))
    neighbours = there.concat(back)
    nodes = neighbours.select("node").distinct().select("node", F.col("node").alias("component"))

    def hear(components: Collection) -> Collection:
        heard = components.join(neighbours, "node").select(F.col("neighbour").alias("node"), "component")
        return heard.concat(nodes).groupBy("node").min("component")

    return nodes.iterate(hear)


def shortest_paths(edges: Collection, sources: Collection, rounds: int | None = None) -> Collection:
    """Return how far it is from the nearest source to each node that can be reached: `(node, distance)`.

    Args: edges: with a `length`, a whole number that is not negative. sources: rows with a column `node`. rounds: the
        most edges that a path may have.
    """
    ways = edges.select(
        F.col("src").alias("node"), F.col("dst").alias("next"), F.col("length").cast("long").alias("length")
    )
    begin = sources.select("node").distinct().select("node", F.lit(0).cast("long").alias("distance"))

    def reach(distances: Collection) -> Collection:
        reached = distances.join(ways, "node").select(
            F.col("next").alias("node"), (F.col("distance") + F.col("length")).alias("distance")
        )
        return reached.concat(begin).groupBy("node").min("distance")

    return begin.iterate(reach, rounds=rounds)


def pagerank(
    edges: Collection,
    damping: float = 0.85,
    tolerance: float | None = None,
    rounds: int | None = None,
    nodes: Collection | None = None,
) -> Collection:
    """Return the rank of each node: `(node, rank)`; divided by their sum they are PageRank's probabilities.

    A node's rank is `1 - damping`, and of each node that points to it a share of `damping` times that one's rank. The
    ranks come to the same wherever the loop begins, so each epoch begins where the last one has ended.

    Args: tolerance: a rank that moves by no more is left as it was. Deviations flow as ranks do, so each rank is off by
        at most `rank * tolerance / (1 - damping)`. Without it, what the iteration says with `until`, or 1e-6.
        nodes: rows with a column `node`, of all nodes, and edges to others do not count; without it they are those that
            have edges.
    """
    if nodes is None:
        nodes = edges.select(F.col("src").alias("node")).concat(edges.select(F.col("dst").alias("node")))
    else:
        edges = edges.select("src", "dst").semijoin(nodes.select(F.col("node").alias("dst")), "dst")
    nodes = nodes.select("node").distinct()
    ways = edges.select(F.col("src").alias("node"), F.col("dst").alias("next"))
    degrees = ways.groupBy("node").count("degree")
    shares = ways.join(degrees, "node").select("node", "next", (damping / F.col("degree")).alias("share"))
    least = nodes.select("node", F.lit(1.0 - damping).alias("rank"))

    if tolerance is None:
        tolerance = limits.get().until or TOLERANCE

    def spread(ranks: Collection) -> Collection:
        given = ranks.join(shares, "node").select(
            F.col("next").alias("node"), (F.col("rank") * F.col("share")).alias("rank")
        )
        return given.concat(least).groupBy("node").sum("rank", tolerance=tolerance)

    return fixpoint(least, spread, rounds=rounds)
