"""Places of a batch's rows: topics, tables, folders, and the log in the home. Each is read as an ordinary reader does.

The due rows come from Spark and the found rows from the place. Both become JSON objects of the same form, which
`falkirk.checker` compares. Both sides omit the types that a format does not keep: a table has texts for decimals, a CSV
file has texts for everything.
"""

import base64
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sql
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from falkirk.checker import (
    FoundRow,
    Values,
    bounds_now,
    is_compacted,
    moved,
    read_topic,
    read_typed,
    refuse_unseen,
    types_of,
)
from falkirk.declare.cut import SLICE
from falkirk.declare.endpoints import Endpoint, EpochTopic, Files, Kafka, Sql
from falkirk.declare.lake import Delta, Iceberg
from falkirk.declare.parts import DeclaredSink
from falkirk.errors import LogError
from falkirk.errors.conditions.checker import ROWS_CHANGED, ROWS_UNREADABLE_TABLE
from falkirk.errors.redaction import redact_urls
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.plan.batch import Batch
from falkirk.platform.data import DataPath
from falkirk.platform.stored import parse_json
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.epochs.inputs import read_folders
from falkirk.runtime.spark.rows import JSON_OPTIONS, NOT_WRITTEN, TOO_LARGE
from falkirk.runtime.spark.sinks.epoch_notes import all_notes_back, topic_of_notes
from falkirk.steps.dataframes.pairs import united
from falkirk.theory.ids import EpochNumber

_EPOCH_FOLDER = re.compile(r"epoch=(\d{1,18})", re.ASCII)
_EPOCH = "__falkirk_epoch"
_CSV = {"header": "true", "multiLine": "true"}
#: The column of a found entry that is no row, such as a file between the folders of epochs.
_ENTRY = "(entry)"
Folders = Mapping[EpochNumber, DataPath]
_Types = Mapping[str, Callable[[object], object]]


class OutputPlace(Protocol):
    """A place of rows.

    Attributes: name: for people. keys: set if the place keeps the last row of each key. types: how due values are read.
        is_compacted: it may delete a row if a later one of its key is there.
    """

    name: str
    keys: tuple[str, ...]
    types: _Types
    is_compacted: bool

    def due(self, rows: DataFrame) -> DataFrame:
        """Return rows as they should be in the place: one column, `value`, with a JSON object."""

    def found(self) -> Iterator[FoundRow]:
        """Yield the rows of the place. Raises: LogError: it can't be read as a whole."""


def epoch_rows(session: SparkSession, batch: Batch, folders: Folders) -> DataFrame:
    """Return the rows of epochs, each in a folder, with the number of their epoch."""

    def read(*folders: DataPath) -> DataFrame:
        rows = read_folders(session, list(folders), batch.schema)
        path = F.col("_metadata.file_path")
        number = F.regexp_extract(path, rf"/(\d+)-[0-9a-f]+/(?:{SLICE}=[^/]+/)?[^/]*$", 1)
        return rows.select(*[F.col(f"`{c}`") for c in batch.schema.names], number.cast("long").alias(_EPOCH))

    if batch.sorts is None:
        return read(*folders.values())
    # Spark reads the slices of one epoch at a time.
    return united([read(folder) for folder in folders.values()], DataFrame.unionByName)


def due_rows(rows: DataFrame, place: OutputPlace) -> dict[int, list[Values]]:
    """Return rows, which have the number of their epoch, as they should be in a place."""
    found: dict[int, list[Values]] = {}
    for row in place.due(rows).toLocalIterator():
        found.setdefault(row[_EPOCH], []).append(read_typed(row["value"].encode(), place.types))
    return found


def refused_rows(connection: Connection, batch: Batch, sink: DeclaredSink) -> Counter[int]:
    """Return for each epoch how many results a sink has refused, from the dead letters."""
    refused: Counter[int] = Counter()
    if batch.dead_letter_topic is None:
        return refused
    to, name = sink.to, _target_name(sink.to)
    names: tuple[str | None, ...] = (None,)
    if isinstance(to, EpochTopic):
        # Letters of earlier versions have no name of a sink. They are of another cluster's topic of this name, too.
        is_alone = sum(_target_name(each.to) == name for each in batch.sinks) == 1
        names = (sink.name, None) if is_alone else (sink.name,)
    try:
        for record in read_topic(connection.client_options(), str(batch.dead_letter_topic)):
            letter = _letter(record.value)
            is_its = letter.get("topic") == name and letter.get("sink") in names
            if is_its and str(letter.get("reason")).startswith((TOO_LARGE, NOT_WRITTEN)):
                refused[int(letter.get("epoch", -1))] += 1
    except LogError as error:
        if error.condition != "TOPIC_MISSING":
            raise
    return refused


def _target_name(to: Endpoint) -> str | None:
    return to.topic if isinstance(to, Kafka | EpochTopic) else to.table if isinstance(to, Sql) else None


def _letter(value: bytes | None) -> Mapping[str, Any]:
    try:
        letter = parse_json(value or b"null")
    except ValueError:
        return {}
    return letter if isinstance(letter, dict) else {}


