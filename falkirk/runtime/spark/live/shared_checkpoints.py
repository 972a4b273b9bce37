"""Shared checkpoints: the checkpoints of a live region whose home is in an object store.

Spark writes its checkpoint into a folder of the driver's machine, as fast as ever. That folder is a working copy. When
Spark has committed a batch, Falkirk uploads the state files that the object store lacks, and then records the
checkpoint in the store of decisions: the texts of Spark's logs, and the names of all files. A checkpoint counts from
that record on. A commit that was not recorded has not happened: a start makes the working copy equal to the record.

So another machine can resume with the object store and the database alone. A former owner that resumes harms nothing:
the store of decisions refuses its records, and each incarnation uploads into a folder of its own.

    <region>/<incarnation>/<checkpoint>-<try>/state/…    in the object store: the state files that a try has uploaded

A try that failed leaves files that the next try of this incarnation uses, so each try adds some. Nothing is deleted
before an incarnation has recorded a checkpoint: until then, a start may still find that the database is an older copy.

Spark alone knows on which files a version of a state depends, and deletes the others in the working copy. A file that
it has deleted stays in the object store as long as a kept checkpoint has it: nothing is set aside.
"""

import logging
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from falkirk.errors import HomeError, StoreError
from falkirk.errors.conditions.spark import CHECKPOINT_DAMAGED
from falkirk.platform.copies import has_content
from falkirk.platform.data import DataPath
from falkirk.platform.parallel import BackgroundCall, in_parallel
from falkirk.recovery.decision_store import CheckpointCopy, StateFile, Store
from falkirk.runtime.spark.live import checkpoint
from falkirk.runtime.spark.live.checkpoint_files import CheckpointFiles
from falkirk.runtime.spark.live.kept import state_files, state_version
from falkirk.theory.ids import BatchId, LogId, Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("falkirk")

#: The file with Spark's identity of a query. Spark refuses a checkpoint without it.
_METADATA = "metadata"
#: For how long the end of an incarnation waits for its last checkpoint.
_FINISH_S = 5.0
#: After so many errors of deletions, the others wait for another time; and so many places can wait.
_ERRORS_MAX, _UNDELETED_MAX = 8, 10_000
#: The suffix of RocksDB's files.
_SST = ".sst"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedCheckpoint:
    """A checkpoint whose files are in the object store, but which is not recorded.

    Args: copy, added, gone: as of `record_copy`. hidden: see WrittenCheckpoints.
    """

    copy: CheckpointCopy
    added: tuple[StateFile, ...]
    gone: tuple[StateFile, ...]
    hidden: tuple[str, ...] = ()


