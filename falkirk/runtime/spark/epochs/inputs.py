"""Inputs: the DataFrames with exactly the rows of one epoch of a batch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from falkirk.declare.cut import SLICE, ByTime
from falkirk.declare.endpoints import Files
from falkirk.errors.conditions.platform import DATA_AWAY, DATA_UNUSABLE
from falkirk.errors.conditions.spark import EPOCHS_NOT_KEPT
from falkirk.errors.spark import SPARK_ERRORS
from falkirk.kafka_client.void import Void
from falkirk.plan.batch import STAMP_TYPE, Batch, BatchInput, stamp_column
from falkirk.platform.data import DataPath
from falkirk.runtime.spark.causes import objects_away, objects_unusable
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs.files import FileLog, RefusedFile
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.epochs.observed import Observed, job
from falkirk.runtime.spark.rows import RAW_BYTES_MAX, without
from falkirk.steps.batch.in_epoch import empty
from falkirk.steps.dataframes.names import BAD, STAMP
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.stamped import Frame
from falkirk.steps.sources.files import file_rows
from falkirk.steps.sources.topics import Parsing, dead_letter, parse_records
from falkirk.theory.ids import EpochNumber, LogId, Offset

#: A row's place in its epoch: unique. It decides the order in which an epoch's rows are released.
ROW = "__falkirk_row"
#: The bits of a dead letter's place below the number of its origin.
PLACE_BITS = 55
#: The number of the epoch in the path of a file with its results.
_EPOCH_OF_FILE = r"/(\d+)-[0-9a-f]+/[^/]*$"


@dataclass(frozen=True, kw_only=True)
class Bad:
    """The records of a topic. Those that do not fit are marked.

    Args: counted: observes how many records were `read`, how many of them are `bad`, and which job read them
        (`observed.job`). length: how many offsets the epoch covers. That is the number of its records, unless some
        offsets are markers of transactions; None for files.
    """

    topic: str
    records: DataFrame
    counted: Observed
    length: int | None


class FitColumns:
    """Columns that tell the records that fit from those that do not. A batch keeps them for all epochs.

    Attributes: is_good: the record fits. counts: observed while records are read, see `Bad`.
    """

    def __init__(self) -> None:
        self.is_good = frames.is_good()
        self.counts = F.count("*").alias("read"), F.count_if(F.col(BAD).isNotNull()).alias("bad"), job()
        self._kept: dict[LogId, list[Column]] = {}

    def kept(self, log: LogId, names: Sequence[str]) -> list[Column]:
        """Return the columns of an input with these names, which do not change from epoch to epoch."""
        if log not in self._kept:
            self._kept[log] = [F.col(f"`{name}`") for name in names]
        return self._kept[log]

    def good(self, given: BatchInput, data: DataFrame, columns: Sequence[str], row: Column) -> DataFrame:
        """Return the rows of an input that fit, with their stamps if these are requested.

        Args: columns: of the input. row: the place of each row within its offset.
        """
        stamp = (
            [stamp_column(given, F.col(f"{STAMP}.partition"), F.col(f"{STAMP}.offset"), row)] if given.stamped else []
        )
        return data.where(self.is_good).select(*self.kept(given.log, columns), *stamp)


class Inputs:
    """The inputs of one epoch, as DataFrames by parameter.

    Args: logs: the logs of all batches, by name. files: of all folder sources, by log. parsings: of topics, by log.
        fit: kept by the batch. few: the topics give so few records that one task should process all, without a shuffle.
        refused: files that the epoch leaves out, by log and number.
    """

    def __init__(
        self, session: SparkSession, context: Context, batch: Batch, epoch: Epoch,
        logs: Mapping[LogId, EpochLog], files: Mapping[LogId, FileLog], parsings: Mapping[LogId, Parsing],
        fit: FitColumns, *, few: bool = False, refused: Mapping[LogId, Mapping[Offset, RefusedFile]] | None = None,
    ) -> None:  # fmt: skip
        self._session, self._context, self._epoch, self._logs, self._files = session, context, epoch, logs, files
        self.refused = refused or {}
        self._cut, self._parsings, self._fit, self._few, self._name = batch.cut, parsings, fit, few, batch.name
        self.bad: list[Bad] = []
        self.frames = {i.name: self._frame(i) for i in batch.inputs}
        self._held: list[DataFrame] = []

    def take_in(self) -> None:
        """Read all inputs now into Spark's storage."""
        self._held = [frame.persist() for frame in self.frames.values()]
        for frame in self._held:
            frame.count()

    def release(self) -> None:
        """Delete the inputs from Spark's storage."""
        for frame in self._held:
            frame.unpersist()

    def _frame(self, given: BatchInput) -> DataFrame:
        if given.topic is not None:
            return self._topic(given)
        if given.folder is not None:
            return self._rows_of_files(given, given.folder)
        log = self._logs[given.log]
        if given.view:
            number = self._epoch.views[given.log]
            epochs = log.complete(number, EpochNumber(number + 1))
        else:
            first, last = self._epoch.first.get(given.log, {}).get(0, 0), self._epoch.last[given.log][0]
            epochs = log.complete(EpochNumber(first), EpochNumber(last))
            if given.sliced:
                return self._slices(given, log, epochs)
        if any(e.direct for e in epochs):
            raise EPOCHS_NOT_KEPT.error(where=log.folder, upstream=given.name, name=self._name)
        folders = [log.results(e) for e in epochs]
        return self._stamped(given, folders) if given.stamped else read_folders(self._session, folders, given.schema)

    def _slices(self, given: BatchInput, log: EpochLog, epochs: tuple[Epoch, ...]) -> DataFrame:
        end = self._epoch.slice
        assert end is not None, "an epoch that reads slices has one"
        assert isinstance(self._cut, ByTime), "epochs that read slices are cut by event time"
        wanted = range(end - self._cut.over + 1, end + 1)
        whole = {e.number: log.results(e) for e in epochs}
        folders = [whole[e.number] / f"{SLICE}={s}" for e in epochs for s in wanted if s in log.slices(e)]
        columns = given.schema.fields if given.stamped is None else given.schema.fields[:-1]
        rows = read_folders(self._session, folders, StructType([*columns, StructField(STAMP, STAMP_TYPE)]))
        stamp = [] if given.stamped is None else [F.col(STAMP).alias(given.stamped)]
        return rows.select(*[F.col(f"`{f.name}`") for f in columns], *stamp)

    def _stamped(self, given: BatchInput, folders: list[DataPath]) -> DataFrame:
        if not folders:
            return empty(self._session, given.schema)
        columns = given.schema.fields[:-1]  # the last one is the stamp
        rows = read_folders(self._session, folders, StructType([*columns, StructField(ROW, LongType())]))
        epoch = F.regexp_extract(F.col("_metadata.file_path"), _EPOCH_OF_FILE, 1).cast("long")
        stamp = stamp_column(given, F.lit(0), epoch, F.col(ROW))
        return rows.select(*[F.col(f"`{f.name}`") for f in columns], stamp)

    def _topic(self, given: BatchInput) -> DataFrame:
        assert given.topic is not None
        first, last = self._epoch.first[given.log], self._epoch.last[given.log]
        # Small epochs of a batch have one program, whichever topics have records. A job that other epochs share may
        # have sent a part of this one (repeated.py), and only the same program may continue it (direct.py).
        if first == last and not self._few:
            return empty(self._session, given.schema)
        void = self._context.void(given.log).within(first, last) if given.reads_hop else Void()
        records = self._context.records(
            self._session,
            given.log,
            first,
            last,
            reader=self._name,
            headers=bool(void.fences) or given.topic.reads_headers,
        )
        records = without(records, void)
        frame = parse_records(records.coalesce(1) if self._few else records, self._parsings[given.log])
        length = sum(offset - first.get(partition, 0) for partition, offset in last.items())
        return self._good(given, frame, F.lit(0), may_fail=not given.reads_hop, length=length)

    def _rows_of_files(self, given: BatchInput, folder: Files) -> DataFrame:
        first, last = self._epoch.first[given.log][0], self._epoch.last[given.log][0]
        if first == last:
            return empty(self._session, given.schema)
        out = self.refused.get(given.log, ())
        paths = self._files[given.log].paths(first, last, without=out, reader=self._name)
        if not paths:
            return empty(self._session, given.schema)
        frame = file_rows(self._session, folder, paths)
        # Spark divides a file in the same way each time.
        return self._good(given, frame, F.monotonically_increasing_id(), may_fail=True, length=None)

    def _good(self, given: BatchInput, frame: Frame, row: Column, *, may_fail: bool, length: int | None) -> DataFrame:
        """Return the rows that fit, with their stamps if these are requested.

        Args: row: the place of each row within its offset. length: see `Bad`.
        """
        data = frame.data
        if may_fail:
            counted = Observed(data, self._fit.counts)
            data = counted.data
            self.bad.append(Bad(topic=given.log, records=frame.data, counted=counted, length=length))
        return self._fit.good(given, data, frame.columns, row)


