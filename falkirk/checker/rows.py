"""Rows of any system: streams topics, files and tables, each row with its place, and never loads a whole one.

A place is written as

    kafka:orders                       a topic, its values JSON objects
    orders.jsonl, orders.csv.gz        a file: JSON lines (.jsonl, .ndjson, .json), CSV with a header, .parquet
    orders/                            a folder: all such files below it, each as a separate log
    postgresql://user@host/db#orders   a table, by SQLAlchemy's URL
    sqlite:///shop.db#orders:id        … in the order of a column

Each log at a place is read, or named in `Reading.sight` as passed over, or the place is refused.
"""

import contextlib
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from falkirk.checker.content import content_of
from falkirk.checker.folders import Listing, RowFile, files_below
from falkirk.checker.formats import (
    BATCH_ROWS,
    COMPRESSED,
    DECODING_ERRORS,
    SUFFIXES,
    csv_rows,
    format_of,
    json_lines,
    parquet_rows,
)
from falkirk.checker.record_keys import RecordKeys
from falkirk.checker.rows_read import PlaceSeen, RowsRead, raise_changed
from falkirk.checker.run import RowPlace, Values
from falkirk.checker.topics import OffsetBounds, read_topic
from falkirk.checker.types import read_typed, types_of
from falkirk.checker.unseen import moved, refuse_unseen
from falkirk.checker.written import NO_OBJECT, breaks_off, plain_number, read_json
from falkirk.errors import LogError
from falkirk.errors.conditions.checker import PLACE_INVALID, PLACE_INVALID_TABLE, ROWS_UNREADABLE, ROWS_UNREADABLE_TABLE