class SharedCheckpoints(CheckpointFiles):
    """The checkpoints of a region in an object store.

    Args: name: the region. folder: the working copy, Spark's folder. data: the folder of the region in the object
        store. topics: the input of the region. may_delete: returns whether objects that no record names may be deleted.
    """

    def __init__(
        self, name: str, folder: Path, data: DataPath, store: Store, *topics: LogId,
        may_delete: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self._may_delete = may_delete
        self._name, self._spark, self._data, self._store, self._topics = name, folder, data, store, topics
        #: The recorded files, by path and first checkpoint. Only the owner needs them.
        self._files: dict[tuple[str, BatchId], StateFile] = {}
        #: The folder of this incarnation. Each try has a folder in it, so a file is never replaced.
        self._own, self._tries = secrets.token_hex(4), 0
        #: The files that failed tries of this incarnation have uploaded, by path.
        self._sent: dict[str, StateFile] = {}
        #: Whether this incarnation has deleted, or deletes, what former ones left.
        self._is_swept = False
        #: Old files whose deletion failed, and whether this was said.
        self._undeleted, self._has_warned = list[str](), False
        self._upload: BackgroundCall[UploadedCheckpoint] | None = None
        #: The recorded checkpoints, from a restore on: only this process, as the owner, changes them.
        self._copies: dict[BatchId, CheckpointCopy] | None = None

    def places(self) -> object:
        """See CheckpointFiles."""
        return self.numbers()

    def refresh(self) -> None:
        """See CheckpointFiles: the store is asked each time."""

    def numbers(self) -> tuple[BatchId, ...]:
        """See CheckpointFiles."""
        return tuple(self._recorded())

    def _recorded(self) -> dict[BatchId, CheckpointCopy]:
        return self._store.checkpoint_copies(self._name) if self._copies is None else self._copies

    def _copy(self, batch: BatchId) -> CheckpointCopy:
        found = self._recorded().get(batch)
        if found is None:
            raise FileNotFoundError(f"checkpoint {batch} of {self._name}")
        return found

    def made_at_s(self, batch: BatchId) -> float:
        """See CheckpointFiles."""
        return self._copy(batch).made_at_s

    def end_offsets(self, batch: BatchId, topic: LogId) -> Offsets:
        """See CheckpointFiles."""
        copy, name = self._copy(batch), f"offsets/{batch}"
        try:
            return checkpoint.offsets_in(copy.texts[name], topic)
        except (IndexError, KeyError, AttributeError, TypeError, ValueError) as error:
            raise CHECKPOINT_DAMAGED.error(where=self._data / name, batch=batch) from error

    def damage(self, batch: BatchId) -> str | None:
        """See CheckpointFiles. It was whole when it was recorded, and a restore compares each file."""
        return None

    def open(self, session: "SparkSession") -> None:
        """See CheckpointFiles: tasks are in the driver's process, and see the folder."""

    def rewind(self, batch: BatchId) -> None:
        """See CheckpointFiles."""
        self._upload = self._copies = None  # an upload that still runs will not be recorded
        self._store.rewind_copies(self._name, batch)
        self._files.clear()

    def set_aside(self, batches: Collection[BatchId], *, newest: BatchId, retain: int) -> None:
        """See CheckpointFiles: the object store has them."""

    def keep_only(self, batches: Sequence[BatchId]) -> None:
        """See CheckpointFiles."""
        left = {n: c for n, c in self._recorded().items() if n >= batches[-1] or n in batches}
        unneeded = [f for f in self._files.values() if f.gone is not None and not any(map(f.is_of, left))]
        self._store.keep_copies(self._name, batches, unneeded)
        if self._copies is not None:
            self._copies = left
        for file in unneeded:
            del self._files[file.path, file.first]
        due, self._undeleted = self._undeleted, []
        if unneeded:
            kept = {file.folder for file in (*self._files.values(), *tuple(self._sent.values()))}
            due = [*due, *_with_folders([file.place for file in unneeded], kept)]
        if due:
            BackgroundCall(partial(self._delete_old, due))

    # -- restoring ----------------------------------------------------------------------------------------------------

    def restore(self, batch: BatchId) -> str | None:
        """See CheckpointFiles."""
        self._upload, self._own, self._sent, self._is_swept = None, secrets.token_hex(4), {}, False
        self._files = {(file.path, file.first): file for file in self._store.state_files(self._name)}
        self._copies, self.waits_for = self._store.checkpoint_copies(self._name), ""
        self._store.require_charge()
        return self._begin(batch)

    def _begin(self, batch: BatchId) -> str | None:
        """Begin an incarnation with a checkpoint, or without one (-1). Returns, raises: as `copy_to`.

        The working copy has exactly the files of the checkpoint after that.
        """
        return self.copy_to(self._spark, batch)

    def copy_to(self, folder: Path, batch: BatchId) -> str | None:
        """Make a folder equal to a checkpoint, or to none (-1). Returns: the damage, if a file has other content.

        Files of the folder with the right content stay. Raises: StoreError: `DATA_AWAY`, `DATA_UNUSABLE`.
        """
        if batch < 0:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        texts = self._copy(batch).texts
        wanted = {file.path: file for file in self._store.state_files(self._name) if file.is_of(batch)}
        for name in ("commits", "offsets", "sources", "kept", "twin"):  # before the states: no commit without its state
            shutil.rmtree(folder / name, ignore_errors=True)
        for path in list((folder / "state").rglob("*")):
            if path.is_file() and str(path.relative_to(folder)) not in wanted:
                path.unlink(missing_ok=True)
        try:
            in_parallel([partial(self._fetch, folder / path, file) for path, file in wanted.items()])
        except HomeError as error:
            return error.message
        write_logs(folder, texts)
        return checkpoint.damage(folder, batch, *self._topics)

    def _fetch(self, path: Path, file: StateFile) -> None:
        if not has_content(path, file.size, file.checksum):
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of other content
            (self._data / file.place).copy_to(path, file.size, file.checksum)

    def _delete_strays(self, own: str) -> None:
        """Delete the objects that no record names: of uploads that were cut off, and of a rollback.

        A former owner that resumes deletes none of the present one: files of that one began after the listing, because
        the store confirms after it that this process was still the owner. The next incarnation of this process is told
        apart in the same way.

        Args: own: the folder of this incarnation, which has files without a record.
        """
        try:
            found, folders = self._data.listed(), {child.name for child in self._data.children()}
            self._store.require_charge()
            known = self._store.state_files(self._name)
        except StoreError as error:
            log.warning("%s: its old files can't be listed, which the next start tries again: %s", self._name, error)
            return
        if self._own != own:
            return
        places, needed = {file.place for file in known}, {file.folder.partition("/")[0] for file in known} | {own}
        left = [name for name in found if name not in places and name.partition("/")[0] in {*needed, name} - {own}]
        gone = [f"{name}/" for name in sorted(folders - needed - set(found))]
        self._delete_old([*gone, *_with_folders(left, {file.folder for file in known})])

    def _delete_old(self, places: list[str]) -> None:
        """Delete objects and folders that no checkpoint needs. After an error, the next `keep_only` tries again."""
        left = self._delete(places)
        self._undeleted = [*self._undeleted, *left][:_UNDELETED_MAX]
        if left and not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s: old files in the object store can't be deleted, which it tries again: %s", self._name, left[0]
            )

    def _delete(self, places: Iterable[str]) -> list[str]:
        """Delete objects and folders; a folder ends with a slash. Return those that the object store has not deleted.

        After some errors, it is not asked for the others. The next start deletes all that no record names.
        """
        failed = list[str]()

        def delete(place: str) -> str:
            data = self._data / place.rstrip("/")
            try:
                if len(failed) < _ERRORS_MAX:
                    (data.remove if place.endswith("/") else data.delete)()
                    return ""
            except StoreError:
                failed.append(place)
            return place

        return list(filter(None, in_parallel([partial(delete, place) for place in places])))

    # -- saving -------------------------------------------------------------------------------------------------------

    def save(self, last: BatchId) -> BatchId:
        """See CheckpointFiles. One checkpoint is uploaded at a time, and then the newest one."""
        upload = self._upload
        if upload is not None and upload.is_done:
            self._take(upload)
        newest = max(self.numbers(), default=BatchId(-1))
        if self._upload is None and last > newest:
            known = {file.path: file for file in self._files.values() if file.gone is None}
            self._tries += 1
            own = f"{self._own}/{last}-{self._tries}"
            self._upload = BackgroundCall(partial(self._upload_of, last, known, self._sent, own))
        return newest

    def finish(self, last: BatchId) -> None:
        """See CheckpointFiles. Another upload may be under way first."""
        until_s = time.monotonic() + _FINISH_S
        with suppress(StoreError):  # the next start replays more
            while self.save(last) < last and self._upload is not None and (left_s := until_s - time.monotonic()) > 0:
                self._upload.wait(left_s)

    def _take(self, upload: BackgroundCall[UploadedCheckpoint]) -> None:
        try:
            done = upload.result()
        except (StoreError, FileNotFoundError) as error:
            self._upload = None
            if isinstance(error, StoreError) and error.condition != "DATA_AWAY":
                raise
            # Without a file, Spark has deleted the checkpoint, or a part of it, and there is a newer one.
            if isinstance(error, StoreError) and not self.waits_for:
                log.warning("%s: checkpoints wait for the object store: %s", self._name, error.message)
                self.waits_for = f"checkpoints wait for the object store: {error.message}"
            return
        self._record(done)

    def _record(self, done: UploadedCheckpoint) -> None:
        """Record a checkpoint. Raises: StoreError: the next call tries again with the same one."""
        self._store.record_copy(self._name, done.copy, done.added, done.gone)
        for file in done.gone:
            self._files[file.path, file.first] = replace(file, gone=done.copy.batch)
        for file in done.added:
            self._files[file.path, file.first] = file
        if self._copies is not None:
            self._copies[done.copy.batch] = done.copy
        self._upload, self._sent, self.waits_for = None, {}, ""
        if not self._is_swept and self._may_delete():
            self._is_swept = True
            BackgroundCall(partial(self._delete_strays, self._own))

    def _upload_of(
        self, batch: BatchId, known: dict[str, StateFile], sent: dict[str, StateFile], own: str
    ) -> UploadedCheckpoint:  # fmt: skip
        """Upload the files that the object store lacks. Runs in another thread.

        Spark writes an SST file in place, and then the snapshot that names it. So SST files are listed after the
        snapshots: each snapshot in the copy has all of its files.

        Args: known: the recorded files. sent: those of former tries, to which this one adds its own, even if it fails.
            own: the folder of this try.
        Raises: FileNotFoundError: Spark has deleted the checkpoint, or a file that was not uploaded before. StoreError.
        """
        copy = self._copy_of(batch)
        every = self._state_files(batch, lambda path: not is_sst(path.name))
        every |= self._state_files(batch, lambda path: is_sst(path.name))
        if (wrong := checkpoint.damage(self._spark, batch, *self._topics)) is not None:
            raise FileNotFoundError(wrong)
        new = {name: path for name, path in every.items() if name not in known or _differs(path, known[name])}
        in_parallel([partial(self._send, path, name, sent, own) for name, path in new.items()])
        added = tuple(replace(sent[name], first=batch) for name in new)
        gone = tuple(file for name, file in known.items() if name not in every or name in new)
        return UploadedCheckpoint(copy=copy, added=added, gone=gone)

    def _copy_of(self, batch: BatchId) -> CheckpointCopy:
        """Return the texts of Spark's logs at a checkpoint. Raises: FileNotFoundError: Spark has deleted it."""
        logs = [
            f"{folder}/{n}" for folder, n in (("offsets", batch - 1), ("offsets", batch), ("commits", batch)) if n >= 0
        ]
        texts = {name: (self._spark / name).read_text() for name in (_METADATA, *logs)}
        return CheckpointCopy(batch=batch, texts=texts, made_at_s=checkpoint.committed_at_s(self._spark, batch))

    def _state_files(self, batch: BatchId, which: Callable[[Path], bool]) -> dict[str, Path]:
        """Return the files of the states at a checkpoint, by path, and those of which Spark alone knows the version."""
        return {
            str(path.relative_to(self._spark)): path
            for path in state_files(self._spark)
            if not path.name.startswith(".") and which(path) and (state_version(path) or 0) <= batch + 1
        }

    def _send(self, path: Path, name: str, sent: dict[str, StateFile], own: str) -> None:
        """Upload a file, unless a former try did. Raises: as `_upload_of`."""
        if name in sent and not _differs(path, sent[name]):
            return
        size, checksum = (self._data / f"{own}/{name}").copy_from(path)
        sent[name] = StateFile(path=name, folder=own, size=size, checksum=checksum, first=BatchId(-1))


def is_sst(name: str) -> bool:
    """Return whether a file is one of RocksDB's tables, which snapshots name."""
    return name.endswith(_SST)


def write_logs(folder: Path, texts: Mapping[str, str]) -> None:
    """Write Spark's logs into a folder. Args: texts: by their paths in it."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        path.write_text(text)


def _with_folders(places: Iterable[str], kept: Collection[str]) -> list[str]:
    """Return objects to delete; those in the folder of a try that is not kept become this folder, with a slash.

    For each object that it deletes, pyarrow leaves an empty one with the name of its folder. For a folder, it leaves
    one for the folder around it alone, here that of the incarnation.
    """
    found = dict[str, None]()
    for place in places:
        parts = place.split("/")
        folder = "/".join(parts[:2])
        found[place if len(parts) < 3 or folder in kept else f"{folder}/"] = None
    return list(found)


def _differs(path: Path, known: StateFile) -> bool:
    """Return whether a local file is another one than the uploaded one. Spark writes most files once, or in place."""
    if state_version(path) is None and not is_sst(path.name):
        return not has_content(path, known.size, known.checksum)
    try:
        return path.stat().st_size != known.size
    except FileNotFoundError:
        return False
