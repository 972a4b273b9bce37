"""A table of Delta Lake or Apache Iceberg as a target. One commit of the table adds an epoch and its number.

Spark writes the rows of an epoch as Parquet files into the folder of an attempt, in the table's location. No reader
sees them there, because a table consists of the files that its commits name. Then one commit, without Spark, adds the
files together with the number of the epoch. So a crash leaves the epoch out of the table, or all of it in the table.

The attempts of an epoch differ in the names of their folders. Only a commit decides which attempt counts. Two commits
of the same epoch conflict, also if two processes make them. After a commit no other attempt of this epoch can succeed,
so only then are the folders of the others deleted.

Rows that no partition can have become dead letters. A date outside the years 1 to 9999 would make all of a Delta table
unreadable for some programs.
"""

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import pyarrow.parquet as pq
from py4j.protocol import Py4JNetworkError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StringType, StructType

from falkirk.declare.lake import Delta, Iceberg
from falkirk.errors import FalkirkError
from falkirk.errors.conditions.lake import TABLE_OF_ANOTHER, TABLE_UNFIT
from falkirk.errors.conditions.spark import RELEASE_FAILED_TARGET
from falkirk.errors.redaction import redact_urls
from falkirk.errors.spark import first_line
from falkirk.platform import private
from falkirk.platform.disk import is_full
from falkirk.platform.durable import sync
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.epochs.observed import Observed
from falkirk.runtime.spark.rows import NOT_WRITTEN
from falkirk.runtime.spark.sinks.asking import Asking
from falkirk.runtime.spark.sinks.target import outside_years, row_letters, sorted_by_place
from falkirk.theory.ids import EpochNumber

#: Other writers may commit to the table while an epoch is committed. So often it is tried again at once.
COMMITS_MAX = 5
#: The folders of so many epochs are in one folder, because a folder with very many names is slow.
_EPOCHS_PER_FOLDER = 1_000
#: Spark's setting of the type of times in Parquet files. Its default is a type that neither format of tables has.
_TIMES, _MICROSECONDS = "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"
#: The beginning of the names of columns that are only in the names of folders.
_HIDDEN = "__falkirk_partition_"
_NULL, _VALUE, _DIGEST = "n", "v", "h"
#: A longer value is in the name as a digest, and is read from the file: a name has at most 255 bytes.
_NAMED_BYTES_MAX = 100
_NONE = EpochNumber(0)


@dataclass(frozen=True, kw_only=True)
class SinkProgress:
    """How far a table is for one sink.

    Args: below: the epoch, exclusive, up to which its rows are in the table. ever: the same before somebody restored
        an older version of the table; earlier versions still have the files.
    """

    below: EpochNumber = _NONE
    ever: EpochNumber = _NONE


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file of an epoch. Args: name: in the table's folder for data. partition: its values as text, by column."""

    name: str
    rows: int
    size_bytes: int
    modified_ms: int
    partition: Mapping[str, str | None]


class CommitConflict(Exception):
    """Another commit came first, so this one was not made."""


class TableOfAnother(Exception):
    """Another home writes the table."""


class TableUnfit(Exception):
    """The table does not take the rows, for the given reason."""


class EpochsMissing(Exception):
    """The table has lost epochs since it was last asked: somebody has restored, replaced or deleted it."""


class OpenedTable(Protocol):
    """A version of a table. Attributes: progress: of the sink. data: the folder for data files."""

    progress: SinkProgress
    data: Path

    def require_fit(self, schema: StructType) -> None:
        """Check that rows can be appended. Raises: TableUnfit."""

    def commit(self, epoch: EpochNumber, files: Sequence[DataFile], ever: EpochNumber) -> None:
        """Add an epoch if no other writer has committed one of this sink since the table was opened.

        Raises: CommitConflict. TableUnfit.
        """


class LakeTable(Protocol):
    """A table that may not exist yet.

    Attributes: partition_bytes_max: the size of the longest text that a partition can have; None: there is no limit.
    """

    partition_bytes_max: int | None

    def open(self) -> OpenedTable | None:
        """Return its newest version; None: it does not exist. Raises: TableOfAnother. TableUnfit."""

    def create(self, schema: StructType) -> OpenedTable:
        """Create it, and return it. Raises: CommitConflict: it exists already."""


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    epoch: EpochNumber
    folder: Path
    files: tuple[DataFile, ...]
    #: Whether rows of the epoch are in no file, because no partition can have them.
    lacks_rows: bool

    def is_in(self, data: Path) -> bool:
        """Return whether its files are in a folder for data. Nobody but it names them, so a clean-up deletes them."""
        return self.folder.is_relative_to(data) and all((data / file.name).exists() for file in self.files)


