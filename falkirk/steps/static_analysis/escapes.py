"""Escapes: finds the places where rows leave Spark's plan while a batch's function is called.

If rows are collected, checkpointed or made in Python, the plan no longer shows their origin. For example, a random
value from before a `localCheckpoint()` is an ordinary column after it. So Falkirk watches the function while it calls
it for the plan. A DataFrame that the function runs counts by its own plan. Rows that Python passes to Spark count by
their values, and are compared with those of the second call.

Rows in a plan that the function neither reads nor makes were computed before, like a DataFrame that was checkpointed
outside or the result of a SQL script. The plan does not show their origin, so they count as unknown.

Spark can't see how Python computes rows from collected ones. There are no rows while the function is called for the
plan, so a second call does not show it either. It counts as a Python function that processes rows.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from pyspark import cloudpickle
from pyspark.sql import GroupedData, Observation, SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from falkirk.steps.static_analysis import clocks
from falkirk.steps.static_analysis.determinism import InBatch
from falkirk.steps.static_analysis.functions import ROWS_OF_PYTHON
from falkirk.steps.static_analysis.structure import IN_SQL, OF_ROWS, KnownLeaves, class_name, leaves_of, plan_tree

#: Methods whose results stay in Spark or are numbers of rows.
_RUN = ("localCheckpoint", "checkpoint", "crosstab", "transpose", "count", "isEmpty")
_TO_PYTHON = (
    "collect", "toPandas", "_to_pandas", "toArrow", "toLocalIterator", "first", "head", "take", "tail", "corr",
    "cov", "approxQuantile",
)  # fmt: skip
_FOREIGN = ("foreach", "foreachPartition", "toJSON")
#: Leaves of a plan whose rows the program itself contains.
_CONSTANT = {"LocalRelation", "OneRowRelation", "Range", "CTERelationRef"}
#: The names in `KnownLeaves` for rows that a function has made or run.
_MADE, _RAN = "made", "run"


class Watched:
    """Records the actions of a function while it is called.

    Attributes: found: the plans that it has run, and the rows that it has made. leaves: the known leaves of its plans.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.found: list[InBatch] = []
        self.leaves = KnownLeaves.of(given)

    def _ran(self, rows: Any, result: Any) -> Any:
        self.found.append(InBatch.of(rows, self.leaves))
        if isinstance(result, DataFrame):
            self.leaves.add(_RAN, result)
        return result

    def _brought(self, rows: Any, result: Any) -> Any:
        self.found.append(InBatch.of(rows, self.leaves))
        if _reads(plan_tree(rows)):
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
                    self.leaves.add_leaf(IN_SQL, rows, leaf)  # VALUES, which Spark evaluates when it parses the text
            return rows

        return {"createDataFrame": create, "sql": sql}

    def groups(self) -> dict[str, Any]:
        """Return the methods of grouped rows that are watched."""
        real = GroupedData.pivot

        def pivot(grouped: GroupedData, column: str, values: Any = None) -> GroupedData:
            if values is None:  # Spark reads the values from the rows, but there are none while the function is planned
                self.found.append(_foreign())
            return real(grouped, column, values)

        return {"pivot": pivot}

    def observation(self) -> Any:
        """Return the property of an observation that is watched."""
        return property(_noting(vars(Observation)["get"].fget, self._escaped))


@contextmanager
def watched(given: Mapping[str, Any]) -> Iterator[Watched]:
    """Record the plans that a function runs, and the rows that it makes, while it is called. Args: given: its input."""
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
    """Return whether a plan, as Spark's JSON, reads any rows that the program itself does not contain."""
    if isinstance(node, dict):
        is_leaf = node.get("num-children") == 0 and ".expressions." not in node["class"]
        return (is_leaf and class_name(node) not in _CONSTANT) or any(map(_reads, node.values()))
    return isinstance(node, list) and any(map(_reads, node))


def _foreign() -> InBatch:
    names = frozenset({ROWS_OF_PYTHON})
    return InBatch(plan=None, operations=names, undetermined=names, assertions=())


def _made(data: Any) -> InBatch:
    """Return the plan of rows that a function has made: a digest of their values, if these can be read twice."""
    try:
        plan = hashlib.sha256(cloudpickle.dumps(data)).hexdigest()  # type: ignore[no-untyped-call]
    except Exception:  # an RDD or a generator, whose rows are not known yet
        return _foreign()
    return InBatch(plan=plan, operations=frozenset(), undetermined=frozenset(), assertions=())
