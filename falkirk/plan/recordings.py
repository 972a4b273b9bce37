"""Recordings: the results of the functions of streams in one plan, so that no function is called per reader.

A function records steps on a `Stream`. The planner uses its first call everywhere: to choose the engine, to cut
regions, and to run micro-batches. A second call shows whether the function itself is deterministic: a clock that
Python reads is a literal to Spark, but the literal differs in the second call.
"""

from typing import Any

from falkirk.declare.nodes import Node, ProcessorNode, SourceNode, root_of
from falkirk.declare.parts import DeclaredProcessor
from falkirk.declare.stream import Stream
from falkirk.declare.view import View
from falkirk.plan.fingerprint import steps_text


class Recordings:
    """The results of the first and the second call of each stream's function. A call is made when it is needed."""

    def __init__(self) -> None:
        self._first: dict[str, Any] = {}
        self._second: dict[str, Any] = {}

    def first(self, processor: DeclaredProcessor) -> Any:
        """Return the result of a processor's function: a stream, unless the user made a mistake."""
        return _recorded(processor, self._first)

    def second(self, processor: DeclaredProcessor) -> Any:
        """Return the function's result at its second call."""
        return _recorded(processor, self._second)

    def differ(self, processor: DeclaredProcessor) -> bool:
        """Return whether a live processor's function records other steps when it is called again."""
        if processor.assertion is not None:
            return False
        first, second = node_of(self.first(processor)), node_of(self.second(processor))
        return first is not second and steps_text(first) != steps_text(second)


def _recorded(processor: DeclaredProcessor, calls: dict[str, Any]) -> Any:
    if processor.name not in calls:
        calls[processor.name] = processor.body(
            *[View(read) if read in processor.views else Stream(ProcessorNode(name=read)) for read in processor.reads]
        )
    return calls[processor.name]


def node_of(result: object) -> Node:
    """Return the last step of a function's result. The planner reports a function that returns no stream."""
    return result.node if isinstance(result, Stream) else ProcessorNode(name="")


def begins_at(node: Node, upstream: str, source: SourceNode | None) -> bool:
    """Return whether recorded steps begin at the inputs of their processor.

    Args: source: the source named `upstream`, if it is one. A stream that `read` began starts at the source itself.
    """
    root = root_of(node)
    return root == ProcessorNode(name=upstream) or is_declared_as(root, source)


def is_declared_as(root: Node, source: SourceNode | None) -> bool:
    """Return whether steps begin at a source. The source of a plan may have a schema that was looked up."""
    if root is source or source is None or not isinstance(root, SourceNode):
        return root is source and source is not None
    mine, its = root.topic, source.topic
    return (root.name, mine.topic, mine.where) == (source.name, its.topic, its.where) and its.registry is not None
