"""A folder of files as a target. The folder of an epoch gets its final name when it is complete."""

import json
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from falkirk.declare.endpoints import Files
from falkirk.errors import HomeError
from falkirk.errors.conditions.runtime import FOLDER_DAMAGED, FOLDER_OF_ANOTHER
from falkirk.errors.spark import SPARK_ERRORS
from falkirk.home.folder import write_atomically
from falkirk.runtime.epochs.inputs import ROW
from falkirk.runtime.rows import JSON_OPTIONS
from falkirk.runtime.sinks.target import NESTED, in_order, release_failed
from falkirk.system import private
from falkirk.system.durable import make_folder, sync, sync_folder
from falkirk.system.stored import parse_json
from falkirk.theory.ids import EpochNumber

#: The file that names the home of the folder and the number of delivered epochs. Readers of the folder ignore it.
_NOTE = "_falkirk.json"
#: The beginning of the name of an incomplete epoch's folder; earlier versions used the second one. Readers ignore names
#: that begin with a dot. Spark reads a folder whose name begins with an underscore if the name has a `=`.
_BEING_MADE = (".epoch-", "_epoch=")
_EPOCH = re.compile(r"epoch=(\d{1,18})", re.ASCII)
_FILE_OPTIONS = {"csv": {"header": "true"}, "json": JSON_OPTIONS}


class FolderTarget:
    """A folder with a folder of files per epoch."""

    def __init__(self, to: Files, application: str) -> None:
        self._to, self._application, self._path = to, application, Path(to.path)

    def seen(self) -> EpochNumber:
        """See Target. Raises: HomeError: `FOLDER_OF_ANOTHER`. SparkError: `RELEASE_FAILED`."""
        try:
            return self._seen()
        except OSError as error:
            raise release_failed(self._to.path, error) from error

    def _seen(self) -> EpochNumber:
        note = self._path / _NOTE
        if not note.exists():
            if not self._path.exists():
                make_folder(self._path)
                private.publish(self._path)
            self._note(EpochNumber(0))
        elif self._read_note().get("application") != self._application:
            raise FOLDER_OF_ANOTHER.error(where=self._path)
        found = (_EPOCH.fullmatch(p.name) for p in self._path.glob("epoch=*"))  # folders with other names are not ours
        named = max((int(name[1]) + 1 for name in found if name), default=0)
        return EpochNumber(max(named, self._noted() or 0))

    def _noted(self) -> EpochNumber | None:
        """Return the epoch, exclusive, up to which all were delivered, according to the folder's note.

        Their folders may have been moved away since. None: an older Falkirk wrote the note.
        """
        upto = self._read_note().get("upto")
        if not isinstance(upto, int | None):
            raise self._damaged(f"upto={upto!r}")
        return None if upto is None else EpochNumber(upto)

    def _read_note(self) -> dict[str, Any]:
        try:
            content = parse_json((self._path / _NOTE).read_text())
        except ValueError as error:
            raise self._damaged(str(error)) from error
        if not isinstance(content, dict):
            raise self._damaged("it is no object")
        return content

    def _damaged(self, why: str) -> HomeError:
        return FOLDER_DAMAGED.error(where=self._path / _NOTE, why=why)

    def _note(self, upto: EpochNumber) -> None:
        write_atomically(self._path / _NOTE, json.dumps({"application": self._application, "upto": upto}))
        private.publish(self._path / _NOTE)

    def delivered(self) -> EpochNumber | None:
        """See Target. Raises: as `seen`."""
        self.seen()
        try:
            return self._noted()
        except OSError as error:
            raise release_failed(self._to.path, error) from error

    def deliver(self, epoch: EpochNumber, rows: DataFrame, *, few: bool = False) -> DataFrame | None:
        """See Target. Raises: SparkError: `RELEASE_FAILED`."""
        named = self._named(epoch)
        self.seen()
        try:
            if (self._noted() or 0) > epoch:
                return None
            if not named.exists():
                self._write(rows, named, self._being_made(epoch), few=few)
            self._note(EpochNumber(epoch + 1))
        except (*SPARK_ERRORS, OSError) as error:
            raise release_failed(self._to.path, error) from error
        return None

    def _write(self, rows: DataFrame, named: Path, being_made: Path, *, few: bool) -> None:
        for stray in (s for name in _BEING_MADE for s in self._path.glob(f"{name}*")):
            shutil.rmtree(stray, ignore_errors=True)
        data = in_order(rows, few=few)
        data = data.select(*[_written(rows, c, self._to.format) for c in rows.columns if c != ROW])
        data.write.format(self._to.format).options(**_FILE_OPTIONS.get(self._to.format, {})).save(str(being_made))
        private.publish(being_made)
        sync(being_made)  # so that a folder with its final name is complete even after a power loss
        os.replace(being_made, named)
        sync_folder(self._path)

    def _named(self, epoch: EpochNumber) -> Path:
        return self._path / f"epoch={epoch:010d}"

    def _being_made(self, epoch: EpochNumber) -> Path:
        """Return a new name for this attempt, because the job of an abandoned attempt may still write."""
        return self._path / f"{_BEING_MADE[0]}{epoch:010d}-{uuid.uuid4().hex[:8]}"


def _written(rows: DataFrame, name: str, file_format: str) -> Column:
    """Return a column as a file format needs it. CSV has only text, so nested values become JSON."""
    column, kind = F.col(f"`{name}`"), rows.schema[name].dataType.simpleString()
    if file_format == "csv" and kind.startswith(NESTED):
        return F.to_json(column, JSON_OPTIONS).alias(name)
    return F.base64(column).alias(name) if file_format == "csv" and kind == "binary" else column
