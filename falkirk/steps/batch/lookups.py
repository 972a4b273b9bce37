"""Lookups in micro-batches: the rows of a view that have a record's key, from the epoch that the micro-batch reads."""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from falkirk.steps.live.lookups import check_key, key_struct
from falkirk.steps.live.stamped import Frame, key_column

_KEY, _ROWS, _BY_KEY = "__falkirk_key", "__falkirk_rows", "__falkirk_by_key"


def look_up(
    frame: Frame, of: str, view: DataFrame, on: Mapping[str, Column | str], name: str, epoch: Column | None
) -> Frame:  # fmt: skip
    """Return rows with a column of the rows of a view that have their key, as the live step does.

    All rows of the view become one value, which each task gets.

    Args: of: the name of the view. on: the record's key, by the name of the view's column. name: of the new column.
        epoch: the number of the epoch, with the name of its column; None: it is not wanted.
    Raises: TypeError: the key does not fit the view.
    """
    keys = [key_column(key) for key in on.values()]
    is_several = check_key(of, view.schema, on, frame.data.select(*keys).schema)
    named = [F.col(f"`{column}`") for column in on]
    known = view.where(reduce(Column.__and__, [key.isNotNull() for key in named]))
    rows = known.groupBy(key_struct(named).alias(_KEY)).agg(
        F.collect_list(F.struct(*[F.col(f"`{column}`") for column in view.columns])).alias(_ROWS)
    )
    by_key = rows.agg(F.map_from_entries(F.collect_list(F.struct(_KEY, _ROWS))).alias(_BY_KEY))
    data = frame.data.crossJoin(F.broadcast(by_key))
    none = F.array().cast(ArrayType(StructType(view.schema.fields)))
    if is_several:
        each = F.transform(keys[0], lambda key: F.coalesce(F.col(_BY_KEY)[key_struct([key])], none))
        answer = F.coalesce(F.flatten(each), none)
    else:
        answer = F.coalesce(F.col(_BY_KEY)[key_struct(keys)], none)
    data = data.withColumn(name, answer).drop(_BY_KEY)
    return replace(frame, data=data if epoch is None else data.select("*", epoch))
