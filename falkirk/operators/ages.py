"""Ages: the states of `stateful` that expire by event time, in micro-batches (StateExpiry.java has the same rule)."""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from falkirk.frames.names import AGE

#: The type of `AGE`.
AGES = StructType([
    StructField("time", LongType()), StructField("source", StringType()), StructField("partition", IntegerType()),
    StructField("watermark", LongType()),
])  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """When states expire.

    Args: after_us: how far the watermark must be past the newest record. watermarks: of all partitions, in
        ``__watermark``, at the end of the epoch.
    """

    after_us: int
    watermarks: DataFrame

    def unexpired(self, states: DataFrame) -> DataFrame:
        """Return the states that have not expired at the end of the epoch. Args: states: with `AGE`."""
        now, columns = F.broadcast(self.watermarks), list(states.columns)
        same = (F.col(f"{AGE}.source") == now["source"]) & (F.col(f"{AGE}.partition") == now["partition"])
        kept = F.col(f"{AGE}.time") + F.lit(self.after_us) > F.col("__watermark")
        return states.join(now, same).where(kept).select(*[states[f"`{name}`"] for name in columns])