_Row = tuple[RowPlace, Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The settings for reading rows, and a record of the rows that were read.

    Args:
        kafka: settings of confluent_kafka's client, for topics. decimal: whether numbers with a fraction are decimals,
            exactly as written, instead of floats. ignored: columns that are not compared. types: the types of columns
            whose values are texts or have another meaning than they seem to, by the names in `falkirk.checker.types`.
            skipped: patterns of names in folders that hold no rows. expired: whether to read a topic whose first
            records were deleted, or that is compacted.
    """

    kafka: Mapping[str, Any] = field(default_factory=dict)
    decimal: bool = False
    ignored: frozenset[str] = frozenset()
    types: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    expired: bool = False
    sight: RowsRead = field(default_factory=RowsRead, compare=False)

    def rows(self, where: str, record_keys: RecordKeys | None = None) -> Iterator[_Row]:
        """Yield the rows of a place, in the order of each log.

        Args: record_keys: for a topic, the keys that its records should have.
        Raises: DefinitionError: `PLACE_INVALID`, `TYPE_INVALID`. LogError: `ROWS_UNREADABLE`, `ROWS_UNREAD`,
            `ROWS_CHANGED`, `TOPIC_MISSING`, `TOPIC_UNREADABLE`, `TOPIC_UNSEEN`.
        """
        types = types_of(self.types)
        seen = self.sight.begin(where)
        for place, values in self._read(where, seen, record_keys):
            seen.rows += 1
            seen.columns.update(values)
            if types:
                values = {name: types[name](value) if name in types else value for name, value in values.items()}
            if self.ignored:
                values = {name: value for name, value in values.items() if name not in self.ignored}
            yield place, values

    def logs(self, where: str) -> Iterator[tuple[Hashable, str]]:
        """Yield the identity of each log at a place, independent of how the place is written, with a name for it.

        Raises: LogError: `ROWS_UNREADABLE`, `ROWS_UNREAD`.
        """
        if where.startswith("kafka:"):
            yield where, where
            return
        if "://" in where:
            table = re.sub(r":[^#]*$", "", where.partition("#")[2])
            url = where.partition("#")[0]
            database = str(Path(url.removeprefix("sqlite:///")).resolve()) if url.startswith("sqlite:///") else url
            yield (database, table), where
            return
        for file in self._files(where).files:
            with _readable(file.name):
                status = file.path.stat()
                yield (status.st_dev, status.st_ino), file.name

    def _read(self, where: str, seen: PlaceSeen, record_keys: RecordKeys | None) -> Iterator[_Row]:
        if where.startswith("kafka:"):
            return self._topic(where.removeprefix("kafka:"), seen, record_keys)
        if "://" in where:
            seen.logs = 1
            return self._table(where)
        return self._folder(where, seen)

    def _topic(self, topic: str, seen: PlaceSeen, record_keys: RecordKeys | None) -> Iterator[_Row]:
        if "bootstrap.servers" not in self.kafka:
            raise PLACE_INVALID.error(topic=topic)
        bounds: OffsetBounds = {}
        for record in read_topic(self.kafka, topic, bounds=bounds):
            values = self._json(record.value)
            yield record.place, values if record_keys is None else record_keys.marked(values, record.key)
        seen.logs = len(bounds)
        seen.notes.extend(refuse_unseen(self.kafka, topic, bounds, seen.rows, allowed=self.expired))
        self.sight.watch(lambda: moved(self.kafka, topic, bounds))

    def _json(self, text: bytes | None) -> Values:
        if self.types and not self.decimal:
            return read_typed(text, types_of(self.types))
        return read_json(text, decimal=self.decimal)

    def _files(self, where: str) -> Listing:
        path = Path(where)
        if not path.is_dir():
            return Listing(files=[RowFile(path=path, name=where, columns={})])
        with _readable(where):
            return files_below(path, lambda name: format_of(name) is not None, self.skipped)

    def _folder(self, where: str, seen: PlaceSeen) -> Iterator[_Row]:
        found = self._files(where)
        seen.logs, seen.passed_over = len(found.files), found.passed_over
        columns = sorted({name for file in found.files for name in file.columns})
        if columns:
            seen.notes.append(f"columns from the names of folders: {', '.join(columns)}")
        if Path(where).is_dir():
            names = [file.name for file in found.files]
            self.sight.watch(lambda: _listed(self._files(where), names, where))
            for file in found.files:
                yield from self._file(file, f"{where.rstrip('/')}/{file.name}")
        else:
            yield from self._file(found.files[0], where)

    def _file(self, file: RowFile, name: str) -> Iterator[_Row]:
        kind = format_of(file.path.name)
        if kind is None or not file.path.is_file():
            raise LogError(
                "ROWS_UNREADABLE",
                f"{name} is not a file of rows" if file.path.is_file() else f"there is no file {name}",
                hint=f"Use one of {', '.join(SUFFIXES)} (texts may be compressed: {', '.join(COMPRESSED)}), "
                "kafka:TOPIC or DATABASE-URL#TABLE.",
                where=name,
            )
        changed = self.sight.watch_file(file.path, name)
        with _readable(name):
            for number, values in enumerate(_READERS[kind](self, file.path)):
                yield RowPlace(name, 0, number), self._with_columns(values, file.columns)
        raise_changed(changed())

    def _with_columns(self, values: Values, columns: Mapping[str, str | None]) -> Values:
        """Return a row with the columns from its folders' names. Raises: ValueError: the row has another value."""
        if not columns:
            return values
        given = {name: None if text is None else self._of_text(name, text) for name, text in columns.items()}
        for name in given.keys() & values.keys():
            if content_of(values[name]) != content_of(given[name]):
                raise ValueError(f"a row has {values[name]!r} as {name}, but is in a folder of {columns[name]!r}")
        return {**values, **given}

    def _of_text(self, name: str, text: str) -> object:
        number = None if name in self.types else plain_number(text, decimal=self.decimal)
        return text if number is None else number

    def _lines(self, path: Path) -> Iterator[Values]:
        broken: int | None = None
        for number, line in enumerate(json_lines(path)):
            if broken is not None:
                # If an object extends over several lines, the lines are not rows. In another order they would make
                # other objects.
                raise ValueError(f"row {broken} ends too early and more rows follow. Write each object on one line")
            values = self._json(line)
            if NO_OBJECT in values and breaks_off(line):
                broken = number
            yield values

    def _csv(self, path: Path) -> Iterator[Values]:
        return csv_rows(path, decimal=self.decimal, texts=frozenset(self.types))

    def _parquet(self, path: Path) -> Iterator[Values]:
        return parquet_rows(path, self._plain)

    def _table(self, where: str) -> Iterator[_Row]:
        import sqlalchemy as sql
        from sqlalchemy.exc import SQLAlchemyError

        url, _, rest = where.partition("#")
        name, _, order = rest.partition(":")
        if not name:
            raise PLACE_INVALID_TABLE.error()
        schema, _, table_name = name.rpartition(".")
        try:
            with contextlib.ExitStack() as stack:
                # Use the driver of the extra `postgres`, unless the URL names one.
                engine = sql.create_engine(re.sub("^postgres(ql)?:", "postgresql+psycopg:", url))
                stack.callback(engine.dispose)
                table = sql.Table(table_name, sql.MetaData(), schema=schema or None, autoload_with=engine)
                # Read the driver's own values: SQLAlchemy's types would round numbers.
                chosen = sql.select(*[sql.type_coerce(c, sql.types.NullType()).label(c.name) for c in table.columns])
                chosen = chosen.order_by(table.c[order]) if order else chosen
                connection = stack.enter_context(engine.connect())
                streamed = connection.execution_options(stream_results=True, yield_per=BATCH_ROWS)
                for number, row in enumerate(streamed.execute(chosen).mappings()):
                    yield RowPlace(name, 0, number), {column: self._plain(value) for column, value in row.items()}
        except (SQLAlchemyError, KeyError, ImportError) as cause:
            raise ROWS_UNREADABLE_TABLE.error(where=name, rest=rest, cause=cause) from cause

    def _plain(self, value: object) -> object:
        """Return a value of a typed column in the form that it has in a JSON log, so that both can be compared."""
        if isinstance(value, float):
            return Decimal(repr(value)) if self.decimal and value - value == 0 else value
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, Mapping):
            return {name: self._plain(each) for name, each in value.items()}
        return [self._plain(each) for each in value] if isinstance(value, list | tuple) else value


_READERS: dict[str, Callable[[Reading, Path], Iterator[Values]]] = {
    ".jsonl": Reading._lines,
    ".ndjson": Reading._lines,
    ".json": Reading._lines,
    ".csv": Reading._csv,
    ".parquet": Reading._parquet,
}


@contextlib.contextmanager
def _readable(name: str) -> Iterator[None]:
    """Report a file that can't be read. Raises: LogError: `ROWS_UNREADABLE`."""
    try:
        yield
    except DECODING_ERRORS as cause:
        raise ROWS_UNREADABLE.error(where=name, name=name, cause=cause) from cause


def _listed(now: Listing, before: list[str], where: str) -> str | None:
    return None if [file.name for file in now.files] == before else f"files were added to {where} or removed"
