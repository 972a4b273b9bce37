"""Escapes: where rows leave Spark's plan while a batch's function describes what it does with them.

What is collected, checkpointed or made of Python's rows comes back as something of which the plan no longer says where
it is from: a lot that was drawn before a `localCheckpoint()` is a column like any other behind it. So what the function
does is watched while it is called for the plan. What is run there and then counts as known by its own plan; rows that
Python hands over count as what they are, and are compared with those of the next call.

Rows in a plan that the function neither reads nor makes were computed before: a DataFrame that was checkpointed
outside, the result of a SQL script. The plan does not say from what, so nothing is known of them.

What Python makes of rows that it was handed is not for Spark to see. While the function is called for the plan there
are none, so that a second call does not show it either: it counts as a Python function that rows go through.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from pyspark import cloudpickle
from pyspark.sql import GroupedData, Observation, SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from falkirk.analysis import clocks
from falkirk.analysis.determinism import InBatch
from falkirk.analysis.functions import ROWS_OF_PYTHON
from falkirk.analysis.structure import IN_SQL, OF_ROWS, Leaves, leaves_of, name_of, tree_of

#: What comes of these stays with Spark, or is how many rows there are.
_RUN = ("localCheckpoint", "checkpoint", "crosstab", "transpose", "count", "isEmpty")
_TO_PYTHON = (
    "collect", "toPandas", "_to_pandas", "toArrow", "toLocalIterator", "first", "head", "take", "tail", "corr",
    "cov", "approxQuantile",
)  # fmt: skip
_FOREIGN = ("foreach", "foreachPartition", "toJSON")
#: Leaves of a plan that are written in the program itself.
_CONSTANT = {"LocalRelation", "OneRowRelation", "Range", "CTERelationRef"}
#: How rows are called in `Leaves` that a function has made, or has run.
_MADE, _RAN = "made", "run"


class Watched:
    """What a function does while it is called.

    Attributes: found: what it has run, and the rows that it has made. leaves: those of its plans that are known.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.found: list[InBatch] = []
        self.leaves = Leaves.of(given)

    def _ran(self, rows: Any, result: Any) -> Any:
        self.found.append(InBatch.of(rows, self.leaves))
        if isinstance(result, DataFrame):
            self.leaves.add(_RAN, result)
        return result

    def _brought(self, rows: Any, result: Any) -> Any:
        self.found.append(InBatch.of(rows, self.leaves))
        if _reads(tree_of(rows)):
            self._escaped(rows, result)
        return result

    def _escaped(self, rows: Any, result: Any) -> Any:
        self.found.append(_foreign())
        return result

    def frames(self) -> dict[str, Any]:
        """Return the methods of a DataFrame that are watched."""
        known = vars(DataFrame)
        patched: dict[str, Any] = {name: _noting(known[name], self._ran) for name in _RUN}
        patched |= {name: _noting(known[name], self._brought) for name in _TO_PYTHON}
        patched |= {name: _noting(known[name], self._escaped) for name in _FOREIGN}
        patched["rdd"] = property(_noting(known["rdd"].func, self._escaped))
        return patched

    def session(self) -> dict[str, Any]:
        """Return the methods of a session that are watched."""
        real_create, real_sql = SparkSession.createDataFrame, SparkSession.sql  # before they are patched

        def create(session: SparkSession, data: Any, *arguments: Any, **options: Any) -> Any:
            made = _made(data)
            self.found.append(made)
            rows = real_create(session, data, *arguments, **options)
            self.leaves.add(f"{_MADE} {made.plan}", rows)
            return rows

        def sql(session: SparkSession, *arguments: Any, **options: Any) -> Any:
            rows = real_sql(session, *arguments, **options)
            parsed = rows._jdf.queryExecution().logical()
            for leaf in leaves_of(parsed) if parsed.getClass().getSimpleName() != "CompoundBody" else ():
                if leaf.getClass().getSimpleName() in OF_ROWS and clocks.is_timeless(leaf):
                    self.leaves.add_leaf(IN_SQL, rows, leaf)  # VALUES, which Spark reads when it parses the text
            return rows

        return {"createDataFrame": create, "sql": sql}

    def groups(self) -> dict[str, Any]:
        """Return the methods of grouped rows that are watched."""
        real = GroupedData.pivot

        def pivot(grouped: GroupedData, column: str, values: Any = None) -> GroupedData:
            if values is None:  # Spark looks into the rows, of which there are none while the function is planned
                self.found.append(_foreign())
            return real(grouped, column, values)

        return {"pivot": pivot}

    def observation(self) -> Any:
        """Return the property of an observation that is watched."""
        return property(_noting(vars(Observation)["get"].fget, self._escaped))


@contextmanager
def watched(given: Mapping[str, Any]) -> Iterator[Watched]:
    """While a function is called, take note of what it runs, and of the rows that it makes. Args: given: its input."""
    watch = Watched(given)
    with (
        mock.patch.multiple(DataFrame, **watch.frames()),
        mock.patch.multiple(SparkSession, **watch.session()),
        mock.patch.multiple(GroupedData, **watch.groups()),
        mock.patch.object(Observation, "get", watch.observation()),
    ):
        yield watch


def _noting(real: Callable[..., Any], note: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def call(rows: Any, *arguments: Any, **options: Any) -> Any:
        return note(rows, real(rows, *arguments, **options))

    return call


def _reads(node: Any) -> bool:
    """Tell whether a plan, as Spark's JSON, reads anything but what is written in the program."""
    if isinstance(node, dict):
        is_leaf = node.get("num-children") == 0 and ".expressions." not in node["class"]
        return (is_leaf and name_of(node) not in _CONSTANT) or any(map(_reads, node.values()))
    return isinstance(node, list) and any(map(_reads, node))


def _foreign() -> InBatch:
    names = frozenset({ROWS_OF_PYTHON})
    return InBatch(plan=None, operations=names, undetermined=names, words=())


def _made(data: Any) -> InBatch:
    """Return what is known of rows that a function has made: what they are, if they can be looked at again."""
    try:
        plan = hashlib.sha256(cloudpickle.dumps(data)).hexdigest()  # type: ignore[no-untyped-call]
    except Exception:  # an RDD, a generator: whatever comes out of it was not there before
        return _foreign()
    return InBatch(plan=plan, operations=frozenset(), undetermined=frozenset(), words=())
