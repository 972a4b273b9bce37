"""Tables of Delta Lake: an epoch is the version of an application transaction in the commit that adds its rows.

Delta's writers refuse a commit if another one with the same application has come first. A table that is restored to an
older version keeps the numbers of its transactions, so the history of the table decides which epochs it has.
"""

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql.types import StructType

from falkirk.declare.lake import Delta
from falkirk.platform import private
from falkirk.platform.durable import make_folder, sync
from falkirk.runtime.spark.sinks.lake import CommitConflict, DataFile, SinkProgress, TableOfAnother, TableUnfit
from falkirk.theory.ids import EpochNumber

#: The property of a table that names the home that writes it.
_OWNER = "falkirk.application"
#: The field of a commit's information that describes an epoch.
_EPOCH = "falkirk"
#: The properties of tables whose writers have duties that adding files does not fulfil, and one that ends transactions.
_DUTIES = ("delta.constraints.", "delta.columnMapping.mode", "delta.setTransactionRetentionDuration")
#: The same for fields.
_DUTIES_OF_FIELDS = ("delta.generationExpression", "delta.identity.", "delta.invariants")


class DeltaLakeTable:
    """A Delta table. Args: to: its declaration. application: the identity of the home. sink: its name."""

    partition_bytes_max: int | None = None

    def __init__(self, to: Delta, application: str, sink: str) -> None:
        self._to, self._application, self._sink = to, application, sink
        self._path = Path(to.path).absolute()
        self._loaded: tuple[DeltaTable, tuple[int, int, int]] | None = None

    def open(self) -> "OpenedDelta | None":
        """See LakeTable."""
        try:
            return OpenedDelta(self._load(), self._to, self._application, self._sink)
        except TableNotFoundError:
            return None

    def create(self, schema: StructType) -> "OpenedDelta":
        """See LakeTable."""
        if not self._path.exists():
            make_folder(self._path)
            private.make_readable(self._path)
        columns, by = Schema.from_json(json.dumps(_nullable(schema.jsonValue()))), list(self._to.partition_columns)
        owner = {_OWNER: self._application}
        DeltaTable.create(self._path, columns, partition_by=by, configuration=owner, raise_if_key_not_exists=False)
        _keep(self._path, range(1))
        return OpenedDelta(self._load(), self._to, self._application, self._sink)

    def _load(self) -> DeltaTable:
        """Return the newest version. A large log is read once, and then only its new commits."""
        if self._loaded is not None:
            table, known = self._loaded
            with contextlib.suppress(OSError):
                if self._identity(table) == known:  # nobody has put an older copy in its place
                    table.update_incremental()
                    self._loaded = table, self._identity(table)
                    return table
        table = DeltaTable(self._path)
        self._loaded = table, self._identity(table)
        return table

    def _identity(self, table: DeltaTable) -> tuple[int, int, int]:
        """Return the identity of the file with the newest commit. Raises: OSError."""
        found = _commit(self._path, table.version()).stat()
        return found.st_dev, found.st_ino, found.st_mtime_ns


