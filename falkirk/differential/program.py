"""Program: what a graph says, as a text that stays the same while it does. What loops keep is of one program: with
another one, what they have heard and said before would be of nobody's."""

import hashlib

from pyspark.sql import DataFrame, SparkSession

from falkirk.differential.graph import Graph, Left, Mapped, Node, Variable, inputs_of
from falkirk.differential.schemas import timed
from falkirk.plan.inference.code import text_of
from falkirk.plan.inference.python import functions

_FIELDS_TOLD = "spark.sql.debug.maxToStringFields"


def digest(graph: Graph, session: SparkSession) -> str:
    """Return what stands for all nodes of a graph, in their order, with what each reads and does, and what its columns
    are called, and for its loops' limits."""
    numbers = {id(node): number for number, node in enumerate(graph.nodes)}
    before = session.conf.get(_FIELDS_TOLD)
    session.conf.set(_FIELDS_TOLD, "10000")  # of a wide row, Spark tells the first columns alone
    try:
        told = [
            f"{type(node).__name__} {[numbers[id(before)] for before in inputs_of(node)]} "
            f"{node.schema.simpleString()} {_said(node, session)}"
            for node in graph.nodes
        ]
    finally:
        session.conf.set(_FIELDS_TOLD, str(before))
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def steps_of(graph: Graph, session: SparkSession) -> list[DataFrame]:
    """Return what the steps of a graph that go row by row make of no rows."""
    return [_made(node, session) for node in graph.nodes if isinstance(node, Mapped)]


def _made(node: Mapped, session: SparkSession) -> DataFrame:
    return node.how(session.createDataFrame([], timed(node.of.schema, node.scope.depth)))


def _said(node: Node, session: SparkSession) -> str:
    if isinstance(node, Left):
        return f"{node.loop.rounds} {node.loop.restarts}"
    if isinstance(node, Mapped):
        rows = _made(node, session)
        *steps, _rows = str(rows._jdf.queryExecution().analyzed().canonicalized().toString()).strip().splitlines()
        # Of a Python function, Spark tells the name.
        return "\n".join([*steps, *map(text_of, functions(rows))])
    if isinstance(node, Variable):
        return str(node.start is not None)
    return str(getattr(node, "operator", "")) + str(getattr(node, "name", ""))
