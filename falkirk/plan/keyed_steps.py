"""Keyed steps: which of them can be in one live region, as far as the declared steps tell. See chains.py."""

from collections.abc import Sequence

from falkirk.declare.nodes import NEWEST_ROW, Step, is_ordered
from falkirk.declare.windows import split_windows
from falkirk.plan.fingerprint import KEYED
from falkirk.steps.static_analysis import udfs

#: The steps that may be between two keyed steps of a region: each needs one row alone (RowSteps.java).
ROW_STEPS = frozenset({
    "select", "selectExpr", "where", "withColumns", "withColumnRenamed", "drop", "alias", "explode",
})  # fmt: skip


def against_steps(steps: Sequence[Step]) -> str | None:
    """Return why the keyed steps among some steps can't be in one region, as far as the steps tell, or None.

    Args: steps: upstream first.
    """
    places = [place for place, step in enumerate(steps) if step.operation in KEYED]
    if len(places) < 2:
        return None
    for step in steps[places[0] : places[-1] + 1]:
        if step.operation == "timedJoin" or is_ordered(step):
            return "one of them gives results in an order of its own"
        if step.operation == NEWEST_ROW:
            return "lookup() in a stream is one of them"
        if step.operation == "stateful" and step is not steps[places[-1]] and "include_key" not in step.arguments[1]:
            return "stateful() without include_key=True calls Python, which may return another key"
        if step.operation in ("agg", "count") and split_windows(step.arguments[0])[0]:
            return "groupBy() has a window without event time"
        if step.operation not in KEYED and (step.operation not in ROW_STEPS or udfs.of_values(step.arguments)):
            called = " with a UDF" if step.operation in ROW_STEPS else ""
            return f"{step.operation}(){called} is between them"
    return None
