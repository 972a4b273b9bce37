"""Nodes: the steps that a stream has recorded, as values that lead back to its source."""

from dataclasses import dataclass
from typing import Any

from falkirk.declare.endpoints import Kafka
from falkirk.errors.location import SourceLocation

#: The step that looks rows of a view up.
LOOKUP = "lookup"
#: The step that puts the times of a clock beside the records.
CLOCKED = "withClock"
#: The steps that look up the newest row of another stream. The first puts its rows beside the records. The second has
#: the state per key.
BESIDE, NEWEST_ROW = "lookupLatest", "latest"
#: Steps that put the records of another stream beside those of this one.
UNIONS = ("union", "unionByName", CLOCKED, BESIDE)
#: Steps whose results have no event time, because they are no records of the input any more.
WITHOUT_TIME = frozenset({
    "agg", "count", "windows", "map_rows", "stateful", "join", "timedJoin", NEWEST_ROW, *UNIONS,
})  # fmt: skip
#: The steps after which a stream can't be joined by event time. Some joins are exceptions: see `joined_by`.
_NOT_JOINED_AFTER = WITHOUT_TIME | {"dropDuplicates"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """The start of a stream: a topic, under the name by which processors read it.

    A topic of a list has a name of its own: see `part_of`. `is_hop`: the topic is internal, so its records are
    well-formed.
    """

    name: str
    topic: Kafka
    is_hop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorNode:
    """The start of a stream: the output of another processor, by its name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One recorded method call: `operation` with its arguments, at the user's line."""

    parent: "Node"
    operation: str
    arguments: tuple[Any, ...]
    where: SourceLocation


Node = SourceNode | ProcessorNode | Step


def part_of(source: str, topic: str) -> str:
    """Return the name of one topic of a source with several: no name that a user gives has a slash."""
    return f"{source}/{topic}"


def steps_of(node: Node) -> tuple[Step, ...]:
    """Return the recorded steps that lead to `node`, oldest first."""
    found: list[Step] = []
    while isinstance(node, Step):
        found.append(node)
        node = node.parent
    return tuple(reversed(found))


def steps_since(step: Step, node: Node) -> tuple[Step, ...]:
    """Return the steps after a step that leads to `node`, oldest first."""
    return steps_of(node)[len(steps_of(step)) :]


def root_of(node: Node) -> SourceNode | ProcessorNode:
    """Return where the steps that lead to `node` begin."""
    while isinstance(node, Step):
        node = node.parent
    return node


def roots_of(node: Node) -> tuple[SourceNode | ProcessorNode, ...]:
    """Return where the steps that lead to `node` begin, with those of streams that a union adds."""
    found: list[SourceNode | ProcessorNode] = []
    while isinstance(node, Step):
        if node.operation in UNIONS:
            found += roots_of(node.arguments[0].node)
        node = node.parent
    return (node, *found)


def all_steps_of(node: Node) -> tuple[Step, ...]:
    """Return the recorded steps that lead to `node`, with those of streams that a union adds, each after its parent."""
    if not isinstance(node, Step):
        return ()
    others = all_steps_of(node.arguments[0].node) if node.operation in UNIONS else ()
    return (*all_steps_of(node.parent), *others, node)


def sources_of(node: Node) -> tuple[SourceNode, ...]:
    """Return the sources at which the steps of a live region begin, in the order of their numbers.

    A change of the order in which a program names streams, or the topics of a list, changes the order only if a union
    stands between two others.
    """
    if not isinstance(node, Step):
        return (node,) if isinstance(node, SourceNode) else ()
    if node.operation not in UNIONS:
        return sources_of(node.parent)
    sides = (sources_of(node.parent), sources_of(node.arguments[0].node))
    return (*sides[1], *sides[0]) if is_right_first(node) else (*sides[0], *sides[1])


def is_right_first(union: Step) -> bool:
    """Return whether the right side of a union of a live region comes first: that with the first topic does.

    A clock comes after the records.
    """
    if union.operation == CLOCKED:
        return False
    left, right = ([source.topic.topic for source in sources_of(n)] for n in (union.parent, union.arguments[0].node))
    return min(right, default="") < min(left, default="")


def alias_of(node: Node) -> str:
    """Return the name by which the condition of a join names a stream."""
    aliases = [step.arguments[0] for step in steps_of(node) if step.operation == "alias"]
    return str(aliases[-1]) if aliases else root_of(node).name


def functions_of(step: Step) -> tuple[Any, ...]:
    """Return the user's functions that a step calls for rows, and for timers."""
    if step.operation not in ("map_rows", "stateful"):
        return ()
    timers = step.arguments[1].get("timers")
    return (step.arguments[0], *(() if timers is None else (timers.function,)))


def is_ordered(step: Step) -> bool:
    """Return whether a step gets the records of a key by their times, so that they may come from several partitions."""
    return step.operation == "stateful" and "order" in step.arguments[1]


def timed_by(node: Node, without: frozenset[str] = WITHOUT_TIME) -> Step | None:
    """Return the `withWatermark` whose event time holds after a node. Args: without: the steps behind which it ends."""
    while isinstance(node, Step) and node.operation not in without:
        if node.operation == "withWatermark":
            return node
        node = node.parent
    return None


def joined_by(node: Node, *, through_joins: bool = True) -> Step | None:
    """Return the `withWatermark` by whose time a stream may be joined: no step with a state comes in between.

    Args: through_joins: joins may come in between whose results all have a left record. The time of a result is that of
        this record.
    """
    while (found := timed_by(node, _NOT_JOINED_AFTER)) is None and through_joins:
        join = next((step for step in reversed(steps_of(node)) if step.operation in _NOT_JOINED_AFTER), None)
        if join is None or join.operation != "timedJoin" or join.arguments[1].keeps[1]:
            return None
        node = join.parent
    return found


def clocked_by(node: Node) -> Step | None:
    """Return the `withClock` whose times hold after a node. An event time after it replaces them."""
    while isinstance(node, Step):
        if node.operation == CLOCKED:
            return node
        if node.operation in WITHOUT_TIME or node.operation == "withWatermark":
            return None
        node = node.parent
    return None
