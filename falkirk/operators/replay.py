"""Replay: applies the steps that a stream has recorded to the DataFrames of a micro-batch."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from falkirk.declare.parts import Processor
from falkirk.declare.stream import Node, Step, Stream
from falkirk.errors import DefinitionError
from falkirk.frames import stamped as frames
from falkirk.frames.stamped import BAD, STAMP, Frame
from falkirk.operators.functions import map_rows, stateful
from falkirk.operators.joins import join


def replay(node: Node, given: Mapping[str, DataFrame], processor: Processor) -> DataFrame:
    """Return the result of the steps.

    Args: given: by name, each with its stamps in a column `STAMP`.
    Raises: DefinitionError: `NOT_A_STREAM`; `STAMP_MISSING`: a step with a state follows a step that leaves no order.
    """
    return _replay(node, given, processor).own


def _replay(node: Node, given: Mapping[str, DataFrame], processor: Processor) -> Frame:
    if not isinstance(node, Step) and node.name in given:
        return frames.good(given[node.name])
    if not isinstance(node, Step):
        raise DefinitionError(
            "NOT_A_STREAM",
            f"processor {processor.name!r} returned no stream made from what it reads.",
            where=processor.where,
            hint="Return the transformed stream.",
            processor=processor.name,
        )
    frame = _replay(node.parent, given, processor)
    if node.operation not in ("map_rows", "stateful", "join"):
        return frames.apply(frame, node)
    options = dict(node.arguments[-1])
    if node.operation == "map_rows":
        return frames.good(map_rows(frame.own, node.arguments[0], where=node.where, **options))
    if node.operation == "join":
        other = node.arguments[0]
        assert isinstance(other, Stream), "checked when it was recorded"
        right = _replay(other.node, given, processor)
        return frames.good(join(frame.own, right.own, node.arguments[1], where=node.where, **options))
    if STAMP not in frame.data.columns:
        raise DefinitionError(
            "STAMP_MISSING",
            "stateful() follows a step whose results have no order.",
            where=node.where,
            hint="Put it first, or into a separate processor.",
            processor=processor.name,
        )
    return frames.good(stateful(frame.data.drop(BAD), node.arguments[0], order=STAMP, where=node.where, **options))
