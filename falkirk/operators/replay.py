"""Replay: applies the steps that a stream has recorded to the DataFrames of a micro-batch."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from falkirk.declare.parts import Processor
from falkirk.declare.stream import Node, Step, Stream
from falkirk.errors.conditions.operators import NOT_A_STREAM_BATCH, STAMP_MISSING_ORDER
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
        raise NOT_A_STREAM_BATCH.error(where=processor.where, processor=processor.name)
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
        raise STAMP_MISSING_ORDER.error(where=node.where, processor=processor.name)
    return frames.good(stateful(frame.data.drop(BAD), node.arguments[0], order=STAMP, where=node.where, **options))
