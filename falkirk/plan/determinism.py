"""Determinism: which operations of a plan of Spark's may come out differently on a replay, by the table of functions.

Exactly-once results behind them are held back until they can't be taken back any more, unless nobody could tell: see
`inference.live`. An at-most-once sink behind them is refused.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from falkirk.asserting import Word
from falkirk.plan.inference import clocks, python
from falkirk.plan.inference.functions import ONE_OF_SEVERAL, SAME_IN_BATCH, SAME_LIVE, Nature, entry_of


@dataclass(frozen=True, slots=True, kw_only=True)
class InBatch:
    """What there is in a batch's analysed plan.

    Args: plan: Spark's, as JSON. operations: all that are in it. undetermined: those of which no replay is known to
        give the same rows. words: what the user vouches for of its Python functions, if that is so of all of them.
    """

    plan: Any
    operations: frozenset[str]
    undetermined: frozenset[str]
    words: tuple[Word, ...]

    @classmethod
    def of(cls, data: DataFrame) -> "InBatch":
        """Look at a DataFrame's plan."""
        analyzed = data._jdf.queryExecution().analyzed()
        plan = json.loads(analyzed.toJSON())
        found = frozenset((*_names(plan), *clocks.in_plan(plan)))
        if "Deduplicate" in found and _keeps_one_of_several(analyzed):
            found |= {ONE_OF_SEVERAL}
        doubtful = {name for name in found if entry_of(name).nature not in SAME_IN_BATCH}
        if any(entry_of(name).nature is Nature.FLOATING for name in found):
            doubtful |= set(_of_floats(analyzed))
        words = (python.words(data) or ()) if found & python.PYTHON else ()
        undetermined = frozenset(doubtful - python.PYTHON if words else doubtful)
        return cls(plan=plan, operations=found, undetermined=undetermined, words=words)


def _keeps_one_of_several(plan: Any) -> bool:
    """Whether duplicates are dropped by some of their columns: then the others say which one was kept."""
    if plan.nodeName() == "Deduplicate" and plan.keys().size() < plan.output().size():
        return True
    children = plan.children()
    return any(_keeps_one_of_several(children.apply(i)) for i in range(children.size()))


#: Types whose values add up to the same in any order. An average adds up whole numbers as floating-point ones, and
#: long ones are soon beyond 2^53, where those are rounded.
_EXACT = ("byte", "short", "integer", "long", "decimal", "interval ")
_EXACT_IN_AVERAGES = ("byte", "short", "integer", "decimal", "interval ")


def _of_floats(plan: Any) -> Iterator[str]:
    """Yield the aggregates that add what is not known to be exact: the last bits of such a sum depend on its order."""
    for expression in python.expressions(plan):
        name = str(expression.getClass().getSimpleName())
        if entry_of(name).nature is not Nature.FLOATING:
            continue
        child = expression.children().apply(0)
        if entry_of(str(child.getClass().getSimpleName())).nature is Nature.FLOATING:
            continue  # try_sum() stands for a sum, which is looked at itself
        exact = _EXACT if name in ("Sum", "TrySum") else _EXACT_IN_AVERAGES
        if not str(child.dataType().typeName()).startswith(exact):
            yield name


def operations(data: DataFrame) -> Counter[str]:
    """Count the expressions and operators in a DataFrame's analysed plan, by simple class name."""
    plan = json.loads(data._jdf.queryExecution().analyzed().toJSON())
    return Counter((*_names(plan), *clocks.in_plan(plan)))


def undetermined(had: Counter[str], has: Counter[str]) -> tuple[str, ...]:
    """Return those operations of which `has` has more than `had`, and of which no replay of a live region is known to
    give the same."""
    return tuple(sorted(name for name in has - had if entry_of(name).nature not in SAME_LIVE))


def _names(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        name = node.get("class")
        if isinstance(name, str):
            yield name.rpartition(".")[2]
        for value in node.values():
            yield from _names(value)
    elif isinstance(node, list):
        for value in node:
            yield from _names(value)
