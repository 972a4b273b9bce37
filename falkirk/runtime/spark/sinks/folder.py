"""A folder of files as a target. The folder of an epoch gets its final name when it is complete.

A program that may write the folder can make folders with such names there, and change the note about it. So this home
signs both. A folder without a valid proof does not count as delivered, and a folder in the way of an epoch makes its
sink wait.
"""

import hmac
import json
import logging
import os
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from falkirk.declare.endpoints import Files
from falkirk.errors import HomeError
from falkirk.errors.conditions.spark import FOLDER_DAMAGED, FOLDER_OF_ANOTHER
from falkirk.errors.spark import SPARK_ERRORS
from falkirk.platform import private
from falkirk.platform.durable import make_folder, sync, sync_folder, write_atomically
from falkirk.platform.stored import parse_json
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.rows import JSON_OPTIONS
from falkirk.runtime.spark.sinks.target import NESTED, release_failed, sorted_by_place
from falkirk.theory.ids import EpochNumber

log = logging.getLogger("falkirk")

#: The file in the folder of an epoch that proves that this home wrote it. Readers ignore it.
_PROOF = "_falkirk"
_TAG_DIGITS = 32
#: The kind of decision that says which epochs an earlier version of Falkirk has delivered to a folder, without proofs.
_UNPROVEN = "folder"
#: The file that names the home of the folder and the number of delivered epochs. Readers of the folder ignore it.
_NOTE = "_falkirk.json"
#: The beginning of the name of an incomplete epoch's folder; earlier versions used the second one. Readers ignore names
#: that begin with a dot. Spark reads a folder whose name begins with an underscore if the name has a `=`.
_BEING_MADE = (".epoch-", "_epoch=")
_EPOCH = re.compile(r"epoch=(\d{1,18})", re.ASCII)
_FILE_OPTIONS = {"csv": {"header": "true"}, "json": JSON_OPTIONS}


@dataclass(frozen=True, kw_only=True)
class Proofs:
    """Makes and checks the proofs of one sink. Args: key: signs them. store: of the home. sink: its name."""

    key: bytes
    store: Store
    sink: str

    def of(self, text: str) -> str:
        """Return the proof that this home has written the folder of an epoch, or a note."""
        return hmac.digest(self.key, f"{self.sink}/{text}".encode(), "sha256").hex()[:_TAG_DIGITS]

    def holds(self, text: str, proof: object) -> bool:
        """Return whether a proof is the one of a text."""
        return isinstance(proof, str) and hmac.compare_digest(self.of(text).encode(), proof.encode(errors="replace"))

    def unproven_below(self) -> EpochNumber | None:
        """Return the epoch, exclusive, up to which epochs need no proof; None: this home has not seen the folder."""
        decided = self.store.decision(_UNPROVEN, self.sink, 0)
        return None if decided is None else EpochNumber(int(decided.content["below"]))

    def trust_below(self, below: EpochNumber) -> None:
        """Record that epochs before this one need no proof."""
        self.store.record_decision(_UNPROVEN, self.sink, 0, {"below": below})


