"""Latest in micro-batches: the newest row of a key in another stream, from this and former epochs.

A record meets the newest row of its key among those of its epoch and of all epochs before. The ends of epochs are
recorded, so a replay finds the same.
"""

from dataclasses import replace
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from falkirk.declare.nodes import Step
from falkirk.steps.batch.call import current
from falkirk.steps.batch.python import KIND
from falkirk.steps.dataframes.names import BAD, STAMP, quoted
from falkirk.steps.live.stamped import Frame, good

_IS_NEW, _NEWEST, _ROW, _STATE = "__falkirk_new", "__falkirk_newest", "__falkirk_row", "state"


def latest_rows(frame: Frame, step: Step) -> Frame:
    """Return the records with the newest rows of their keys. Args: frame: of `steps.live.latest.beside`."""
    keys, name = step.arguments
    call, data = current("lookup"), frame.data.drop(BAD)
    slot, is_row = call.slot("lookup"), F.col(quoted(name)).isNotNull()
    named = [f"__falkirk_k{number}" for number in range(len(keys))]
    of_keys = [F.col(quoted(key)).alias(alias) for key, alias in zip(keys, named, strict=True)]
    new = data.where(is_row).select(*of_keys, F.struct(F.col(quoted(name)).alias(_ROW), F.col(STAMP)).alias(_NEWEST))
    schema = StructType([StructField(field.name, field.dataType) for field in new.schema.fields])
    old = call.before(slot, schema)
    every = old.withColumn(_IS_NEW, F.lit(False)).unionByName(new.withColumn(_IS_NEW, F.lit(True)))
    order = F.struct(_IS_NEW, F.col(f"{_NEWEST}.{STAMP}"))
    grouped = every.groupBy(*named).agg(F.max_by(_NEWEST, order).alias(_NEWEST))
    once = grouped.select(F.lit(_STATE).alias(KIND), F.struct(*grouped.columns).alias(_STATE))
    kinds: Any = {_STATE: once.schema[_STATE].dataType}
    newest = call.split(once, kinds, determined_by=data)[_STATE]  # no two rows have one stamp
    call.keep(slot, newest)
    records = data.where(~is_row)
    met = records.join(newest, [F.col(quoted(key)) == F.col(n) for key, n in zip(keys, named, strict=True)], "left")
    columns = [F.col(f"{_NEWEST}.{_ROW}").alias(name) if c == name else F.col(quoted(c)) for c in frame.columns]
    made = good(met.select(*columns, *[F.col(c) for c in frame.carried if c != BAD]), frame.depth)
    return replace(made, several=frame.several)
