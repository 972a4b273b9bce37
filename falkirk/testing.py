"""Testing: checks that a sink of your own keeps the contract of `fk.Sink`, for your own tests. It needs Spark."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from falkirk.declare.endpoints import as_endpoint
from falkirk.declare.sink import OwnSink, Sink
from falkirk.errors.conditions.testing import SINK_INVALID_TARGET
from falkirk.errors.location import caller
from falkirk.runtime.epochs.inputs import ROW
from falkirk.runtime.sinks.own import OwnTarget
from falkirk.theory.ids import EpochNumber

#: An epoch is read in so many parts, and the last one fails in an epoch that is cut off.
PARTS = 4


def check_sink(make: Callable[[], Sink], count: Callable[[], int], rows: DataFrame) -> None:
    """Assert that a sink keeps its contract: it has each epoch once, also after a try that fails.

    The check writes to the sink. It does not know where your code could be killed: do that in tests of your own.

    Args:
        make: returns a new sink for an empty place; the same place at each call, as after a restart.
        count: returns how many rows a reader finds there.
        rows: an epoch, of at least 4 rows.
    Raises: AssertionError: the sink breaks the contract. SparkError: a call failed, or returned a wrong number.
    """
    where = caller()
    local = rows.collect()
    assert len(local) >= PARTS, f"an epoch for this check has at least {PARTS} rows"
    schema = StructType([*rows.schema.fields, StructField(ROW, LongType())])
    placed = rows.sparkSession.createDataFrame([(*row, place) for place, row in enumerate(local)], schema)

    def target() -> OwnTarget:
        declared = as_endpoint(make(), where)
        if not isinstance(declared, OwnSink):
            raise SINK_INVALID_TARGET.error(where=where)
        return OwnTarget(declared, "the checked sink")

    def expect(epochs: int, upto: int, when: str) -> None:
        found, has = count(), target().delivered()
        assert has == upto, f"{when}, delivered() of a new object returns {has} instead of {upto}"
        assert found == epochs * len(local), f"{when}, {found} rows are there instead of {epochs * len(local)}"

    expect(0, 0, "at first")
    for _ in range(2):
        target().deliver(EpochNumber(0), placed)
        expect(1, 1, "after epoch 0")
    _cut_off(make(), 1, placed, len(local))
    expect(1, 1, "after a try of epoch 1 that failed")
    target().deliver(EpochNumber(1), placed)
    expect(2, 2, "after epoch 1")
    target().deliver(EpochNumber(3), placed)
    expect(3, 4, "after epoch 3, and without epoch 2, which was cancelled")
    target().deliver(EpochNumber(4), placed.limit(0))
    expect(3, 5, "after epoch 4, which has no rows")


def _cut_off(sink: Sink, epoch: int, placed: DataFrame, count: int) -> None:
    """Deliver an epoch whose last row can't be read, so that a part of it may be written."""
    ordered = placed.repartitionByRange(PARTS, ROW).sortWithinPartitions(ROW)
    first, kind = placed.columns[0], placed.schema[0].dataType
    cut = F.raise_error(F.lit("the check cuts this epoch off")).cast(kind)
    failing = ordered.withColumn(first, F.when(F.col(ROW) == count - 1, cut).otherwise(F.col(f"`{first}`"))).drop(ROW)
    try:
        sink.deliver(epoch, failing)
    except Exception:
        return
    raise AssertionError("deliver() succeeds although rows can't be read")
