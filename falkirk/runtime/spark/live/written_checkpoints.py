"""Written checkpoints: the checkpoints of a live region on a cluster whose home is in an object store.

Executors do not see the folders of the driver's machine. So they write the state files into the object store
themselves, and the driver's folder has Spark's logs alone (RegionFiles.java). When Spark has committed a batch, all its
state files are there. Falkirk lists them, and then records the checkpoint as on one machine (shared_checkpoints.py).

    <region>/<incarnation>/live/state/…    the files that the tasks of an incarnation have written
    <region>/<incarnation>/gone/state/…    an empty object for each file that Spark has deleted; the file itself stays
    <region>/<incarnation>/base.json       the files of former incarnations with which this one began

An incarnation writes into its own folder alone, and Spark deletes nothing there. So a former owner whose executors
still run changes no file of the present one.
"""

import json
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from falkirk.platform.parallel import BackgroundCall, in_parallel
from falkirk.recovery.decision_store import StateFile
from falkirk.runtime.spark.live import checkpoint
from falkirk.runtime.spark.live.kept import state_version
from falkirk.runtime.spark.live.shared_checkpoints import SharedCheckpoints, UploadedCheckpoint, is_sst, write_logs
from falkirk.theory.ids import BatchId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: As in RegionFiles.java: its scheme, and the names in the folder of an incarnation.
_SCHEME, _LIVE, _GONE, _BASE = "falkirk", "live", "gone", "base.json"
#: Settings of Spark and Hadoop, with the classes for this scheme.
_FILES = ("fs.falkirk.impl", "org.falkirk.RegionFiles")
_MANAGER = ("spark.sql.streaming.checkpointFileManagerClass", "org.falkirk.RegionFileManager")


class WrittenCheckpoints(SharedCheckpoints):
    """The checkpoints of a region whose states executors write into an object store. Args: as of SharedCheckpoints."""

    #: The state files of the checkpoint with which this incarnation began, by path.
    _base: dict[str, StateFile]
    #: The location that a session knows.
    _opened: str | None = None

    @property
    def location(self) -> str:
        """See CheckpointFiles."""
        return f"{_SCHEME}://{str(self._data).partition('://')[2]}/{self._own}/{_LIVE}"

    def open(self, session: "SparkSession") -> None:
        """See CheckpointFiles. A former query of this driver can write no more logs then."""
        jvm: Any = session._jvm
        if self._opened is not None:
            jvm.org.falkirk.RegionFiles.end(self._opened)
        jvm.org.falkirk.RegionFiles.begin(self.location, str(self._spark))
        self._opened = self.location
        session._jsc.hadoopConfiguration().set(*_FILES)
        session.conf.set(*_MANAGER)

    def state_names(self, batch: BatchId) -> list[str]:
        """See CheckpointFiles."""
        return [file.path for file in self._files.values() if file.is_of(batch)]

    def _begin(self, batch: BatchId) -> str | None:
        """See SharedCheckpoints. Tasks read the files of former incarnations where these have written them."""
        shutil.rmtree(self._spark, ignore_errors=True)
        base = {file.path: file for file in self._files.values() if batch >= 0 and file.is_of(batch)}
        if batch >= 0:
            if (wrong := self._lost(base.values())) is not None:
                return wrong
            write_logs(self._spark, self._copy(batch).texts)
            if (wrong := self._damage(batch, {path: file.size for path, file in base.items()})) is not None:
                return wrong
        named = {path: [file.folder, file.size] for path, file in base.items()}
        (self._data / self._own / _BASE).write_text(json.dumps(named))
        self._base = base
        return None

    def _damage(self, batch: BatchId, states: dict[str, int]) -> str | None:
        return checkpoint.damage(self._spark, batch, *self._topics, states=states)

    def _lost(self, files: Iterable[StateFile]) -> str | None:
        """Return the damage if an object is missing, or has another size. Spark itself compares the contents."""
        by_folder = dict[str, list[StateFile]]()
        for file in files:
            by_folder.setdefault(file.folder, []).append(file)
        listed = in_parallel([(self._data / folder).sizes for folder in by_folder])
        for known, sizes in zip(by_folder.values(), listed, strict=True):
            for file in known:
                size = sizes.get(file.path)
                if size is None and not (self._data / file.place).exists():  # a listing may lag
                    return f"{file.path} is missing"
                if size not in (None, file.size):
                    return f"{file.path} has {size} bytes and was written with {file.size}"
        return None

    def _upload_of(
        self, batch: BatchId, known: dict[str, StateFile], sent: dict[str, StateFile], own: str
    ) -> UploadedCheckpoint:  # fmt: skip
        """Name the files that the tasks have uploaded. Runs in another thread. Args, raises: see SharedCheckpoints.

        Spark uploads an SST file before the snapshot that names it, so SST files are listed after the snapshots. The
        deletions are listed first, and the next checkpoint notes later ones.
        """
        incarnation, base = self._data / own.partition("/")[0], self._base
        folder = f"{incarnation.name}/{_LIVE}"
        copy = self._copy_of(batch)
        hidden = set((incarnation / _GONE).sizes())
        sizes = {path: size for path, size in (incarnation / _LIVE).sizes().items() if not is_sst(path)}
        sizes |= {path: size for path, size in (incarnation / _LIVE).sizes().items() if is_sst(path)}
        written = {
            path: size for path, size in sizes.items()
            if path not in hidden and (state_version(Path(path)) or 0) <= batch + 1
        }  # fmt: skip
        every = {path: file.size for path, file in base.items() if path not in hidden} | written
        if (wrong := self._damage(batch, every)) is not None:
            raise FileNotFoundError(wrong)
        new = {
            path: size for path, size in written.items()
            if path not in known or (known[path].folder, known[path].size) != (folder, size)
        }  # fmt: skip
        added = tuple(
            StateFile(path=path, folder=folder, size=size, checksum=None, first=batch) for path, size in new.items()
        )
        gone = tuple(file for path, file in known.items() if path not in every or path in new)
        return UploadedCheckpoint(copy=copy, added=added, gone=gone, hidden=tuple(hidden - set(base)))

    def _record(self, done: UploadedCheckpoint) -> None:
        """See SharedCheckpoints. Then delete the files of this incarnation that Spark has deleted and no record names.

        Their empty objects go last, so that Spark never sees such a file again.
        """
        super()._record(done)
        recorded = {file.place for file in (*self._files.values(), *done.added)}
        own, live = self._data / self._own, f"{self._own}/{_LIVE}"
        due = [path for path in done.hidden if f"{live}/{path}" not in recorded]
        if due:
            BackgroundCall(partial(self._delete_hidden, own.name, due))

    def _delete_hidden(self, own: str, paths: list[str]) -> None:
        """Delete files, and then their empty objects. After an error, those stay, and the next record tries again."""
        if not self._delete([f"{own}/{_LIVE}/{path}" for path in paths]):
            self._delete([f"{own}/{_GONE}/{path}" for path in paths])