class FolderTarget:
    """A folder with a folder of files per epoch. Args: application: the identity of the home."""

    def __init__(self, to: Files, application: str, proofs: Proofs) -> None:
        self._to, self._application, self._path, self._proofs = to, application, Path(to.path), proofs
        self._below: EpochNumber | None = None
        #: The folders that this home has not written, as last reported.
        self._foreign: list[str] = []

    def visible(self) -> EpochNumber:
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
                private.make_readable(self._path)
            self._note(EpochNumber(0))
        elif self._read_note().get("application") != self._application:
            raise FOLDER_OF_ANOTHER.error(where=self._path)
        found = (_EPOCH.fullmatch(p.name) for p in self._path.glob("epoch=*"))  # folders with other names are not ours
        names = sorted(((int(name[1]), name[0]) for name in found if name), reverse=True)
        below = self._unproven_below(names[0][0] + 1 if names else 0)
        foreign: list[str] = []
        named = 0
        for number, name in names:
            if number < below or self._is_proven(name):
                named = number + 1
                break
            foreign.append(name)
        self._report(foreign)
        return EpochNumber(max(named, self._noted() or 0))

    def _unproven_below(self, named: int = 0) -> EpochNumber:
        """Return the epoch, exclusive, up to which an earlier version of Falkirk has delivered, without proofs.

        Args: named: by the names of its folders.
        """
        if self._below is None:
            self._below = self._proofs.unproven_below()
        if self._below is None:
            note = self._read_note()
            upto = note.get("upto")
            below = 0 if "proof" in note else max(named, upto if isinstance(upto, int) else 0)
            self._proofs.trust_below(EpochNumber(below))
            self._below = EpochNumber(below)
        return self._below

    def _is_proven(self, name: str) -> bool:
        """Return whether this home has written the folder of an epoch."""
        try:
            with open(os.open(self._path / name / _PROOF, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
                return self._proofs.holds(name, file.read(_TAG_DIGITS).decode("ascii", errors="replace"))
        except OSError:
            return False

    def _report(self, foreign: list[str]) -> None:
        if new := [name for name in foreign if name not in self._foreign]:
            log.warning(
                "%s: %d folders that this home has not written do not count, %a first", self._path, len(new), new[-1]
            )
        self._foreign = foreign

    def _noted(self) -> EpochNumber | None:
        """Return the epoch, exclusive, up to which all were delivered, according to the folder's note.

        Their folders may have been moved away since. None: an older Falkirk wrote the note.
        """
        note = self._read_note()
        upto = note.get("upto")
        if not isinstance(upto, int | None):
            raise self._damaged(f"upto={upto!r}")
        if "proof" in note:
            if not self._proofs.holds(f"upto {upto}", note["proof"]):
                raise self._damaged("its proof does not fit, so somebody else wrote it")
        elif upto is not None and upto > self._unproven_below():
            raise self._damaged("it has no proof, so somebody else wrote it")
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
        proof = self._proofs.of(f"upto {upto}")
        note = {"application": self._application, "upto": upto, "proof": proof}
        write_atomically(self._path / _NOTE, json.dumps(note))
        private.make_readable(self._path / _NOTE)

    def delivered(self) -> EpochNumber | None:
        """See Target. Raises: as `seen`."""
        self.visible()
        try:
            return self._noted()
        except OSError as error:
            raise release_failed(self._to.path, error) from error

    def deliver(self, epoch: EpochNumber, rows: DataFrame, *, few: bool = False) -> DataFrame | None:
        """See Target. Raises: SparkError: `RELEASE_FAILED`. StoreError: as `require_charge`."""
        named = self._named(epoch)
        self.visible()
        try:
            if (self._noted() or 0) > epoch:
                return None
            if named.exists() and epoch >= self._unproven_below() and not self._is_proven(named.name):
                raise FileExistsError(f"somebody else made {named}: remove it")
            if not named.exists():
                self._write(rows, named, self._being_made(epoch), few=few)
            self._note(EpochNumber(epoch + 1))
        except (*SPARK_ERRORS, OSError) as error:
            raise release_failed(self._to.path, error) from error
        return None

    def _write(self, rows: DataFrame, named: Path, being_made: Path, *, few: bool) -> None:
        for stray in (s for name in _BEING_MADE for s in self._path.glob(f"{name}*")):
            shutil.rmtree(stray, ignore_errors=True)
        data = sorted_by_place(rows, few=few)
        data = data.select(*[_written(rows, c, self._to.format) for c in rows.columns if c != ROW])
        data.write.format(self._to.format).options(**_FILE_OPTIONS.get(self._to.format, {})).save(str(being_made))
        self._prove(being_made, named.name)
        private.make_readable(being_made)
        sync(being_made)  # so that a folder with its final name is complete even after a power loss
        self._proofs.store.require_charge()  # the present owner may have cancelled this epoch meanwhile
        os.replace(being_made, named)
        sync_folder(self._path)

    def _prove(self, folder: Path, name: str) -> None:
        (folder / _PROOF).write_text(self._proofs.of(name))

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