def _types(schema: StructType) -> _Types:
    return types_of({f.name: kind for f in schema.fields if (kind := _kind(f)) in ("decimal", "double")})


def _kind(field: StructField) -> str:
    kind = field.dataType.simpleString().partition("(")[0]
    return "double" if kind == "float" else kind


def _json(columns: list[Column]) -> Column:
    return F.to_json(F.struct(*columns), JSON_OPTIONS).alias("value")


def _as_they_are(rows: DataFrame) -> DataFrame:
    """Return due rows of a place that keeps each column as it is."""
    return rows.select(_json([F.col(f"`{c}`") for c in _of_rows(rows)]), _EPOCH)


def _of_rows(rows: DataFrame) -> list[str]:
    return [name for name in rows.columns if name != _EPOCH]


class TopicPlace:
    """A topic with JSON objects. Args: connection: of its cluster. compacted_by: the columns of the records' keys."""

    def __init__(
        self, to: Kafka, schema: StructType, connection: Connection, compacted_by: tuple[str, ...] | None = None
    ) -> None:
        self.name, self._to, self.types = f"topic {to.topic}", to, _types(schema)
        self.keys, self.is_compacted = compacted_by or (), compacted_by is not None
        self._config = connection.client_options()

    def due(self, rows: DataFrame) -> DataFrame:
        """See Place."""
        return _as_they_are(rows)

    def found(self) -> Iterator[FoundRow]:
        """See Place. Raises: LogError: `TOPIC_UNSEEN`, `ROWS_CHANGED`."""
        topic, count = self._to.topic, 0
        bounds = bounds_now(self._config, topic)
        for record in read_topic(self._config, topic):
            count += 1
            values = read_typed(record.value, self.types)
            yield FoundRow(place=str(record.place), values=values, partition=record.partition)
        changed = moved(self._config, topic, bounds)
        if changed is not None:
            raise ROWS_CHANGED.error(changed=changed)
        # The comparison takes compaction into account, and so no missing offset is a reason to refuse.
        refuse_unseen(
            self._config, topic, bounds, sum(b - a for a, b in bounds.values()) if self.is_compacted else count
        )


class FolderPlace:
    """A folder with a folder of files per epoch."""

    keys: tuple[str, ...] = ()
    is_compacted = False

    def __init__(self, to: Files, schema: StructType, session: SparkSession) -> None:
        self.name, self._to, self._schema, self._session = f"folder {to.path}", to, schema, session
        texts = StructType([StructField(f.name, StringType()) for f in schema.fields])
        self._read_as = texts if to.format == "csv" else schema
        self.types = _types(self._read_as)

    def due(self, rows: DataFrame) -> DataFrame:
        """See Place."""
        if self._to.format != "csv":
            return _as_they_are(rows)
        names = _of_rows(rows)
        written = F.to_csv(F.struct(*[_in_csv(rows, c).alias(c) for c in names]))
        read = F.from_csv(written, ", ".join(f"`{c}` STRING" for c in names))
        return rows.select(F.to_json(read, JSON_OPTIONS).alias("value"), _EPOCH)

    def found(self) -> Iterator[FoundRow]:
        """See Place."""
        path, folders = Path(self._to.path), []
        for entry in sorted(path.iterdir()) if path.is_dir() else ():
            if entry.name.startswith((".", "_")):
                continue
            if _EPOCH_FOLDER.fullmatch(entry.name) and entry.is_dir():
                folders.append(entry)
                continue
            yield FoundRow(place=entry.name, values={_ENTRY: entry.name}, epoch=-1)
        if not folders:
            return
        reader = self._session.read
        if self._to.format == "json":
            rows = reader.text([str(f) for f in folders])
            value = F.col("value")
        else:
            reader = reader.schema(self._read_as).options(**(_CSV if self._to.format == "csv" else {}))
            rows = reader.format(self._to.format).load([str(f) for f in folders])
            value = _json([F.col(f"`{c}`") for c in rows.columns])
        at = F.regexp_extract("_metadata.file_path", r"/epoch=(\d+)/([^/]*)$", 1).cast("long")
        shown = rows.select(value.alias("value"), at.alias(_EPOCH), F.col("_metadata.file_name").alias("file"))
        for n, row in enumerate(shown.toLocalIterator()):
            values = read_typed(row["value"].encode(), self.types)
            yield FoundRow(place=f"epoch={row[_EPOCH]}/{row['file']}#{n}", values=values, epoch=row[_EPOCH])


def _in_csv(rows: DataFrame, name: str) -> Column:
    kind, column = rows.schema[name].dataType.simpleString(), F.col(f"`{name}`")
    if kind.startswith(("struct", "array", "map")):
        return F.to_json(column, JSON_OPTIONS)
    return F.base64(column) if kind == "binary" else column


