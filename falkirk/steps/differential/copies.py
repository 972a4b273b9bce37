"""Copies: how tasks on a cluster read and write files of an iteration's state in an object store.

A task searches in files that it maps into memory. So each executor has a folder with copies of the files that its tasks
have read or written, in Spark's local folder, which Spark deletes. Files never change, so a copy can't be stale. The
object is the file: a task reports a file only once its upload is complete.
"""

import os
import shutil
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from falkirk.errors import HomeError
from falkirk.platform.data import DataPath
from falkirk.platform.durable import damaged
from falkirk.steps.differential.files import Measured, TaskFiles
from falkirk.steps.differential.runs import UNREADABLE_STATE, load_run, store

#: The variable in which Spark gives its workers the local folders of their executor.
LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"
#: The copies take at most this part of the space that they and the free space of the disk have together.
_MOST_PART = 0.5
#: A copy that nobody has used for so long is deleted: most files of an epoch are merged into others.
_UNUSED_S = 3600.0
#: In a long epoch, a process looks again after this time whether the copies take too much space.
_LOOK_S = 30.0
#: A file is fetched this often at most for one reading.
_FETCHES = 3
#: For each place of data, the folder of the epoch in which this process has last deleted copies, and when.
_looked_at = dict[DataPath, tuple[str, float]]()


@dataclass(frozen=True)
class CopiedFiles(TaskFiles):
    """Files in an object store, and their copies on the executor's disk.

    Args: data: the flow's folder in the object store. known: size and CRC-32 of the files that the task may read.
    """

    data: DataPath
    known: Mapping[str, Measured]

    def load(self, name: str) -> pa.Table:
        """See TaskFiles. It fetches the file if the executor has no copy, or a damaged one.

        Meanwhile another worker may make room, or Spark may delete the folder of an executor that ends. The object is
        not damaged then, which would end the batch.
        """
        copy = self._copies() / name
        for fetches in range(_FETCHES):
            with suppress(FileNotFoundError, HomeError):
                os.utime(copy)  # for `_make_room`, which may have deleted it
                return load_run(copy)
            try:
                self._fetch(name, copy)
            except HomeError:
                if fetches == _FETCHES - 1:
                    raise
        return load_run(copy)

    def _fetch(self, name: str, copy: Path) -> None:
        size, checksum = self.known[name]
        try:
            (self.data / name).copy_to(copy, size, checksum)
        except HomeError as error:
            raise damaged(f"{UNREADABLE_STATE}: {error.message}.", self.data / name) from error

    def store(self, name: str, rows: pa.Table) -> Measured:
        """See TaskFiles."""
        copy = self._copies() / name
        epoch, now_s = name.partition("/")[0], time.monotonic()
        before, at_s = _looked_at.get(self.data, ("", now_s))
        if epoch != before or now_s - at_s >= _LOOK_S:
            _looked_at[self.data] = epoch, now_s
            _make_room(self._copies())
        store(copy, rows)
        return [*(self.data / name).copy_from(copy)]

    def _copies(self) -> Path:
        place = zlib.crc32(str(self.data).encode())
        return Path(os.environ[LOCAL_FOLDERS].partition(",")[0]) / f"falkirk-loop-{place:08x}"


def _make_room(copies: Path) -> None:
    """Delete copies that were not used for long, and older ones than others if all take too much space.

    Another worker may map one of them meanwhile, and keeps it as long. One that is missing is fetched again. Each job
    has a folder, so folders that were empty for long are deleted, too. Other workers write files that begin with a dot.
    """
    long_ago_s, found = time.time() - _UNUSED_S, []
    for folder, _, names in os.walk(copies, topdown=False):
        for name in names:
            with suppress(FileNotFoundError):
                status = os.stat(os.path.join(folder, name))
                if not name.startswith(".") or status.st_mtime < long_ago_s:
                    found.append((status.st_mtime, status.st_size, os.path.join(folder, name)))
        with suppress(OSError):  # it is not empty, or another worker has deleted it
            if folder != str(copies) and os.stat(folder).st_mtime < long_ago_s:
                os.rmdir(folder)
    total = sum(size for _, size, _ in found)
    most = _MOST_PART * (total + shutil.disk_usage(copies.parent).free)
    for used_s, size, path in sorted(found):
        if total <= most and used_s > long_ago_s:
            return
        with suppress(FileNotFoundError):
            os.unlink(path)
        total -= size