class OpenedDelta:
    """A version of a Delta table."""

    def __init__(self, table: DeltaTable, to: Delta, application: str, sink: str) -> None:
        self._table, self._application, self._by = table, application, to.partition_columns
        self._id = f"falkirk/{application}/{sink}"
        self._id_ever = f"{self._id}/ever"
        self.data = Path(to.path).absolute()
        self._properties: Mapping[str, str] = table.metadata().configuration
        if self._properties.get(_OWNER, application) != application:
            raise TableOfAnother
        self.progress = SinkProgress(below=self._below(), ever=self._transaction(self._id_ever))

    def _transaction(self, name: str) -> EpochNumber:
        version = self._table.transaction_version(name)
        return EpochNumber(0 if version is None else version + 1)

    def _below(self) -> EpochNumber:
        """Return the epoch, exclusive, up to which the table has the rows."""
        newest = self._transaction(self._id)
        if not newest:
            return newest
        commits: list[Mapping[str, Any]] = []
        found = _epoch_of(self._commits(commits), self._id)
        if found is not None:
            return EpochNumber(found + 1)
        is_restored = any(commit.get("operation") == "RESTORE" for commit in commits)
        if not is_restored:
            return newest  # the log no longer has the commit
        if commits[-1]["version"] > 0:
            raise TableUnfit("it was restored to a version that its log no longer has")
        return EpochNumber(0)

    def _commits(self, read: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield what the commits say of themselves, newest first, and add it to a list.

        `DeltaTable.history` numbers them wrongly if one of them says nothing, which the protocol allows.
        """
        for version in range(self._table.version(), -1, -1):
            path = _commit(self.data, version)
            try:
                lines, at_ms = path.read_text().splitlines(), path.stat().st_mtime_ns // 1_000_000
            except FileNotFoundError:
                return
            told = [json.loads(line).get("commitInfo") for line in lines if "commitInfo" in line]
            said: dict[str, Any] = next(filter(None, told), {})
            read.append({"timestamp": at_ms, **said, "version": version})
            yield read[-1]

    def require_fit(self, schema: StructType) -> None:
        """See OpenedTable."""
        for name, value in self._properties.items():
            if name.startswith(_DUTIES) and value != "none":
                raise TableUnfit(f"it has the property {name}, which Falkirk's commits can't respect")
        by = tuple(self._table.metadata().partition_columns)
        if by != self._by:
            raise TableUnfit(f"it is partitioned by {_listed(by)}, and the sink by {_listed(self._by)}")
        given = {field["name"]: field for field in _nullable(schema.jsonValue())["fields"]}
        there = {field["name"]: field for field in json.loads(self._table.schema().to_json())["fields"]}
        for field in there.values():
            if duty_of := next((k for k in field["metadata"] if k.startswith(_DUTIES_OF_FIELDS)), None):
                raise TableUnfit(f"its column {field['name']} has {duty_of}, which Falkirk's commits can't respect")
        for name, field in given.items():
            if name not in there:
                raise TableUnfit(f"it has no column {name}")
            if (kind := _plain(field["type"])) != (kept := _plain(there[name]["type"])):
                raise TableUnfit(f"its column {name} has type {_shown(kept)}, and the results have {_shown(kind)}")
        if never := next((name for name, field in there.items() if not field["nullable"]), None):
            raise TableUnfit(f"its column {never} takes no null")

    def commit(self, epoch: EpochNumber, files: Sequence[DataFile], ever: EpochNumber) -> None:
        """See OpenedTable."""
        adds: list[AddAction | RemoveAction] = [
            AddAction(
                path=file.name, size=file.size_bytes,
                # The protocol reads an empty text as null, and not every reader does.
                partition_values={name: text or None for name, text in file.partition.items()},
                modification_time=file.modified_ms, data_change=True, stats=json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]  # fmt: skip
        properties = CommitProperties(
            custom_metadata={_EPOCH: {"sink": self._id, "epoch": epoch}},
            app_transactions=[Transaction(self._id, epoch), Transaction(self._id_ever, ever - 1)],
        )
        before = self._table.version()
        try:
            if _OWNER not in self._properties:
                self._table.alter.set_table_properties({_OWNER: self._application}, raise_if_not_exists=False)
            self._table.create_write_transaction(
                adds, "append", self._table.schema(), partition_by=list(self._by), commit_properties=properties
            )
        except CommitFailedError as error:
            raise CommitConflict(str(error)) from error
        after = before + 1
        while _commit(self.data, after).exists():  # those of other writers, too
            after += 1
        _keep(self.data, range(before + 1, after))


def _commit(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020d}.json"


def _keep(path: Path, versions: range) -> None:
    """Sync commits to the disk, and let others read them."""
    log = path / "_delta_log"
    names = [p.name for v in versions for p in log.glob(f"{v:020d}.*")]
    sync(log, names)
    for each in (log, *(log / name for name in (*names, "_last_checkpoint") if (log / name).exists())):
        if each is not log:
            private.make_readable(each)
    log.chmod(path.stat().st_mode & 0o7777)


def _epoch_of(commits: Iterable[Mapping[str, Any]], sink: str) -> int | None:
    """Return the newest epoch that the newest version has, as far as these commits say. Args: commits: newest first.

    Raises: TableUnfit.
    """
    upto, at_ms = math.inf, math.inf
    for commit in commits:
        if commit["version"] > upto or commit["timestamp"] > at_ms:
            continue  # undone
        at_ms = math.inf
        described = commit.get(_EPOCH)
        if isinstance(described, Mapping) and described.get("sink") == sink:
            return int(described["epoch"])
        if commit.get("operation") == "RESTORE":
            upto, at_ms = _restored(commit)
    return None


def _restored(commit: Mapping[str, Any]) -> tuple[float, float]:
    """Return the version to which a commit has restored a table, or its time in milliseconds; the other is infinite."""
    parameters = commit.get("operationParameters", {})
    if (version := parameters.get("version")) is not None:
        return int(version), math.inf
    when = parameters.get("datetime", parameters.get("timestamp"))
    try:
        return math.inf, int(when) if str(when).isdecimal() else _milliseconds(str(when))
    except ValueError:
        raise TableUnfit(f"it was restored to the time {when!r}, which names no version") from None


def _milliseconds(text: str) -> int:
    found = datetime.fromisoformat(text)
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _nullable(kind: Any) -> Any:
    """Return a type as JSON whose parts all take null, as Spark's Parquet files have them, without metadata."""
    if isinstance(kind, list):
        return [_nullable(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    loose = {"nullable": True, "containsNull": True, "valueContainsNull": True, "metadata": {}}
    return {name: loose[name] if name in loose else _nullable(value) for name, value in kind.items()}


def _plain(kind: Any) -> Any:
    """Return a type of a table's column without what others noted about it."""
    if isinstance(kind, list):
        return [_plain(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    return {name: _plain(value) for name, value in kind.items() if name != "metadata"}


def _shown(kind: Any) -> str:
    return kind if isinstance(kind, str) else json.dumps(kind)


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"
