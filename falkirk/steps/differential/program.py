"""Program: describes the nodes of a graph as texts that change only if the program changes.

The files of a loop hold rows that one program made. Another program could not remove these rows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest

from pyspark.sql import SparkSession

from falkirk.errors.conditions.differential import FUNCTION_UNREADABLE
from falkirk.errors.location import SourceLocation
from falkirk.steps.differential.graph import Left, LoopGraph, LoopNode, LoopVariable, Mapped, inputs_of
from falkirk.steps.differential.tried import Tried
from falkirk.steps.static_analysis import structure
from falkirk.steps.static_analysis.code import function_digest
from falkirk.steps.static_analysis.python import functions
from falkirk.steps.static_analysis.structure import structure_of

_FIELDS_TOLD = "spark.sql.debug.maxToStringFields"
#: The version of the texts, of their digest, and of the files of a loop. Digests of different versions can't be
#: compared.
FORM = 4

Program = tuple[str, ...]
"""One text for each node of a graph."""


def program_of(graph: LoopGraph, session: SparkSession) -> Program:
    """Return a text for each node of a graph, in order: its inputs, its columns and its operation.

    Raises: DefinitionError: `FUNCTION_UNREADABLE`.
    """
    numbers = {id(node): number for number, node in enumerate(graph.nodes)}
    with _all_fields(session):
        return tuple(
            f"{type(node).__name__} {[numbers[id(before)] for before in inputs_of(node)]} "
            f"{node.schema.simpleString()} {_text(node)}"
            for node in graph.nodes
        )


def program_digest(program: Program, session: SparkSession) -> str:
    """Return the digest of a program, with the version of digests in front."""
    spark = ".".join(str(session.version).split(".")[:2])
    return f"{FORM}:{structure.digest([spark, *program])}"


def first_change(graph: LoopGraph, program: Program, other: Program) -> SourceLocation | None:
    """Return the user's line of the first node that differs in another program; None: the node has no line."""
    changed = [node for node, one, two in zip_longest(graph.nodes, program, other) if one != two]
    return changed[0].where if changed and isinstance(changed[0], Mapped) else None


def tried_steps(graph: LoopGraph) -> list[Tried]:
    """Return the row-by-row steps of a graph on no rows."""
    return [_tried(node) for node in graph.nodes if isinstance(node, Mapped)]


@contextmanager
def _all_fields(session: SparkSession) -> Iterator[None]:
    """Make Spark print plans with all columns; by default it prints only the first ones of a wide row."""
    before = session.conf.get(_FIELDS_TOLD)
    session.conf.set(_FIELDS_TOLD, "10000")
    try:
        yield
    finally:
        session.conf.set(_FIELDS_TOLD, str(before))


def _tried(node: Mapped) -> Tried:
    assert node.tried is not None, "only a task has a graph without it"
    return node.tried


def _text(node: LoopNode) -> str:
    if isinstance(node, Left):
        return f"{node.loop.rounds} {node.loop.restarts}"
    if isinstance(node, Mapped):
        tried = _tried(node)
        # Spark's plan has only the name of a Python function.
        digests = [_function(found, node) for found in functions(tried.made)]
        return structure.digest([structure_of(tried.made, tried.leaves), digests])
    if isinstance(node, LoopVariable):
        return str(node.start is not None)
    return str(getattr(node, "operator", "")) + str(getattr(node, "name", ""))


def _function(function: object, node: Mapped) -> str:
    if function is None:
        raise FUNCTION_UNREADABLE.error(where=node.where, function="", name="", kind="")
    return function_digest(function)
