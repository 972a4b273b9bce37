"""Inputs: the DataFrames with exactly what belongs to one epoch of a batch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from falkirk.endpoints import Files
from falkirk.epochs.files import FileLog
from falkirk.epochs.log import Epoch, EpochLog
from falkirk.plan import frames
from falkirk.plan.batch import PLACE, Input
from falkirk.plan.folders import rows_of
from falkirk.plan.frames import BAD, STAMP
from falkirk.regions.context import Context
from falkirk.regions.rows import RAW_BYTES_MAX, without

#: A row's place in its epoch: unique, and what decides the order in which an epoch's rows are released.
ROW = "__falkirk_row"


@dataclass(frozen=True, kw_only=True)
class Bad:
    """The records of a topic in which those that do not fit are marked; `counted` observes how many there are."""

    topic: str
    records: DataFrame
    counted: Observation


class Inputs:
    """What one epoch reads, as DataFrames by parameter.

    Args: logs: of all batches, by name. files: of all sources that have some, by log.
    """

    def __init__(
        self, session: SparkSession, context: Context, inputs: tuple[Input, ...], epoch: Epoch,
        logs: Mapping[str, EpochLog], files: Mapping[str, FileLog],
    ) -> None:  # fmt: skip
        self._session, self._context, self._epoch, self._logs, self._files = session, context, epoch, logs, files
        self.bad: list[Bad] = []
        self.frames = {i.name: self._frame(i) for i in inputs}

    def _frame(self, given: Input) -> DataFrame:
        if given.topic is not None:
            return self._topic(given)
        if given.folder is not None:
            return self._rows_of_files(given, given.folder)
        log = self._logs[given.log]
        if given.view:
            number = self._epoch.views[given.log]
            epochs = log.complete(number, number + 1)
        else:
            first, last = self._epoch.first.get(given.log, {}).get(0, 0), self._epoch.last[given.log][0]
            epochs = log.complete(first, last)
        return read_folders(self._session, [log.path(str(e.folder)) for e in epochs], given.schema)

    def _topic(self, given: Input) -> DataFrame:
        assert given.topic is not None
        first, last = self._epoch.first[given.log], self._epoch.last[given.log]
        if first == last:
            return empty(self._session, given.schema)
        records = (
            self._session.read.format("kafka")
            .options(**self._context.connection.spark_options())
            .option("subscribe", given.log)
            .option("startingOffsets", json.dumps({given.log: {str(p): first.get(p, 0) for p in last}}))
            .option("endingOffsets", json.dumps({given.log: {str(p): o for p, o in last.items()}}))
            .option("kafka.isolation.level", "read_committed")
            .option("failOnDataLoss", "true")
            .load()
        )
        if given.reads_hop:
            void = self._context.home.store.voided_ranges(given.log)
            mine = [(v.partition, v.first, v.last_exclusive) for v in void]
            records = without(records, [r for r in mine if r[2] > first.get(r[0], 0) and r[1] < last.get(r[0], 0)])
        frame = frames.parse(records, given.topic)
        data = frame.data
        if not given.reads_hop:
            counted = Observation()
            data = data.observe(counted, F.count_if(F.col(BAD).isNotNull()).alias("bad"))
            self.bad.append(Bad(topic=given.log, records=frame.data, counted=counted))
        place = [F.col(f"{STAMP}.offset").alias(PLACE)] if given.placed else []
        return data.where(frames.is_good()).select(*[F.col(f"`{c}`") for c in frame.columns], *place)

    def _rows_of_files(self, given: Input, folder: Files) -> DataFrame:
        first, last = self._epoch.first[given.log][0], self._epoch.last[given.log][0]
        if first == last:
            return empty(self._session, given.schema)
        frame, counted = rows_of(self._session, folder, self._files[given.log].paths(first, last)), Observation()
        data = frame.data.observe(counted, F.count_if(F.col(BAD).isNotNull()).alias("bad"))
        self.bad.append(Bad(topic=given.log, records=frame.data, counted=counted))
        return data.where(frames.is_good()).select(*[F.col(f"`{c}`") for c in frame.columns])


def dead_letters(region: str, bad: Bad) -> DataFrame:
    """Return what did not fit, as the dead letters tell it."""
    record = F.struct(
        F.col(f"{BAD}.reason").alias("reason"),
        F.lit(region).alias("region"),
        F.lit(bad.topic).alias("topic"),
        F.col(f"{STAMP}.partition").alias("partition"),
        F.col(f"{STAMP}.offset").alias("offset"),
        F.substring(F.col(f"{BAD}.value"), 1, RAW_BYTES_MAX).cast("string").alias("value"),
    )
    return bad.records.where(~frames.is_good()).select(
        F.col(f"{BAD}.key").alias("key"), F.to_json(record).alias("value")
    )


def read_folders(session: SparkSession, folders: list[Path], schema: StructType) -> DataFrame:
    """Return the rows of epochs' folders; of none, none."""
    if not folders:
        return empty(session, schema)
    return session.read.schema(schema).parquet(*map(str, folders))


def empty(session: SparkSession, schema: StructType) -> DataFrame:
    """Return no rows, in a way that makes no tasks either."""
    nothing = session.range(0, 0, 1, 1)
    return nothing.select(*[F.lit(None).cast(f.dataType).alias(f.name) for f in schema.fields])