def refuse_damaged(batch: Batch, epoch: Epoch, logs: Mapping[LogId, EpochLog]) -> None:
    """Check that the epochs that an epoch reads, and the state before it, are undamaged.

    If they are damaged, the epoch would fail at every attempt.

    Args: logs: the logs of all batches, by name.
    Raises: HomeError: `STATE_DAMAGED`.
    """
    for given in batch.inputs:
        if given.log not in logs:
            continue
        first: int = epoch.first.get(given.log, {}).get(0, 0)
        last: int = epoch.last.get(given.log, {}).get(0, 0)
        if given.view:
            first, last = epoch.views[given.log], epoch.views[given.log] + 1
        for read in logs[given.log].complete(EpochNumber(first), EpochNumber(last)):
            logs[given.log].results(read)
    own = logs[batch.log]
    saved = [e for e in own.epochs() if e.saved and e.state is not None and e.number < epoch.number]
    for newest in saved[-1:]:
        own.state(newest)


def dead_letters(region: str, bad: Bad) -> DataFrame:
    """Return the records that did not fit, as dead letters."""
    value = F.substring(F.col(f"{BAD}.value"), 1, RAW_BYTES_MAX).cast("string")
    told = dead_letter(F.col(f"{BAD}.reason"), region, bad.topic, value)
    return bad.records.where(~frames.is_good()).select(F.col(f"{BAD}.key").alias("key"), told.alias("value"))


def read_folders(session: SparkSession, folders: list[DataPath], schema: StructType) -> DataFrame:
    """Return the rows in the folders of epochs; no rows for no folders. Raises: as `files_found`."""
    paths = [path for folder in folders for path in folder.rows()]
    if not paths:
        return empty(session, schema)
    with files_found(folders[0]):
        return session.read.schema(schema).parquet(*paths)


@contextmanager
def files_found(folder: DataPath) -> Iterator[None]:
    """Report an object store that does not answer while Spark looks for the files to read, or reads them.

    Raises: StoreError: `DATA_AWAY`, `DATA_UNUSABLE`.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        if (reason := objects_unusable(error)) is not None:
            raise DATA_UNUSABLE.error(where=folder, reason=reason) from error
        if (reason := objects_away(error)) is None:
            raise
        raise DATA_AWAY.error(where=folder, reason=reason) from error
