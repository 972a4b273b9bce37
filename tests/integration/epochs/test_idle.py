"""Idle partitions: who is idle at the end of an epoch, and which times partitions have then."""

import itertools
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from falkirk.declare.watermark import Watermark
from falkirk.plan.batch import STAMP_TYPE
from falkirk.platform.local_data import LocalData
from falkirk.steps.batch.call import LETTER_SCHEMA, EpochContext, calling
from falkirk.steps.batch.idle import held_up_by_none, held_up_by_other, partitions_seen, places
from falkirk.steps.batch.in_epoch import InEpoch
from falkirk.steps.batch.rehearsal import Rehearsal
from falkirk.steps.batch.watermarks import timed_rows
from falkirk.steps.dataframes.names import STAMP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IDLE_US = 60_000_000
#: By partition of the source "s".
Times = Mapping[int, int | None]


class _Call(Rehearsal):
    """An epoch that is decided at a second, after one that has seen partitions at other seconds."""

    def __init__(
        self,
        session: "SparkSession",
        at_s: int,
        seen_s: Times,
        partitions: int,
        others: Mapping[str, int] | None = None,
    ) -> None:
        decided_at = datetime.fromtimestamp(at_s, UTC)
        super().__init__(session, EpochContext(decided_at=decided_at, partitions={"s": partitions, **(others or {})}))
        self.seen = [("s", number, 1_000_000 * at_s) for number, at_s in seen_s.items() if at_s is not None]

    def before(self, slot: str, schema: object) -> "DataFrame":
        return self._session.createDataFrame(self.seen, "source STRING, partition INT, seen BIGINT")


def rows(spark: "SparkSession", partitions: set[int]) -> "DataFrame":
    found = spark.createDataFrame([("s", number) for number in partitions], "source STRING, partition INT")
    return found.select(F.struct("source", "partition").alias(STAMP))


def of_times(spark: "SparkSession", times: Times) -> "DataFrame":
    known = [("s", number, time) for number, time in times.items() if time is not None]
    return spark.createDataFrame(known, "source STRING, partition INT, time BIGINT")


def found(times: "DataFrame") -> dict[int, int]:
    return {row["partition"]: row["time"] for row in times.collect()}


@pytest.mark.parametrize(
    ("at_s", "seen_s", "new", "times", "due"),
    [
        (1000, {0: 990, 1: 941}, {0}, {0: 500, 1: 100}, {0: 500, 1: 100}),  # nobody is idle yet
        (1000, {0: 990, 1: 940}, {0}, {0: 500, 1: 100}, {0: 500, 1: 500}),
        (1000, {0: 990, 1: 940, 2: 990}, {0}, {0: 500, 1: 100, 2: 300}, {0: 500, 1: 300, 2: 300}),  # the least one
        (1000, {0: 990, 1: 10}, {0}, {0: 500, 1: 700}, {0: 500, 1: 700}),  # time never goes back
        (1000, {0: 990, 1: 10}, {0, 1}, {0: 500, 1: 100}, {0: 500, 1: 100}),  # it has records again
        (1000, {0: 10, 1: 10}, set(), {0: 500, 1: 100}, {0: 500, 1: 100}),  # the clock is not the time
        (1000, {}, {0}, {0: 500}, {0: 500}),  # the first epoch: nothing is known of partition 1
        (1000, {0: 990, 1: 10}, {0}, {0: 500}, {0: 500, 1: 500}),  # partition 1 has never had a record
        (1000, {0: 990, 1: 10, 2: 990}, {0}, {0: 500, 1: 100}, {0: 500, 1: 100}),  # and partition 2 may get older ones
        (1000, {0: 990, 1: 5000}, {0}, {0: 500, 1: 100}, {0: 500, 1: 100}),  # the clock was set back
    ],
)
def test_an_idle_partition_has_the_least_time_of_the_others(
    spark: "SparkSession", at_s: int, seen_s: Times, new: set[int], times: Times, due: Times
) -> None:
    call = _Call(spark, at_s, seen_s, max({*times, *due, *seen_s}, default=0) + 1)
    # The stream is a union of an input with itself.
    partitions = partitions_seen(call, rows(spark, new), ["s", "s"], IDLE_US)
    assert found(held_up_by_none(of_times(spark, times), partitions)) == due
    (kept,) = call.kept.values()
    seen = {row["partition"]: row["seen"] // 1_000_000 for row in kept.collect()}
    assert {number: seen[number] for number in new} == dict.fromkeys(new, at_s)
    assert max(seen.values()) <= at_s


@pytest.mark.parametrize(
    ("seen_s", "others", "due"),
    [
        ({0: 10, 1: 20}, {0: 700, 1: 800}, {0: 700, 1: 700}),
        ({0: 10, 1: 990}, {0: 700, 1: 800}, {0: 500, 1: 100}),  # one of them is not idle
        ({0: 10, 1: 20}, {0: 700}, {0: 500, 1: 100}),  # nothing is known of the other stream's second partition
        ({0: 10, 1: 20}, {0: 300, 1: 800}, {0: 500, 1: 300}),
    ],
)
def test_if_all_are_idle_the_other_stream_moves_them(
    spark: "SparkSession", seen_s: Times, others: Times, due: Times
) -> None:
    partitions = partitions_seen(_Call(spark, 1000, seen_s, 2), rows(spark, set()), ["s"], IDLE_US)
    times = of_times(spark, {0: 500, 1: 100})
    assert found(held_up_by_other(times, partitions, of_times(spark, others), 2)) == due


def test_the_topics_of_a_list_have_partitions_of_their_own(spark: "SparkSession") -> None:
    call = _Call(spark, 1000, {}, 3, {"s/a": 2, "s/b": 1, "sb": 5})
    assert places(call, ["s", "sb", "s"]) == [
        ("s/a", 0), ("s/a", 1), ("s/b", 0), *(("sb", number) for number in range(5)),
    ]  # fmt: skip


@pytest.mark.parametrize("idle_us", [None, IDLE_US])
def test_an_epoch_in_which_all_times_fit_has_no_dead_letters_to_write(
    spark: "SparkSession", tmp_path: Path, idle_us: int | None
) -> None:
    """Each DataFrame of dead letters is a job of Spark that writes a folder, also without any row."""
    watermark, folders = Watermark(column="at", delay_us=0, ahead_us=0, idle_us=idle_us), itertools.count()
    stamp = F.struct(F.lit("s"), F.lit(0), F.lit(7), F.lit(0)).cast(STAMP_TYPE).alias(STAMP)
    for at, count in (("2026-01-01 00:00:00", 0), (None, 1)):
        context = EpochContext(decided_at=datetime(2026, 1, 2, tzinfo=UTC), partitions={"s": 1})
        call = InEpoch(context, spark, {}, lambda: LocalData(tmp_path / str(next(folders))))
        with calling(call):
            timed_rows(spark.range(1).select(F.lit(at).cast("timestamp").alias("at"), stamp), watermark, "r", ["s"])
        assert [(each.columns, each.count()) for each in call.letters] == [(LETTER_SCHEMA.names, 1)] * count
