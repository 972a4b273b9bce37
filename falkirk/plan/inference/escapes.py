"""Escapes: where rows leave Spark's plan while a batch's function describes what it does with them.

What is collected, checkpointed or made of Python's rows comes back as something of which the plan no longer says where
it is from: a lot that was drawn before a `localCheckpoint()` is a column like any other behind it. So what the function
does is watched while it is called for the plan. What is run there and then counts as known by its own plan; rows that
Python hands over count as what they are, and are compared with those of the next call.

What Python makes of rows that it was handed is not for Spark to see. While the function is called for the plan there
are none, so that a second call does not show it either: it counts as a Python function that rows go through.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from pyspark import cloudpickle
from pyspark.sql import Observation, SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from falkirk.plan.determinism import InBatch
from falkirk.plan.inference.functions import ROWS_OF_PYTHON
from falkirk.plan.inference.lineage import name_of

#: What comes of these stays with Spark, or is how many rows there are.
_RUN = ("localCheckpoint", "checkpoint", "crosstab", "transpose", "count", "isEmpty")
_TO_PYTHON = (
    "collect", "toPandas", "_to_pandas", "toArrow", "toLocalIterator", "first", "head", "take", "tail", "corr",
    "cov", "approxQuantile",
)  # fmt: skip
_FOREIGN = ("foreach", "foreachPartition", "toJSON")
#: Leaves of a plan that are written in the program itself.
_CONSTANT = {"LocalRelation", "OneRowRelation", "Range", "CTERelationRef"}


@contextmanager
def watched() -> Iterator[list[InBatch]]:
    """While a function is called, take note of what it runs, and of the rows that it makes."""
    found: list[InBatch] = []
    told = property(_noting(vars(Observation)["get"].fget, lambda _: found.append(_foreign())))
    with (
        mock.patch.multiple(DataFrame, **_of_frames(found)),
        mock.patch.multiple(SparkSession, **_of_session(found)),
        mock.patch.object(Observation, "get", told),
    ):
        yield found


def _of_frames(found: list[InBatch]) -> dict[str, Any]:
    known = vars(DataFrame)
    patched: dict[str, Any] = {name: _noting(known[name], lambda rows: found.append(InBatch.of(rows))) for name in _RUN}
    patched |= {name: _noting(known[name], lambda rows: found.extend(_brought(rows))) for name in _TO_PYTHON}
    patched |= {name: _noting(known[name], lambda _: found.append(_foreign())) for name in _FOREIGN}
    patched["rdd"] = property(_noting(known["rdd"].func, lambda _: found.append(_foreign())))
    return patched


def _of_session(found: list[InBatch]) -> dict[str, Any]:
    real = vars(SparkSession)["createDataFrame"]

    def made(session: SparkSession, data: Any, *arguments: Any, **options: Any) -> Any:
        found.append(_made(data))
        return real(session, data, *arguments, **options)

    return {"createDataFrame": made}


def _noting(real: Callable[..., Any], note: Callable[[Any], None]) -> Callable[..., Any]:
    def call(rows: Any, *arguments: Any, **options: Any) -> Any:
        note(rows)
        return real(rows, *arguments, **options)

    return call


def _brought(rows: Any) -> Iterator[InBatch]:
    """Yield what is known of rows that Python is handed, and of what it makes of them."""
    seen = InBatch.of(rows)
    yield seen
    if _reads(seen.plan):
        yield _foreign()


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
