"""Spark state: reads the state of a live aggregation by Spark's state data source, in a Spark of its own."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from falkirk.declare.application import Application
from falkirk.errors.conditions.spark import HOME_VERSION_STATE
from falkirk.runtime.spark.rows import JSON_OPTIONS
from falkirk.spark_setup import spark as local_spark
from falkirk.theory.ids import BatchId
from falkirk.user_tools.commands.kept_state import StateRows

#: Spark's name of a grouping expression that is no column.
_EXPRESSION = "_groupingexpression"
#: The last buffers of each state are Falkirk's: the stamp and values of the newest record, whether there is one, the
#: least and the greatest partition, and the greatest offset.
_OURS = ("__newest", "__is_set", "__least", "__most", "__offset")
#: Spark's name of the second one. States of earlier versions have none.
_IS_SET = "valueSet"
_LANE, _STAMP_FIELDS = "__lane", 2


@contextmanager
def own_spark(app: Application) -> Iterator[Callable[[], SparkSession]]:
    """Yield a function that returns a Spark of the command's own, which starts at the first call and ends with the
    context."""
    started = list[SparkSession]()

    def session() -> SparkSession:
        if not started:
            started.append(local_spark.spark_session(
                app.name, master="local[2]", state_partitions=app.state_partitions, data=app.data, brief=True,
                shows_log=False,
            ))  # fmt: skip
        return started[0]

    try:
        yield session
    finally:
        for each in started:
            each.stop()


def read_aggregates(session: SparkSession, folder: Path, number: BatchId, key: Sequence[str], limit: int) -> StateRows:
    """Return what a `StateReader` does.

    Raises: SPARK_ERRORS: the checkpoint was deleted meanwhile, or is damaged. HomeError: `HOME_VERSION`.
    """
    found = session.read.format("statestore").option("batchId", number).load(str(folder))
    key_type, value_type = found.schema["key"].dataType, found.schema["value"].dataType
    assert isinstance(key_type, StructType)
    assert isinstance(value_type, StructType)
    if _IS_SET not in value_type.names[-len(_OURS) :]:
        raise HOME_VERSION_STATE.error(where=folder, kind="region", name=folder.name)
    keys = [name.replace(_EXPRESSION, "key") for name in key_type.names[:-1]]
    names = _numbered([*keys, *value_type.names[: -len(_OURS)]])
    # By place: buffers of several sums have one name.
    data = found.select("key.*", "value.*").toDF(*names[: len(keys)], _LANE, *names[len(keys) :], *_OURS)
    data = data.where(F.col(_LANE) == -1)  # the others are lanes of records that did not fit
    for name, text in zip(names[: len(keys)], key, strict=False):
        data = data.where(F.col(f"`{name}`").cast("string") == text)
    newest = data.schema[_OURS[0]].dataType
    assert isinstance(newest, StructType)
    latest = [F.col(f"{_OURS[0]}.{name}").alias(name) for name in newest.names[_STAMP_FIELDS:]]
    last = F.col(f"{_OURS[0]}.{newest.names[0]}").alias("last input")
    shown = data.select(*[F.col(f"`{name}`") for name in names], *latest, last)
    rows = shown.select(F.to_json(F.struct(*[F.col(f"`{c}`") for c in shown.columns]), JSON_OPTIONS).alias("row"))
    rows = rows.persist()  # the checkpoint is read once
    try:
        count, first = rows.count(), rows.orderBy("row").limit(limit).collect()
    finally:
        rows.unpersist()
    return tuple(shown.columns), len(keys), count, tuple(json.loads(each["row"]) for each in first)


def _numbered(names: Sequence[str]) -> list[str]:
    """Return names, with a number at those that are there again."""
    seen, found = Counter[str](), list[str]()
    for name in names:
        seen[name.casefold()] += 1
        found.append(name if seen[name.casefold()] == 1 else f"{name}_{seen[name.casefold()]}")
    return found
