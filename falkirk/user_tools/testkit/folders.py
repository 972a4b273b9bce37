"""Folders: the files that a test feeds to a source that is a folder. They outlive crashes.

`FileLog` reads them, as in a real run. The declared folder is not touched, and need not exist.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from falkirk.declare.endpoints import Files
from falkirk.errors import FalkirkError
from falkirk.errors.conditions.testkit import ROW_INVALID_BYTES, ROW_INVALID_VALUES
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.plan.plan import Plan
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.theory.ids import LogId
from falkirk.user_tools.testkit.values import json_of, schema_names


class FedFolder:
    """The folder of one source.

    Args: declared: the source. path: an empty folder of the test, in place of the declared one.
    """

    def __init__(self, declared: Files, path: Path, session: SparkSession) -> None:
        self._declared, self._session, self.path = declared, session, path
        self._count = 0
        path.mkdir(parents=True)

    def add(self, rows: Sequence[object]) -> None:
        """Write a file with these rows, as a writer does: under another name until it is complete.

        Raises: DefinitionError: `ROW_INVALID`.
        """
        name = f"{self._count:06}.{self._declared.format}"
        hidden = self.path / f"_{name}"
        match self._declared.format:
            case "json":
                hidden.write_bytes(b"".join(_line(row, self._declared) + b"\n" for row in rows))
            case "csv":
                hidden.write_bytes(_csv(rows, self._declared))
            case "parquet":
                self._write_parquet(rows, hidden)
        hidden.rename(self.path / name)
        self._count += 1

    def log(self, source: str, store: Store) -> FileLog:
        """Return the files as a log. Args: source: its name in the application."""
        return FileLog(source, replace(self._declared, path=str(self.path)), store, poll_s=0.0)

    def _write_parquet(self, rows: Sequence[object], file: Path) -> None:
        values = []
        for row in rows:
            if isinstance(row, bytes | str):
                raise ROW_INVALID_BYTES.error(where=self._declared.where, place=self._declared.address, row=repr(row))
            values.append((json_of(row, self._declared).decode(),))
        parts = file.with_suffix(".parts")
        frame = self._session.createDataFrame(values, "value STRING").coalesce(1)
        parsed = frame.select(F.from_json("value", self._declared.schema or "", {"mode": "FAILFAST"}).alias("row"))
        try:
            parsed.select("row.*").write.parquet(str(parts))
            (part,) = parts.glob("part-*.parquet")
            part.rename(file)
        except SPARK_ERRORS as error:
            raise _invalid(self._declared, first_line(error)) from error
        finally:
            shutil.rmtree(parts, ignore_errors=True)


def file_logs(plan: Plan, folders: Mapping[str, FedFolder], store: Store) -> dict[LogId, FileLog]:
    """Return the files of all sources that batches of a plan read, by log."""
    read = {given.log: given.name for batch in plan.batches for given in batch.inputs if given.folder is not None}
    return {log: folders[name].log(name, store) for log, name in read.items()}


def _line(row: object, declared: Files) -> bytes:
    """Return a line of a file of JSON objects. Raises: DefinitionError: `ROW_INVALID`."""
    if isinstance(row, str):
        return row.encode()
    return row if isinstance(row, bytes) else json_of(row, declared)


def _csv(rows: Sequence[object], declared: Files) -> bytes:
    """Return a file whose first line names the columns. Raises: DefinitionError: `ROW_INVALID`."""
    names = schema_names(declared)
    lines = [_csv_line(names)]
    for row in rows:
        if isinstance(row, str | bytes):
            lines.append(row.encode() if isinstance(row, str) else row)
            continue
        values = json.loads(json_of(row, declared))
        if any(isinstance(value, str) and ("\n" in value or "\r" in value) for value in values.values()):
            raise _invalid(declared, f"{row!r} has a text of several lines.")
        lines.append(_csv_line([values.get(name) for name in names]))
    return b"".join(line + b"\n" for line in lines)


def _invalid(declared: Files, reason: str) -> FalkirkError:
    return ROW_INVALID_VALUES.error(where=declared.where, place=declared.address, reason=reason)


def _csv_line(values: Sequence[Any]) -> bytes:
    """Return a line as Spark reads it: a quote in a text has a backslash. It reads an empty text as null."""
    return ",".join(map(_csv_value, values)).encode()


def _csv_value(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value)
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