class TablePlace:
    """A table of a database, whose columns have the types that Falkirk gives them."""

    is_compacted = False

    def __init__(self, to: Sql, schema: StructType) -> None:
        self.name, self.keys, self._to = f"table {to.table}", to.keys, to
        self._kinds = {f.name: _kind(f) for f in schema.fields}
        self.types = _types(schema)

    def due(self, rows: DataFrame) -> DataFrame:
        """See Place."""
        return rows.select(_json([self._stored(c).alias(c) for c in _of_rows(rows)]), _EPOCH)

    def _stored(self, name: str) -> Column:
        column, kind = F.col(f"`{name}`"), self._kinds[name]
        if kind == "timestamp":
            return column.cast("timestamp_ntz")
        if kind == "double":  # SQLite keeps no NaN
            double = column.cast("double")
            return F.when(~F.isnan(double), double) if self._to.url.startswith("sqlite") else double
        if kind.startswith(("struct", "array", "map")):
            return F.to_json(column, JSON_OPTIONS)
        plain = ("boolean", "tinyint", "smallint", "int", "bigint", "date", "timestamp_ntz", "binary", "string")
        return column if kind in plain else column.cast("string")

    def found(self) -> Iterator[FoundRow]:
        """See Place. Raises: LogError: `ROWS_UNREADABLE`."""
        engine = sql.create_engine(sql.make_url(self._to.url.replace("postgresql://", "postgresql+psycopg://", 1)))
        try:
            with engine.begin() as db:
                if not sql.inspect(db).has_table(self._to.table):
                    return
                columns: list[sql.ColumnClause[object]] = [sql.column(name) for name in self._kinds]
                rows = db.execute(sql.select(*columns).select_from(sql.table(self._to.table)))
                for n, row in enumerate(rows.mappings()):
                    values = {name: self._read(row[name], kind) for name, kind in self._kinds.items()}
                    yield FoundRow(place=f"row {n}", values=values)
        except sql.exc.SQLAlchemyError as error:
            raise ROWS_UNREADABLE_TABLE.error(rest=self._to.table, cause=redact_urls(str(error))) from error
        finally:
            engine.dispose()

    def _read(self, value: object, kind: str) -> object:
        """Return a value of the database in the form of the due rows."""
        if isinstance(value, datetime):
            value = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return value.isoformat(timespec="microseconds")
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, bytes | memoryview):
            return base64.b64encode(bytes(value)).decode()
        if kind == "boolean" and value in (0, 1):
            return bool(value)
        if kind.startswith("timestamp") and isinstance(value, str):  # SQLite's text
            return datetime.fromisoformat(value).isoformat(timespec="microseconds")
        if kind == "decimal" and isinstance(value, str):
            return Decimal(value)
        if kind == "double" and isinstance(value, int | Decimal):
            return float(value)
        return value


class LogPlace:
    """The log of a batch in the home, from which other batches read. Args: folders: those of the kept epochs."""

    keys: tuple[str, ...] = ()
    is_compacted = False

    def __init__(self, batch: Batch, session: SparkSession, folders: Folders) -> None:
        self.name, self._batch, self._session, self._folders = f"log of {batch.name}", batch, session, folders
        self.types = _types(batch.schema)

    def due(self, rows: DataFrame) -> DataFrame:
        """See Place."""
        return _as_they_are(rows)

    def found(self) -> Iterator[FoundRow]:
        """See Place."""
        if not self._folders:
            return
        rows = epoch_rows(self._session, self._batch, self._folders)
        for epoch, several in due_rows(rows, self).items():
            for n, values in enumerate(several):
                yield FoundRow(place=f"epoch {epoch}, row {n}", values=values, epoch=epoch)


def output_place(to: Endpoint, batch: Batch, session: SparkSession, connection: Connection) -> OutputPlace | str:
    """Return the place of a sink, or why its rows can't be read."""
    if isinstance(to, Sql):
        return TablePlace(to, batch.schema)
    if isinstance(to, Files):
        return FolderPlace(to, batch.schema, session)
    if isinstance(to, Delta | Iceberg):
        return f"the checker does not read {type(to).__name__} tables"
    if not isinstance(to, Kafka):
        return f"{to.address} can't be read"
    return unread_values(to) or TopicPlace(to, batch.schema, connection)


def epoch_topic_place(to: EpochTopic, sink: str, batch: Batch, place: Storage) -> TopicPlace:
    """Return the topic of an `fk.EpochTopic`. It counts as compacted if it is so now, or was when it got an epoch.

    Args: sink: its name.
    """
    connection = to.connection(place.connection)
    options, notes = connection.client_options(), topic_of_notes(place.home, sink)
    is_compacted_ = to.compacted or is_compacted(options, to.topic) is not False
    if not is_compacted_ and (topics := Topics(connection)).exists(notes):
        is_compacted_ = any(note and note.is_compacted for _, note in all_notes_back(connection, topics, notes))
    found = TopicPlace(to.record, batch.schema, connection, to.keys if is_compacted_ else None)
    found.name = to.address
    return found


def unread_values(to: Kafka) -> str | None:
    """Return why the checker can't read the results in a topic; None: it can."""
    if to.format == "avro":
        return "its values are Avro"
    return None if to.schemas is None else "its values have ids of a schema registry"