class LakeTarget:
    """A table of a lake.

    Args: to: its declaration. table: returns a new object for it. name: of the sink. identity: names the home and the
        sink. confirm: raises an error if this process does not own the home any more.
    """

    def __init__(
        self, to: Delta | Iceberg, table: Callable[[], LakeTable], name: str, identity: str,
        confirm: Callable[[], None],
    ) -> None:  # fmt: skip
        self._confirm = confirm
        self._address, self._columns = to.address, to.partition_columns
        #: One for the thread that asks, because the version from which the other one commits must not change meanwhile.
        self._table, self._asked = table(), table()
        self._own_folder = f"falkirk-{sha256(identity.encode()).hexdigest()[:8]}"
        self._asking = Asking(name, "which epochs it has", self._progress)
        #: The epoch up to which the caller knows that the table has the rows. A later epoch must not hide a loss.
        self._known = _NONE
        #: The newest attempt. If its commit fails, the next one uses its files.
        self._attempt: _Attempt | None = None

    def visible(self) -> EpochNumber:
        """See Target. Raises: HomeError: `TABLE_OF_ANOTHER`, `TABLE_UNFIT`. SparkError: `RELEASE_FAILED`."""
        with self._reaching():
            return self._asking.ask().below

    def delivered(self) -> EpochNumber:
        """See Target. The number also covers epochs without rows. Raises: as `seen`."""
        self._known = self.visible()
        return self._known

    def _progress(self) -> SinkProgress:
        opened = self._asked.open()
        return SinkProgress() if opened is None else opened.progress

    def deliver(self, epoch: EpochNumber, rows: DataFrame, *, few: bool = False) -> DataFrame | None:
        """See Target. Raises: as `visible` and `confirm`. It has lost epochs since `delivered`: `RELEASE_FAILED`."""
        schema = StructType([field for field in rows.schema.fields if field.name != ROW])
        unfit = unfit_for_partition(schema, self._columns, self._table.partition_bytes_max)
        with self._reaching():
            for _ in range(COMMITS_MAX):
                try:
                    table = self._table.open() or self._table.create(schema)
                    if table.progress.below > epoch:
                        is_any = unfit is not None and not rows.where(unfit.isNotNull()).isEmpty()
                        return self._letters(rows, unfit, epoch) if is_any else None
                    if table.progress.below < self._known:
                        raise EpochsMissing(f"it no longer has the epochs from {table.progress.below} on")
                    table.require_fit(schema)
                    attempt = self._written(epoch, rows, unfit, table.data, few=few)
                    self._confirm()  # the present owner may have cancelled this epoch meanwhile
                    table.commit(epoch, attempt.files, EpochNumber(max(epoch + 1, table.progress.ever)))
                except CommitConflict as error:
                    conflict = error
                    continue
                self._attempt, self._known = None, EpochNumber(epoch + 1)
                self._delete_attempts(table, epoch, attempt.folder)
                return self._letters(rows, unfit, epoch) if attempt.lacks_rows else None
            raise conflict

    def _letters(self, rows: DataFrame, unfit: Column | None, epoch: EpochNumber) -> DataFrame:
        assert unfit is not None, "only partitions refuse rows"
        return row_letters(rows.where(unfit.isNotNull()), unfit, self._address, epoch)

    def _written(self, epoch: EpochNumber, rows: DataFrame, unfit: Column | None, data: Path, *, few: bool) -> _Attempt:
        """Return the files of an epoch in the table's folder, without the rows that no partition can have."""
        known = self._attempt
        if known is not None and known.epoch == epoch and known.is_in(data):
            return known
        folder = self._folder_of(data, epoch) / f"{epoch:010d}-{uuid.uuid4().hex[:8]}"
        hidden = {f"{_HIDDEN}{i}": name for i, name in enumerate(self._columns)}
        counted, fit = None, rows
        if unfit is not None:
            counted = Observed(rows, [F.count_if(unfit.isNotNull()).alias("unfit")])
            fit = counted.data.where(unfit.isNull())
        placed = fit.repartition(*[F.col(f"`{c}`") for c in self._columns]) if hidden and not few else fit
        ordered = (sorted_by_place(fit, few=True) if few else placed).drop(ROW)
        named = ordered.withColumns({column: _in_a_name(name) for column, name in hidden.items()})
        rows.sparkSession.conf.set(_TIMES, _MICROSECONDS)
        named.write.format("parquet").partitionBy(*hidden).save(str(folder))
        private.make_readable(data / self._own_folder)
        sync(folder)  # before a commit names the files
        names = dict.fromkeys(sorted(folder.rglob("*.parquet")))
        files = (_file(path, data, hidden) for path in names)
        self._attempt = _Attempt(
            epoch=epoch,
            folder=folder,
            files=tuple(file for file in files if file.rows),
            lacks_rows=unfit is not None and counted is not None and _is_any(rows, unfit, counted),
        )
        return self._attempt

    def _folder_of(self, data: Path, epoch: EpochNumber) -> Path:
        return data / self._own_folder / f"{epoch // _EPOCHS_PER_FOLDER:07d}"

    def _delete_attempts(self, table: OpenedTable, epoch: EpochNumber, kept: Path) -> None:
        """Delete the files of attempts of this epoch, and of cancelled ones before it, that no commit names.

        Epochs that were ever committed are left out: earlier versions of the table have their files.
        """
        first = max(table.progress.below, table.progress.ever)
        for bucket in range(first // _EPOCHS_PER_FOLDER, epoch // _EPOCHS_PER_FOLDER + 1):
            for folder in self._folder_of(table.data, EpochNumber(bucket * _EPOCHS_PER_FOLDER)).glob("*-*"):
                number = folder.name.partition("-")[0]
                if number.isdecimal() and first <= int(number) <= epoch and folder != kept:
                    shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turn an error of the table, its catalog or Spark into one after which the release is retried."""
        try:
            yield
        except TableOfAnother as error:
            raise TABLE_OF_ANOTHER.error(table=self._address) from error
        except TableUnfit as error:
            raise TABLE_UNFIT.error(table=self._address, reason=error) from error
        except (FalkirkError, Py4JNetworkError):
            raise  # without Spark there is no retry
        except Exception as error:  # a catalog may raise those of its database or its HTTP client
            reason = "the disk is full" if is_full(error) else redact_urls(first_line(error)) or type(error).__name__
            raise RELEASE_FAILED_TARGET.error(topic=self._address, reason=reason) from error


def unfit_for_partition(schema: StructType, columns: Sequence[str], bytes_max: int | None) -> Column | None:
    """Return why a row can't be in a partition, or null; None: each row can be.

    Args: columns: by which the table is partitioned. bytes_max: the size of the longest text there; None: no limit.
    """
    reasons: list[Column] = []
    for name in columns:
        kind, column = schema[name].dataType, F.col(f"`{name}`")
        if isinstance(kind, DateType):
            reasons.append(F.when(outside_years(name), _reason(name, "is not between the years 1 and 9999")))
        if isinstance(kind, StringType) and bytes_max is not None:
            too_long = F.octet_length(column) > bytes_max
            reasons.append(F.when(too_long, _reason(name, f"has more than {bytes_max} bytes")))
    return F.coalesce(*reasons) if reasons else None


def _reason(column: str, fault: str) -> Column:
    return F.lit(f"{NOT_WRITTEN}column {column} {fault}, and the table is partitioned by it")


def _is_any(rows: DataFrame, unfit: Column, counted: Observed) -> bool:
    """Return whether a row is unfit. Args: counted: by the job that has written the others."""
    found = counted.values()
    return not rows.where(unfit.isNotNull()).isEmpty() if found is None else bool(found["unfit"])


def _in_a_name(column: str) -> Column:
    """Return a value as a part of a folder's name. It can be read back, an empty text included, unless it is long."""
    value = F.encode(F.col(f"`{column}`").cast("string"), "utf-8")
    named = F.concat(F.lit(_VALUE), F.lower(F.hex(value)))
    long = F.octet_length(value) > _NAMED_BYTES_MAX
    return (
        F.when(F.col(f"`{column}`").isNull(), F.lit(_NULL))
        .when(long, F.concat(F.lit(_DIGEST), F.sha2(value, 256)))
        .otherwise(named)
    )


def _file(path: Path, data: Path, hidden: Mapping[str, str]) -> DataFile:
    named = dict(part.split("=", 1) for part in path.relative_to(data).parts if "=" in part)
    values = {name: _from_name(named[column], path, name) for column, name in hidden.items()}
    found = path.stat()
    return DataFile(
        name=path.relative_to(data).as_posix(),
        rows=pq.read_metadata(path).num_rows,
        size_bytes=found.st_size,
        modified_ms=found.st_mtime_ns // 1_000_000,
        partition=values,
    )


def _from_name(named: str, path: Path, column: str) -> str | None:
    """Return the value of a partition column. Args: named: its part of the folder's name. path: of a file in it."""
    if named.startswith(_DIGEST):  # only a text is long
        (text,) = next(pq.ParquetFile(path).iter_batches(batch_size=1, columns=[column])).column(0).to_pylist()
        return str(text)
    return None if named == _NULL else bytes.fromhex(named.removeprefix(_VALUE)).decode()
