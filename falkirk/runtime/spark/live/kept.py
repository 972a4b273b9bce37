"""Kept checkpoints: the files of old checkpoints of a live region, set aside from those that Spark deletes.

Spark keeps the states of its last N batches. A history may ask for a checkpoint long before: from the last hours, or
from before a night without input. So Falkirk sets the files of such a checkpoint aside while Spark still has all of
them: as hard links, which take no space while Spark keeps the file too. A file system without hard links gets copies.

Only Spark knows on which files a version of a state depends. So Falkirk takes every file of the state, except versions
after the checkpoint. Spark never changes a file after it was written, and deletes none that a kept version needs.

    kept/<batch>/offsets, commits, state    as in Spark's checkpoint; the folder is named so once it is complete
"""

import logging
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from falkirk.platform.durable import make_folder, sync_folder
from falkirk.runtime.spark.live import checkpoint
from falkirk.theory.ids import BatchId, LogId

log = logging.getLogger("falkirk")

#: The number of batches before Spark may delete a kept checkpoint at which its files are linked elsewhere.
EARLY = 50
#: A file of one version of a state, or its checksum: the version, and Spark's unique id.
_VERSION = re.compile(r"\.?(\d+)(?:_[\w-]+)?\.(?:changelog|zip)(?:\.crc)?")


class KeptCheckpoints:
    """The checkpoints of a region that are set aside. Args: folder: Spark's checkpoint. topics: the region's input."""

    def __init__(self, folder: Path, *topics: LogId) -> None:
        self._spark, self._folder, self._topics = folder, folder / "kept", topics
        self.numbers: set[BatchId] = set()
        self._lost: set[BatchId] = set()
        self.refresh()

    def refresh(self) -> None:
        """Find the checkpoints that are set aside. A command may set some aside while the application runs."""
        names = (path.name for path in self._folder.iterdir()) if self._folder.is_dir() else ()
        self.numbers = {BatchId(int(name)) for name in names if name.isdigit()}

    def folder(self, batch: BatchId) -> Path:
        """Return where the files of a checkpoint are: a folder that looks like a checkpoint of Spark."""
        return self._folder / str(batch) if batch in self.numbers else self._spark

    def set_aside(self, batches: Iterable[BatchId], *, newest: BatchId, retain: int) -> None:
        """Set the files of those of these checkpoints aside that Spark is about to delete. Idempotent.

        Args: newest: the newest checkpoint. retain: the number of batches after which Spark may delete one.
        """
        before = newest - retain + min(EARLY, retain // 2)
        for batch in batches:
            if 0 <= batch < before and batch not in self.numbers and batch not in self._lost:
                try:
                    is_whole = self._set_aside(batch)
                except OSError as error:  # for example, the disk is full: the next turn tries again
                    log.warning("%s: checkpoint %d can't be set aside: %s", self._spark.name, batch, error)
                    continue
                if not is_whole:
                    log.warning("%s: Spark has deleted checkpoint %d, which was to be kept", self._spark.name, batch)
                    self._lost.add(batch)

    def _set_aside(self, batch: BatchId) -> bool:
        target, unfinished = self._folder / str(batch), self._folder / f".{batch}"
        shutil.rmtree(unfinished, ignore_errors=True)  # left by an interrupted call
        if not copy_checkpoint(self._spark, unfinished, batch, *self._topics):
            shutil.rmtree(unfinished, ignore_errors=True)
            return False
        _sync_folders(unfinished)
        unfinished.rename(target)
        sync_folder(self._folder)
        self.numbers.add(batch)
        return True

    def restore(self, batch: BatchId) -> None:
        """Give Spark the files of a checkpoint back, if they are set aside, and forget later checkpoints. Idempotent.

        No query runs, and Spark's log has no later batch.

        Files of later versions go first. Spark counts the versions to keep back from the newest file that it finds, so
        it would delete the restored files.
        """
        self.delete({n for n in self.numbers if n > batch})
        for left in self._folder.glob(".*"):  # by an interrupted call, with links that occupy space
            shutil.rmtree(left, ignore_errors=True)
        self._lost = {n for n in self._lost if n <= batch}
        if batch not in self.numbers:
            return
        for path in list(state_files(self._spark)):
            if (state_version(path) or 0) > batch + 1:
                path.unlink(missing_ok=True)
        source = self.folder(batch)
        for path in state_files(source):
            _link(path, self._spark / path.relative_to(source))
        for name in (f"offsets/{batch - 1}", f"offsets/{batch}", f"commits/{batch}"):  # the commit last
            _link(source / name, self._spark / name)
        _sync_folders(self._spark)

    def delete(self, batches: Collection[BatchId]) -> None:
        """Delete checkpoints that were set aside. Idempotent."""
        for batch in sorted(self.numbers & set(batches)):
            gone = self._folder / f".{batch}"
            (self._folder / str(batch)).rename(gone)  # a folder that lacks files must not look complete
            self.numbers.discard(batch)
            shutil.rmtree(gone, ignore_errors=True)


def copy_checkpoint(spark: Path, target: Path, batch: BatchId, *topics: LogId) -> bool:
    """Make a checkpoint's files appear in another folder, while its query runs. Returns: whether all were there.

    Args: spark: the folder of the query. target: a new folder. topics: the input.
    """
    make_folder(target)
    for name in (f"offsets/{batch - 1}", f"offsets/{batch}", f"commits/{batch}"):
        _link(spark / name, target / name)
    for path in state_files(spark):
        version = state_version(path)
        if version is None or version <= batch + 1:
            _link(path, target / path.relative_to(spark))
    return checkpoint.damage(target, batch, *topics) is None


def state_files(folder: Path) -> Iterator[Path]:
    """Yield the files of all states in a checkpoint, but not those that Spark still writes."""
    return (p for p in (folder / "state").rglob("*") if ".tmp" not in p.name and p.is_file())


def state_version(path: Path) -> int | None:
    """Return the version of a state that a file belongs to; None: several versions may need it."""
    match = _VERSION.fullmatch(path.name)
    return None if match is None else int(match[1])


def _link(source: Path, target: Path) -> None:
    """Make a file appear a second time, unless it does already. A file that Spark has just deleted is not needed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except (FileExistsError, FileNotFoundError):
        return
    except OSError:  # no hard links here
        unfinished = target.with_name(f".{target.name}.tmp")
        try:
            shutil.copy2(source, unfinished)
        except FileNotFoundError:
            return
        unfinished.rename(target)


def _sync_folders(folder: Path) -> None:
    """Sync the names in a checkpoint to the disk. The files themselves are Spark's, and minutes old."""
    for name in ("state", "offsets", "commits"):
        for path in sorted((p for p in (folder / name).rglob("*") if p.is_dir()), reverse=True):
            sync_folder(path)
        if (folder / name).is_dir():
            sync_folder(folder / name)
    sync_folder(folder)
