"""Tables of Apache Iceberg: the snapshot that adds the rows of an epoch names it, and the table's properties do, too.

A commit fails if the table has another snapshot than the one on which it is based. The properties remain when somebody
removes old snapshots; the snapshots remain true when somebody rolls the table back. So the two together say which
epochs the table has.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.transforms import IdentityTransform
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from falkirk.declare.lake import Iceberg
from falkirk.platform import private
from falkirk.platform.durable import sync
from falkirk.runtime.spark.sinks.lake import CommitConflict, DataFile, SinkProgress, TableOfAnother, TableUnfit
from falkirk.theory.ids import EpochNumber

#: The property of a table that names the home that writes it.
_OWNER = "falkirk.application"
#: The properties of a snapshot that adds an epoch.
_SINK, _EPOCH = "falkirk.sink", "falkirk.epoch"
#: The sequence number of a table's first snapshot.
_FIRST = 1
#: Set in a loaded table: Falkirk itself reads the table again before it repeats a commit.
_REPEATS = "commit.retry.num-retries"
#: The mode of the metrics of one column. pyiceberg takes the values of partitions from them.
_METRICS, _ALL, _COUNTS = "write.metadata.metrics.column.", "full", "counts"
#: Of a table that Falkirk creates. Many small commits would otherwise leave as many manifests and metadata files.
_UPKEEP = {"commit.manifest-merge.enabled": "true", "write.metadata.delete-after-commit.enabled": "true"}


class IcebergTable:
    """An Iceberg table. Args: to: its declaration. application: the identity of the home. sink: its name."""

    #: A Parquet file has no minimum and maximum of longer texts. So pyiceberg would take their partition for that of
    #: null.
    partition_bytes_max: int | None = 2_000

    def __init__(self, to: Iceberg, application: str, sink: str) -> None:
        self._to, self._application, self._sink = to, application, sink
        self._known: Catalog | None = None

    @property
    def _catalog(self) -> Catalog:
        """The catalog. It is loaded when it is first needed, because it may not answer."""
        if self._known is None:
            self._known = load_catalog(self._to.catalog, **self._to.properties)
        return self._known

    def open(self) -> "OpenedIceberg | None":
        """See LakeTable."""
        try:
            table = self._catalog.load_table(self._to.table)
        except NoSuchTableError:
            return None
        return OpenedIceberg(table, self._to, self._application, self._sink)

    def create(self, schema: StructType) -> "OpenedIceberg":
        """See LakeTable."""
        columns = to_arrow_schema(_nullable(schema), timezone="UTC")
        properties = {_OWNER: self._application, **_UPKEEP}
        self._catalog.create_namespace_if_not_exists(self._to.table.rpartition(".")[0])
        try:
            making = self._catalog.create_table_transaction(self._to.table, columns, properties=properties)
            with making, making.update_spec() as spec:
                for column in self._to.partition_columns:
                    spec.add_identity(column)
        except (CommitFailedException, TableAlreadyExistsError) as error:
            raise CommitConflict(str(error)) from error
        table = self._catalog.load_table(self._to.table)
        private.make_readable(_local(table.location()))
        _keep([table.metadata_location])
        return OpenedIceberg(table, self._to, self._application, self._sink)


class OpenedIceberg:
    """A version of an Iceberg table."""

    def __init__(self, table: Table, to: Iceberg, application: str, sink: str) -> None:
        self._table, self._application, self._sink = table, application, sink
        self._by = to.partition_columns
        self._place = f"{table.location().rstrip('/')}/data"
        self.data = _local(self._place)
        if table.properties.get(_OWNER, application) != application:
            raise TableOfAnother
        self.progress = SinkProgress(below=self._below(), ever=self._noted("ever"))

    def _name(self, what: str) -> str:
        return f"falkirk.{self._sink}.{what}"

    def _noted(self, what: str) -> EpochNumber:
        text = self._table.properties.get(self._name(what), "0")
        if not text.isdecimal():
            raise TableUnfit(f"its property {self._name(what)} is {text!r}")
        return EpochNumber(int(text))

    def _below(self) -> EpochNumber:
        """Return the epoch, exclusive, up to which the table has the rows."""
        current = self._table.current_snapshot()
        found = next(self._own(ancestors_of(current, self._table.metadata)), None)
        if found is not None:
            # Epochs after it had no rows, unless somebody rolled the table back.
            had_rows = found + 1 != self._noted("rows")
            return EpochNumber(found + 1 if had_rows else max(found + 1, self._noted("below")))
        # Old snapshots may have been removed, and a tag may have kept one behind them, which is an ancestor no more. So
        # only snapshots that are younger than all known ancestors are certainly undone.
        *_, oldest = [None, *ancestors_of(current, self._table.metadata)]
        since = _number(oldest)
        undone = list(self._own(s for s in self._table.metadata.snapshots if since <= _FIRST or _number(s) > since))
        if not undone:
            return self._noted("below")
        return EpochNumber(0 if since <= _FIRST else min(undone))

    def _own(self, snapshots: Iterable[Snapshot]) -> Iterator[int]:
        """Yield the epochs of snapshots that added rows of this sink."""
        for snapshot in snapshots:
            summary: Mapping[str, str] = {} if snapshot.summary is None else snapshot.summary.additional_properties
            if summary.get(_SINK) == f"{self._application}/{self._sink}":
                yield int(summary[_EPOCH])

    def require_fit(self, schema: StructType) -> None:
        """See OpenedTable. The types are compared when files are added."""
        fields = self._table.spec().fields
        if any(not isinstance(field.transform, IdentityTransform) for field in fields):
            raise TableUnfit("it is partitioned by something else than values of columns")
        by = tuple(self._table.schema().find_column_name(field.source_id) for field in fields)
        if by != self._by:
            found = ", ".join(map(str, by)) or "nothing"
            raise TableUnfit(f"it is partitioned by {found}, and the sink by {', '.join(self._by) or 'nothing'}")

    def commit(self, epoch: EpochNumber, files: Sequence[DataFile], ever: EpochNumber) -> None:
        """See OpenedTable."""
        upto = str(epoch + 1)
        noted = {self._name("below"): upto, self._name("ever"): str(ever), _OWNER: self._application}
        if files:
            noted[self._name("rows")] = upto
        # These properties are those of this object alone. The table keeps its own.
        metrics = dict.fromkeys(self._without_bounds(files), _COUNTS) | dict.fromkeys(self._by, _ALL)
        own = {_REPEATS: "0", **{f"{_METRICS}{column}": mode for column, mode in metrics.items()}}
        self._table.metadata.properties.update(own)
        transaction = self._table.transaction()
        if files:
            try:
                transaction.add_files(
                    [f"{self._place}/{file.name}" for file in files],
                    snapshot_properties={_SINK: f"{self._application}/{self._sink}", _EPOCH: str(epoch)},
                    check_duplicate_files=False,  # no two attempts have the same names
                )
            except ValueError as error:
                raise TableUnfit(" ".join(str(error).split())) from error
        transaction.set_properties(noted)
        try:
            made = transaction.commit_transaction()
        except CommitFailedException as error:
            raise CommitConflict(str(error)) from error
        written = [made.metadata_location]
        if files and (snapshot := made.current_snapshot()) is not None:
            manifests = snapshot.manifests(made.io)
            new = [m.manifest_path for m in manifests if m.added_snapshot_id == snapshot.snapshot_id]
            written += [snapshot.manifest_list, *new]
        _keep(written)

    def _without_bounds(self, files: Sequence[DataFile]) -> Iterator[str]:
        """Yield the columns with a date or time outside the years 1 to 9999. They get no minimum and maximum.

        Python has no such times, so pyiceberg would fail for the whole file.
        """
        schema = self._table.schema()
        ids = parquet_path_to_id_mapping(schema)
        for file in files:
            footer = pq.read_metadata(self.data / file.name)
            for group in map(footer.row_group, range(footer.num_row_groups)):
                for chunk in map(group.column, range(footer.num_columns)):
                    if not _has_bounds(chunk.statistics) and chunk.path_in_schema in ids:
                        yield str(schema.find_column_name(ids[chunk.path_in_schema]))


def _has_bounds(statistics: pq.Statistics | None) -> bool:
    """Return whether Python has the minimum and the maximum of a column, if these are known."""
    try:
        _ = statistics is None or (statistics.min, statistics.max)
    except OverflowError:
        return False
    return True


def _number(snapshot: Snapshot | None) -> int:
    return 0 if snapshot is None else snapshot.sequence_number or 0


def _local(location: str) -> Path:
    """Return the folder of a location. Raises: TableUnfit."""
    if location.startswith("file:"):
        return Path(unquote(re.sub("^file:(//[^/]*)?", "", location)))
    if re.match(r"[A-Za-z][\w+.-]*:", location):
        raise TableUnfit(f"its location is {location}, and Falkirk writes only folders that all machines share")
    return Path(location).absolute()


def _keep(locations: Sequence[str]) -> None:
    """Sync files of the table to the disk, and let others read them."""
    paths = [path for path in map(_local, locations) if path.exists()]  # others may have cleaned up meanwhile
    for folder in sorted({path.parent for path in paths}):
        sync(folder, [path.name for path in paths if path.parent == folder])
    for path in paths:
        private.make_readable(path)


def _nullable(schema: StructType) -> StructType:
    made = StructType()
    for field in schema.fields:
        made.add(field.name, field.dataType, nullable=True)
    return made
