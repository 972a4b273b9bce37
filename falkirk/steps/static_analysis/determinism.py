"""Determinism: finds the operations of a Spark plan that may differ on a replay, with the table of functions.

Exactly-once results that depend on them wait until they can't become invalid any more, unless no results could
contradict each other: see falkirk/plan/live_determinism.py. An at-most-once sink after them is refused.
"""

import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from falkirk.declare.asserting import DeterminismAssertion
from falkirk.steps.static_analysis import clocks, python
from falkirk.steps.static_analysis.functions import SAME_IN_BATCH, SAME_LIVE, entry_of
from falkirk.steps.static_analysis.settled import settled
from falkirk.steps.static_analysis.structure import OF_ROWS, KnownLeaves, Objects, objects_in, plan_tree, structure_of
from falkirk.steps.static_analysis.typed import of_types

#: The division and order of a checkpointed DataFrame's rows, which are no computation.
_PHYSICAL = ".plans.physical."
#: An aggregate of distinct values, in the counts of `operations`. Spark has none in streams.
DISTINCT = "DistinctAggregate"
#: A cache of counted operations. A plan never changes, and the frame after one step is the frame before the next one.
_COUNTED: "weakref.WeakKeyDictionary[DataFrame, Counter[str]]" = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class InBatch:
    """The content of a batch's analysed plan.

    Args: plan: its structure. operations: all its operations. undetermined: the operations that may give other rows on
        a replay. assertions: the user's assertions about its Python functions, if there is one for each.
    """

    plan: Any
    operations: frozenset[str]
    undetermined: frozenset[str]
    assertions: tuple[DeterminismAssertion, ...]

    @classmethod
    def of(cls, data: DataFrame, leaves: KnownLeaves) -> "InBatch":
        """Return the content of a DataFrame's plan. Args: leaves: known leaves, which the function reads or makes."""
        tree = plan_tree(data)
        objects = objects_in(tree)
        every = Counter(_names(objects))
        named = frozenset((*every, *clocks.in_plan(objects), *clocks.in_constants(data, objects)))
        named = named - set(OF_ROWS) | leaves.unknown(data)
        typed = frozenset(of_types(data, named))
        found = named | typed
        doubtful = typed | {name for name in found if entry_of(name).nature not in SAME_IN_BATCH}
        doubtful -= settled(data, doubtful, every)
        assertions = (python.assertions(data) or ()) if found & python.PYTHON_EXPRESSIONS else ()
        undetermined = frozenset(doubtful - python.PYTHON_EXPRESSIONS if assertions else doubtful)
        plan = structure_of(data, leaves, tree)
        return cls(plan=plan, operations=found, undetermined=undetermined, assertions=assertions)


def operations(data: DataFrame) -> Counter[str]:
    """Count the expressions and operators in a DataFrame's analysed plan, by simple class name.

    The result is shared: do not change it.
    """
    if (counted := _COUNTED.get(data)) is None:
        objects = objects_in(plan_tree(data))
        in_plan = (*_names(objects), *_of_distinct(objects), *clocks.in_plan(objects))
        found = (*in_plan, *clocks.in_constants(data, objects))
        counted = _COUNTED[data] = Counter(found)
    return counted


def _of_distinct(objects: Objects) -> Iterator[str]:
    """Yield `DISTINCT` for each aggregate of distinct values."""
    return (DISTINCT for each, _ in objects if each.get("isDistinct") is True)


def undetermined(had: Counter[str], has: Counter[str]) -> tuple[str, ...]:
    """Return the operations of which `has` has more than `had` and which may differ in a replay of a live region."""
    return tuple(sorted(name for name in has - had if entry_of(name).nature not in SAME_LIVE))


def _names(objects: Objects) -> Iterator[str]:
    for each, _ in objects:
        name = each.get("class")
        if isinstance(name, str) and _PHYSICAL not in name:
            yield name.rpartition(".")[2]
