"""Conditions of `theory`."""

from falkirk.errors import InternalError, UnrecoverableError
from falkirk.errors.condition import Condition

FRONTIER_DOMAINS = Condition(
    "FRONTIER_DOMAINS",
    InternalError,
    "frontiers of different domains can't be compared.",
)
FRONTIER_MALFORMED = Condition(
    "FRONTIER_MALFORMED",
    InternalError,
    "a prefix has length {length}, which is below 0.",
)
FRONTIER_MALFORMED_BOUND = Condition(
    "FRONTIER_MALFORMED",
    InternalError,
    "{bound} is not a bound for times of {arity} numbers.",
)
GRAPH_MALFORMED = Condition(
    "GRAPH_MALFORMED",
    InternalError,
    "two processors or two edges have the same name.",
)
GRAPH_MALFORMED_EDGE = Condition(
    "GRAPH_MALFORMED",
    InternalError,
    "edge {edge!r} begins or ends at a processor that is not in the graph.",
)
NO_WAY_BACK = Condition(
    "NO_WAY_BACK",
    InternalError,
    "the initial state is missing from the checkpoints of a processor.",
)
FRONTIERS_UNORDERED = Condition(
    "FRONTIERS_UNORDERED",
    InternalError,
    "checkpoints at {known_frontier} and {other_frontier}, or what they fix, have no order.",
)
NO_CHECKPOINTS = Condition(
    "NO_CHECKPOINTS",
    InternalError,
    "{processor!r} saves no checkpoints.",
)
NO_MARKS = Condition(
    "NO_MARKS",
    InternalError,
    "the checkpoints of {processor!r} already record what is fixed.",
)
TAIL_POSITION_MISSING = Condition(
    "TAIL_POSITION_MISSING",
    UnrecoverableError,
    "no tail position is recorded for a restart after batch {restored_commit}.",
    hint="The home's decisions are incomplete. Restore them from a backup, or use a new home.",
)
FRONTIER_DOMAINS_NOT_STRUCTURED = Condition(
    "FRONTIER_DOMAINS",
    InternalError,
    "the frontier {frontier} is not one of structured times with {loops} or more loops.",
)
FRONTIER_DOMAINS_NOT_SEQUENCES = Condition(
    "FRONTIER_DOMAINS",
    InternalError,
    "the frontier {frontier} is not one over sequence numbers.",
)
CUTS_UNORDERED = Condition(
    "CUTS_UNORDERED",
    InternalError,
    "the cut of epoch {epoch} follows that of epoch {before}.",
)
NOT_NOTIFIED = Condition(
    "NOT_NOTIFIED",
    InternalError,
    "{name!r} has processed a notification, but the graph does not declare it as notified.",
)
TIME_MALFORMED = Condition(
    "TIME_MALFORMED",
    InternalError,
    "an offset is {offset}, which is below 0.",
)
TIME_MALFORMED_STRUCTURED = Condition(
    "TIME_MALFORMED",
    InternalError,
    "{coordinates} is not an epoch with loop counters ≥ 0.",
)
