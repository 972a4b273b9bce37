"""Rows of any system: topics, files of rows and tables, each row at its place, streamed and never loaded whole.

A place is written as

    kafka:orders                       a topic, its values JSON objects
    orders.jsonl, orders.csv           a file: JSON lines (.jsonl, .ndjson, .json), CSV with a header, .parquet
    orders/                            a folder: all such files in it, each a log of its own
    postgresql://user@host/db#orders   a table, by SQLAlchemy's URL
    sqlite:///shop.db#orders:id        … in the order of a column
"""

import contextlib
import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from falkirk.check.run import Place, Values
from falkirk.check.topics import no_object, read_topic
from falkirk.errors import DefinitionError, LogError

Row = tuple[Place, Values]
BATCH_ROWS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How rows are read.

    Args:
        kafka: settings of confluent_kafka's client, for topics. decimal: whether numbers with a fraction are
            decimals, exactly as written, instead of floats. ignored: columns that are left out.
    """

    kafka: Mapping[str, Any] = field(default_factory=dict)
    decimal: bool = False
    ignored: frozenset[str] = frozenset()

    def rows(self, where: str) -> Iterator[Row]:
        """Yield the rows of a place, in the order that each of its logs has.

        Raises: DefinitionError: `PLACE_INVALID`. LogError: `ROWS_UNREADABLE`, `TOPIC_MISSING`, `TOPIC_UNREADABLE`.
        """
        for place, values in self._read(where):
            if self.ignored:
                values = {name: value for name, value in values.items() if name not in self.ignored}
            yield place, values

    def _read(self, where: str) -> Iterator[Row]:
        if where.startswith("kafka:"):
            return self._topic(where.removeprefix("kafka:"))
        if "://" in where:
            return self._table(where)
        path = Path(where)
        if path.is_dir():
            files = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES)
            return (row for file in files for row in self._file(file, f"{where.rstrip('/')}/{file.name}"))
        return self._file(path, where)

    def _topic(self, topic: str) -> Iterator[Row]:
        if "bootstrap.servers" not in self.kafka:
            raise DefinitionError("PLACE_INVALID", f"topic {topic} has no broker.", hint="Name it with --broker.")
        for record in read_topic(self.kafka, topic):
            yield record.place, self._json(record.value)

    def _json(self, text: bytes | None) -> Values:
        try:
            values = json.loads(text or b"", parse_float=self._fraction)
        except ValueError:
            values = None
        return values if isinstance(values, dict) else no_object(text)

    def _file(self, path: Path, name: str) -> Iterator[Row]:
        read = _SUFFIXES.get(path.suffix)
        if read is None or not path.is_file():
            raise LogError(
                "ROWS_UNREADABLE",
                f"{name} is no file of rows" if path.is_file() else f"there is no file {name}",
                hint=f"Rows are read from {', '.join(_SUFFIXES)}, kafka:TOPIC and DATABASE-URL#TABLE.",
                where=name,
            )
        try:
            for number, values in enumerate(read(self, path)):
                yield Place(name, 0, number), values
        except (OSError, UnicodeDecodeError, ValueError) as cause:
            raise LogError("ROWS_UNREADABLE", f"{name} could not be read: {cause}", where=name) from cause

    def _lines(self, path: Path) -> Iterator[Values]:
        with path.open("rb") as file:
            for line in file:
                if line.strip():
                    yield self._json(line)

    def _csv(self, path: Path) -> Iterator[Values]:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                yield {name: self._of_text(value) for name, value in row.items()}

    def _parquet(self, path: Path) -> Iterator[Values]:
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                for row in batch.to_pylist():
                    yield {name: self._plain(value) for name, value in row.items()}

    def _table(self, where: str) -> Iterator[Row]:
        import sqlalchemy as sql
        from sqlalchemy.exc import SQLAlchemyError

        url, _, rest = where.partition("#")
        name, _, order = rest.partition(":")
        if not name:
            raise DefinitionError("PLACE_INVALID", "a database's URL needs a table.", hint="Write URL#TABLE.")
        schema, _, table_name = name.rpartition(".")
        try:
            with contextlib.ExitStack() as stack:
                # The driver that the extra `postgres` brings; one that is named is left alone.
                engine = sql.create_engine(re.sub("^postgres(ql)?:", "postgresql+psycopg:", url))
                stack.callback(engine.dispose)
                table = sql.Table(table_name, sql.MetaData(), schema=schema or None, autoload_with=engine)
                chosen = sql.select(table).order_by(table.c[order]) if order else sql.select(table)
                connection = stack.enter_context(engine.connect())
                streamed = connection.execution_options(stream_results=True, yield_per=BATCH_ROWS)
                for number, row in enumerate(streamed.execute(chosen).mappings()):
                    yield Place(name, 0, number), {column: self._plain(value) for column, value in row.items()}
        except (SQLAlchemyError, KeyError, ImportError) as cause:
            raise LogError("ROWS_UNREADABLE", f"table {rest} could not be read: {cause}", where=name) from cause

    def _fraction(self, text: str) -> float | Decimal:
        return Decimal(text) if self.decimal else float(text)

    def _of_text(self, text: object) -> object:
        """Return a field of a CSV file: a number if it is written as one, None if it is empty."""
        if not isinstance(text, str):
            return text
        try:
            number = int(text)
            return number if str(number) == text else text
        except ValueError:
            pass
        try:
            return self._fraction(text) if text[-1:].isdigit() and text.lstrip("-")[:1].isdigit() else text or None
        except (ValueError, ArithmeticError):
            return text

    def _plain(self, value: object) -> object:
        """Return a value of a typed column as the logs of JSON have it, so that both can be compared."""
        if isinstance(value, float):
            return Decimal(repr(value)) if self.decimal else value
        if isinstance(value, Decimal):
            return value if self.decimal else int(value) if value == value.to_integral_value() else float(value)
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, Mapping):
            return {name: self._plain(each) for name, each in value.items()}
        return [self._plain(each) for each in value] if isinstance(value, list | tuple) else value


_SUFFIXES: dict[str, Callable[[Reading, Path], Iterator[Values]]] = {
    ".jsonl": Reading._lines,
    ".ndjson": Reading._lines,
    ".json": Reading._lines,
    ".csv": Reading._csv,
    ".parquet": Reading._parquet,
}
