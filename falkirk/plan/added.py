"""Batches that the planner adds: one for the view of a live processor, and one that sorts rows by event time."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from falkirk.declare.cut import ByClock, ByTime, OnArrival
from falkirk.declare.parts import DeclaredProcessor
from falkirk.declare.policy import Eager
from falkirk.errors import DefinitionError
from falkirk.plan.batch import BatchInput
from falkirk.steps.batch.times import sort
from falkirk.steps.dataframes.names import STAMP

#: The time between two updates of a live processor's view.
VIEW_EVERY_S = 1.0


def view_of(processor: DeclaredProcessor, keys: tuple[str, ...], schema: StructType) -> DeclaredProcessor:
    """Return the batch that keeps the newest record of each key of a live processor, for readers of its view.

    A key's records are in one partition of the hop, so the greatest offset is the newest. No two records of a key have
    the same offset, so the result is the same on a replay.
    """
    columns = [field.name for field in schema.fields]

    def newest(changes: DataFrame, view: DataFrame) -> DataFrame:
        record = F.struct(*[F.col(f"`{c}`") for c in columns])
        last = changes.groupBy(*[F.col(f"`{k}`") for k in keys]).agg(
            F.max_by(record, F.col(f"{STAMP}.offset")).alias("record")
        )
        changed = last.select("record.*")
        joined = [view[f"`{k}`"].eqNullSafe(changed[f"`{k}`"]) for k in keys]
        return view.join(changed, joined, "left_anti").select(*columns).unionByName(changed)

    name = f"{processor.name}-view"
    return DeclaredProcessor(
        name=name,
        body=newest,
        reads=(processor.name, name),
        policy=Eager(),
        where=processor.where,
        cut=ByClock(every_s=VIEW_EVERY_S),
        state=", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in schema.fields),
        newest_of=processor.name,
    )


def sorter_of(name: str, reader: DeclaredProcessor, given: BatchInput, by: ByTime) -> DeclaredProcessor:
    """Return the batch that sorts the input of another batch by event time.

    Raises: DefinitionError: `COLUMN_MISSING`; `CUT_INVALID`: the column is not a TIMESTAMP.
    """
    found = next((f for f in given.schema.fields if f.name == by.column), None)
    if found is None or not isinstance(found.dataType, TimestampType):
        raise DefinitionError(
            "COLUMN_MISSING" if found is None else "CUT_INVALID",
            f"{reader.name!r} has by={by.column!r}, the column with the event time of its rows, and {given.name!r} "
            + ("has no such column." if found is None else f"has the type {found.dataType.simpleString()} there."),
            where=reader.where,
            hint=f"Name a column of the type TIMESTAMP. Columns: {', '.join(given.schema.names)}.",
            column=by.column,
            columns=tuple(given.schema.names),
        )

    def sorted_(rows: DataFrame) -> DataFrame:
        return sort(rows, by, name, given.log)

    return DeclaredProcessor(
        name=name, body=sorted_, reads=(given.name,), policy=Eager(), where=reader.where, cut=OnArrival()
    )
