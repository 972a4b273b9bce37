"""Ages: the states of `stateful` that expire or have timers by event time, in micro-batches.

StateTimes.java has the same rule: a row comes after all that is due by the watermark at its place. An epoch ends with
all that is due by the watermark there. So each timer fires between the same two rows of its key as in a live region.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from falkirk.steps.dataframes.names import AGE, TIMER

#: The type of `AGE`.
AGES = StructType([
    StructField("time", LongType()), StructField("source", StringType()), StructField("partition", IntegerType()),
    StructField("watermark", LongType()),
])  # fmt: skip
#: The watermark at the end of the epoch, in the partition of a row or a state.
END = "__falkirk_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """When states expire, and who is called when their timers fire.

    Args: after_us: how far the watermark must be past the newest record; None: states do not expire. on_timer: the
        user's function; None: there are no timers. watermarks: of all partitions, in `END`, at the end of the epoch.
    """

    after_us: int | None
    on_timer: Callable[..., Any] | None
    watermarks: DataFrame

    @property
    def fields(self) -> list[StructField]:
        """The columns that a state has besides those of the user."""
        return [StructField(AGE, AGES), *([] if self.on_timer is None else [StructField(TIMER, LongType())])]

    def with_end(self, rows: DataFrame) -> DataFrame:
        """Return rows or states, which have `AGE`, with `END`."""
        now = F.broadcast(self.watermarks.select(*[F.col(c).alias(f"__of_{c}") for c in ("source", "partition")], END))
        same = (F.col(f"{AGE}.source") == F.col("__of_source")) & (F.col(f"{AGE}.partition") == F.col("__of_partition"))
        return rows.join(now, same).drop("__of_source", "__of_partition")

    def firing(self, states: DataFrame, columns: Sequence[Column]) -> DataFrame:
        """Return columns of the states whose timers fire in this epoch even if their keys have no rows."""
        return self.with_end(states).where(F.col(TIMER) <= F.col(END)).select(*columns)

    def unexpired(self, states: DataFrame) -> DataFrame:
        """Return the states that have not expired at the end of the epoch."""
        if self.after_us is None:
            return states
        kept = F.col(f"{AGE}.time") + F.lit(self.after_us) > F.col(END)
        if self.on_timer is not None:
            kept = kept | F.col(TIMER).isNotNull()
        return self.with_end(states).where(kept).drop(END)
