"""Determinism: which operations of a plan of Spark's may come out differently on a replay, by the table of functions.

Exactly-once results behind them are held back until they can't be taken back any more, unless nobody could tell: see
`inference.live`. An at-most-once sink behind them is refused.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from falkirk.analysis import clocks, python
from falkirk.analysis.functions import SAME_IN_BATCH, SAME_LIVE, entry_of
from falkirk.analysis.settled import settled
from falkirk.analysis.structure import OF_ROWS, Leaves, structure_of, tree_of
from falkirk.analysis.typed import of_types
from falkirk.declare.asserting import Word

#: How rows of a checkpointed DataFrame are divided and ordered: no computation.
_PHYSICAL = ".plans.physical."


@dataclass(frozen=True, slots=True, kw_only=True)
class InBatch:
    """What there is in a batch's analysed plan.

    Args: plan: its structure. operations: all that are in it. undetermined: those of which no replay is known to give
        the same rows. words: what the user vouches for of its Python functions, if that is so of all of them.
    """

    plan: Any
    operations: frozenset[str]
    undetermined: frozenset[str]
    words: tuple[Word, ...]

    @classmethod
    def of(cls, data: DataFrame, leaves: Leaves) -> "InBatch":
        """Look at a DataFrame's plan. Args: leaves: those that are known: what the function reads and makes."""
        tree = tree_of(data)
        every = Counter(_names(tree))
        named = frozenset((*every, *clocks.in_plan(tree), *clocks.in_constants(data, tree)))
        named = named - set(OF_ROWS) | leaves.unknown(data)
        typed = frozenset(of_types(data, named))
        found = named | typed
        doubtful = typed | {name for name in found if entry_of(name).nature not in SAME_IN_BATCH}
        doubtful -= settled(data, doubtful, every)
        words = (python.words(data) or ()) if found & python.PYTHON else ()
        undetermined = frozenset(doubtful - python.PYTHON if words else doubtful)
        plan = structure_of(data, leaves, tree)
        return cls(plan=plan, operations=found, undetermined=undetermined, words=words)


def operations(data: DataFrame) -> Counter[str]:
    """Count the expressions and operators in a DataFrame's analysed plan, by simple class name."""
    tree = tree_of(data)
    return Counter((*_names(tree), *clocks.in_plan(tree), *clocks.in_constants(data, tree)))


def undetermined(had: Counter[str], has: Counter[str]) -> tuple[str, ...]:
    """Return those operations of which `has` has more than `had`, and of which no replay of a live region is known to
    give the same."""
    return tuple(sorted(name for name in has - had if entry_of(name).nature not in SAME_LIVE))


def _names(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        name = node.get("class")
        if isinstance(name, str) and _PHYSICAL not in name:
            yield name.rpartition(".")[2]
        for value in node.values():
            yield from _names(value)
    elif isinstance(node, list):
        for value in node:
            yield from _names(value)
