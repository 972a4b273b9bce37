"""Durable: writes files that outlive a power loss, with a manifest against which a reader checks them.

The operating system delays writes to files, but the store syncs each record. So Falkirk syncs the files of an epoch
before it records the epoch in the store. The record has their manifest: names, sizes and checksums. A reader compares.
A missing or torn file is an error, because Spark would read the other files and return fewer rows.

Cost: see docs/decisions/0034-an-epoch-has-a-manifest.md. The driver syncs. If an executor on another machine wrote a
file, it is synced only as far as the shared file system does so on close.
"""

import os
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from falkirk.errors import HomeError, StoreError
from falkirk.platform.data import Manifest

#: The number of bytes to check at each end of a larger file, so that the cost of a check is limited. A Parquet file
#: ends with the positions of its columns.
END_BYTES = 1 << 19


def sync(folder: Path, names: Iterable[str] | None = None) -> Manifest:
    """Sync files of a folder, and the folders that contain them, to the disk; return the manifest of the files.

    Args: names: their paths in the folder; None: all files. A missing folder has no files.
    """
    if names is None:
        names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    paths = {name: folder / name for name in sorted(names)}
    found = {name: _sync_file(path) for name, path in paths.items()}
    within = {folder, *(p for path in paths.values() for p in path.parents if folder in p.parents)}
    for each in sorted(within, reverse=True):  # a folder before its parent
        if each.is_dir():
            sync_folder(each)
    if folder.is_dir():
        sync_folder(folder.parent)
    return found


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, so that they outlive a power loss."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_folder(path.parent)


def write_atomically(file: Path, text: str) -> None:
    """Write a file atomically: after any crash it has its old content or the new one."""
    with whole_file(file) as opened:
        opened.write(text.encode())


@contextmanager
def whole_file(file: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Yield a new file that gets this name, and replaces a former one, only if the block ends without an error.

    Args: durable: it outlives a power loss too.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with open(temporary, "wb") as opened:
            yield opened
            opened.flush()
            if durable:
                os.fsync(opened.fileno())
        os.replace(temporary, file)
    except (OSError, HomeError, StoreError):
        temporary.unlink(missing_ok=True)  # it would occupy space on a full disk
        raise
    if durable:
        sync_folder(file.parent)


def check_files(folder: Path, manifest: Manifest, *, contents: bool = True) -> None:
    """Check that the files of a manifest are unchanged. Args: contents: check checksums too, not only sizes.

    Raises: HomeError: `STATE_DAMAGED`, with the file.
    """
    for name, (size, checksum) in manifest.items():
        path = folder / name
        try:
            found = path.stat().st_size
            if found != size:
                raise damaged(f"a file has {found} bytes and was written with {size}.", path, file=str(path))
            if contents and _checksum(path, size) != checksum:
                raise damaged("a file does not have the content that was written.", path, file=str(path))
        except OSError as error:
            raise damaged(f"a file can't be read: {error.strerror}.", path, file=str(path)) from error


def damaged(text: str, where: object, **data: object) -> HomeError:
    """Return the error for files that can't be read, or that have changed since they were written."""
    hint = "Roll back to an earlier checkpoint with falkirk rollback, or restore the home from a backup."
    return HomeError("STATE_DAMAGED", text, where=where, hint=hint, **data)


def _sync_file(path: Path) -> list[int]:
    opened = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(opened).st_size
        if size:
            os.fsync(opened)  # an empty file is synced with its folder
    finally:
        os.close(opened)
    return [size, _checksum(path, size)]


def _checksum(path: Path, size: int) -> int:
    with open(path, "rb") as file:
        checksum = zlib.crc32(file.read(END_BYTES))
        if size > END_BYTES:
            file.seek(max(END_BYTES, size - END_BYTES))
            checksum = zlib.crc32(file.read(END_BYTES), checksum)
    return checksum
