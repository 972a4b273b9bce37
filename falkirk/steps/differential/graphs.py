"""Graph algorithms: PageRank, connected components and shortest paths over edges that change.

Edges are rows with the columns `src` and `dst`, and shortest paths need `length` too. Other columns are ignored.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType

from falkirk.steps.differential.collection import Collection, entering_later, fixpoint, limits

#: The default tolerance of a rank.
TOLERANCE = 1e-6
#: Nodes of components begin in later rounds if a loop has this many: they add up to 31 rounds.
_ROUNDS_LATER = 500


def connected_components(edges: Collection) -> Collection:
    """Return the component of each node, `(node, component)`: the least node that is connected with it.

    In each round a node sends its component to its neighbours and takes the least that it receives, until nothing
    changes. If an edge is removed, the values that arrived over it are withdrawn round by round. Edges count in both
    directions.

    At first, each node is its own component. If all nodes began in the first round, most would send several components
    that are soon replaced by lesser ones. So a node with a great number begins in a later round. By then most nodes
    have received their component, and send nothing else.
    """
    there = edges.select(F.col("src").alias("node"), F.col("dst").alias("neighbour"))
    back = edges.select(F.col("dst").alias("node"), F.col("src").alias("neighbour"))
    neighbours = there.concat(back)
    nodes = neighbours.select("node").distinct().select("node", F.col("node").alias("component"))

    def hear(components: Collection) -> Collection:
        heard = components.join(neighbours, "node").select(F.col("neighbour").alias("node"), "component")
        begin = entering_later(nodes, components, _first_round()) if is_later else nodes
        return heard.concat(begin).groupBy("node").min("component")

    is_later = isinstance(nodes.schema["component"].dataType, IntegralType) and limits.get().rounds >= _ROUNDS_LATER
    return (nodes.where(F.lit(False)) if is_later else nodes).iterate(hear)


def _first_round() -> Column:
    """Return the round in which a node begins: 0 for numbers below 4, 1 below 16, 2 below 64, and so on."""
    number = F.col("component").cast("long")
    found = F.when(number < F.lit(4).cast("long"), F.lit(0))
    for power in range(2, 32):
        found = found.when(number < F.lit(4**power).cast("long"), F.lit(power - 1))
    return found.otherwise(F.lit(31))


def shortest_paths(edges: Collection, sources: Collection, rounds: int | None = None) -> Collection:
    """Return the distance of each reachable node from the nearest source: `(node, distance)`.

    Args: edges: with a column `length`, a whole, non-negative number. sources: rows with a column `node`. rounds: the
        greatest number of edges in a path.
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
    """Return the rank of each node, `(node, rank)`. Ranks divided by their sum are PageRank's probabilities.

    A node's rank is `1 - damping`, plus a share from each node that points to it: `damping` times that node's rank,
    divided by the number of its edges. The ranks are the same from every start, so each epoch begins with the former
    epoch's ranks.

    Args: tolerance: a rank that moves by no more keeps its old value. Errors spread as ranks do, so no rank is off by
        more than `rank * tolerance / (1 - damping)`. The default is the iteration's `until`, or 1e-6.
        nodes: rows with a column `node`. Edges to other nodes are ignored. The default is all nodes with edges.
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
