"""Testing: runs an application in the memory of a test, without a broker, and checks a sink of your own.

    with fk.testing.run(app) as t:
        t.feed("orders", [{"id": "1", "items": ["tea"]}, fk.testing.ABORT])
        assert t.read("sales") == [{"item": "tea", "sold": 1}]

It needs Spark. The fixture `kit` for pytest is here, too: `from falkirk.testing import kit` in a `conftest.py`. It is
no plugin, so the tests of other projects do not import Falkirk.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from falkirk.declare.accepted import as_endpoint
from falkirk.declare.application import Application
from falkirk.declare.endpoints import Kafka
from falkirk.declare.policy import Delivery
from falkirk.declare.sink import OwnSink, Sink
from falkirk.errors.conditions.testing import SINK_INVALID_TARGET
from falkirk.errors.location import caller
from falkirk.reading import WritableStream, application_of
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.sinks.own import OwnTarget
from falkirk.theory.ids import EpochNumber
from falkirk.user_tools.testkit.kit import ABORT, BEGINNING, Kit
from falkirk.user_tools.testkit.values import KafkaRecord

__all__ = ["ABORT", "KafkaRecord", "Kit", "check_sink", "crash_between_writes", "run"]

#: The name of the sink of a stream that begins with `fk.read`.
RESULT = "result"
#: The number of parts in which an epoch is read. In an epoch that is interrupted, the last part fails.
PARTS = 4


def run(
    app: Application | WritableStream, *, at: datetime = BEGINNING, own_sinks: bool = False, topics: Sequence[str] = ()
) -> Kit:
    """Run an application, or a stream that begins with `fk.read`, in the memory of this test.

    The planner, the recovery protocol and the user's steps are those of a real run. There is no broker, and no sink is
    written: `Kit.read` returns what a reader of it would see. Topics have one partition.

    Args:
        app: a stream's only sink has the name ``"result"``.
        at: the time at which the test begins. Only the test moves the clock.
        own_sinks: deliver to sinks of the user's own, so that crashes test them. Otherwise they are in memory, too.
        topics: the names of all topics that exist, for a source with a pattern. `Kit.create_topic` adds one.
    Raises: DefinitionError, GuaranteeError: as `falkirk plan`, and `APPLICATION_UNSUITABLE`: the kit can't run it.
    """
    return Kit(_application(app), at=at, own_sinks=own_sinks, topics=topics)


def crash_between_writes(
    app: Application | WritableStream, *, at_most: int | None = None, twice: bool = False, at: datetime = BEGINNING,
    own_sinks: bool = False, topics: Sequence[str] = (),
) -> Iterator[Kit]:  # fmt: skip
    """Yield runs of an application: one without a crash, then one for each of its writes, which crashes before it.

    The loop's body is the test. It feeds the same rows each time, and finds the same results. A write is a record, an
    epoch in a table, a checkpoint, or a decision in the store. After a crash the run starts again by itself.

    Args:
        at_most: the greatest number of writes before which it crashes, evenly spread.
        twice: after each run with a crash, more runs follow. Each also crashes before another write of the start after
            that crash.
        at, own_sinks, topics: as in `run`.
    """
    declared = _application(app)
    with Kit(declared, at=at, own_sinks=own_sinks, topics=topics) as kit:
        yield kit
        writes = kit.writes
    stride = 1 if at_most is None else max(1, -(-writes // at_most))
    for point in range(1 + stride // 2, writes + 1, stride):
        with Kit(declared, at=at, own_sinks=own_sinks, crash_before=point, topics=topics) as kit:
            yield kit
            again = kit.recovered if twice else range(0)
        for later in again:
            with Kit(
                declared, at=at, own_sinks=own_sinks, crash_before=point, and_before=later, topics=topics
            ) as kit:  # fmt: skip
                yield kit


def _application(app: Application | WritableStream) -> Application:
    if isinstance(app, Application):
        return app
    return application_of(app, Kafka(RESULT), delivery=Delivery.EXACTLY_ONCE, interval="10 seconds")


def __getattr__(name: str) -> Any:
    if name != "kit":
        raise AttributeError(f"module 'falkirk.testing' has no attribute {name!r}")
    import pytest  # which only tests have

    globals()[name] = pytest.fixture(_kit)
    return globals()[name]


def _kit() -> Iterator[Callable[..., Kit]]:
    """Yield a function that runs an application until the end of the test, as `run` does."""
    with ExitStack() as stack:
        yield lambda app, **options: stack.enter_context(run(app, **options))


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
    _cut_off(make(), EpochNumber(1), placed, len(local))
    expect(1, 1, "after a try of epoch 1 that failed")
    target().deliver(EpochNumber(1), placed)
    expect(2, 2, "after epoch 1")
    target().deliver(EpochNumber(3), placed)
    expect(3, 4, "after epoch 3, and without epoch 2, which was cancelled")
    target().deliver(EpochNumber(4), placed.limit(0))
    expect(3, 5, "after epoch 4, which has no rows")


def _cut_off(sink: Sink, epoch: EpochNumber, placed: DataFrame, count: int) -> None:
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
