"""Chains: decides which keyed steps follow each other in one live region, without a hop between them.

A state partition runs them as one operator (Chain.java): each gets the results of the one before, in their order. That
is right if all records of a key of each step are in one state partition. So the columns that partition the region's log
also choose the state partition, and the key of each step must contain them, unchanged (`Draft.needs_sequencer`).
`dropDuplicates`, windows and aggregations pass their keys on. A Python function may return anything in a column of that
name. So a keyed step follows `stateful` in its region only if Falkirk adds the key to the results (`include_key`).
"""

from typing import Any

from pyspark.errors import AnalysisException

from falkirk.declare.nodes import Step, steps_of
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.plan.draft import Draft
from falkirk.plan.fingerprint import KEYED
from falkirk.plan.keyed_steps import against_steps
from falkirk.steps.dataframes.quiet import quiet
from falkirk.steps.live.aggregates import aggregates_of, grouping_of
from falkirk.steps.live.stamped import Frame, key_column
from falkirk.steps.live.windows import aggregates_for_java
from falkirk.steps.static_analysis import determinism
from falkirk.steps.static_analysis.functions import operation_name


def needs_hop(draft: Draft, step: Step, keys: tuple[Any, ...], operation: str = "") -> str | None:
    """Return why a keyed step needs a hop before it, or None.

    Args: draft: before the step. keys, operation: of the step, see `Draft.needs_sequencer`.
    """
    return _against(draft, step, keys) or draft.needs_sequencer(keys, operation)


def _against(draft: Draft, step: Step, keys: tuple[Any, ...]) -> str | None:
    """Return why a keyed step can't be in the region of those before it, or None; also if there are none."""
    if not draft.frame.keyed:
        return None
    before = steps_of(draft.node)
    reason = "a join gives its results in another order in each replay" if draft.joined else None
    reason = reason or ("they are over several topics" if draft.others else against_steps((*before, step)))
    if reason is None and draft.unkeyed is not None and draft.kept is not None:
        last = next(each for each in reversed(before) if each.operation in KEYED)
        reason = _of_values(draft.kept, draft.frame, keys) or _of_aggregates(draft.unkeyed, last)
        reason = reason or _of_aggregates(draft.frame, step)
    return None if reason is None else f"it and a step with a state before it can't be in one live query: {reason}"


def _of_values(before: Frame, after: Frame, keys: tuple[Any, ...]) -> str | None:
    """Return what may differ in a replay between two keyed steps. The clock would stand still there.

    Args: before: after the first step. after, keys: before the second one, and its key, which is computed there, too.
    """
    computed = [key_column(key) for key in keys if not isinstance(key, str)]
    last = after.data.select("*", *computed) if computed else after.data
    found = determinism.undetermined(determinism.operations(before.data), determinism.operations(last))
    return f"{operation_name(found[0])} is between them" if found else None


def _of_aggregates(frame: Frame, step: Step) -> str | None:
    """Return why an aggregation can't be computed record by record. Args: frame: before it."""
    if step.operation not in ("agg", "count"):
        return None
    try:
        with quiet():
            aggregates_for_java(frame.data, aggregates_of(grouping_of(step.arguments)[1]))
    except AnalysisException:  # with its key the step has passed the analysis
        return "an aggregate contains a column of its key"
    except SPARK_ERRORS as error:
        return first_line(error)
    return None
