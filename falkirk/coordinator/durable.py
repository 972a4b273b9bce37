"""Durable: files that outlive a power loss, and a manifest by which a reader sees that they did.

The operating system writes files when it likes, and the store syncs each record. So the files of an epoch are synced
before the store's record of it, and the record has their manifest: names, sizes and checksums. A reader compares. A
missing or torn file is an error, since Spark would read the other files and return fewer rows.

Cost: see docs/decisions/0034-an-epoch-has-a-manifest.md. The driver syncs; a file that an executor on another machine
wrote is synced as far as the shared file system does so when a file is closed.
"""

import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from falkirk.errors import HomeError

Manifest = Mapping[str, list[int]]
"""Of each file, by its path in a folder: its size in bytes, and the CRC-32 of its ends."""
#: Of a larger file the first and the last bytes are checked, so that the cost of a check has a limit. A Parquet file
#: ends with the places of its columns.
END_BYTES = 1 << 19


def sync(folder: Path, names: Iterable[str] | None = None) -> Manifest:
    """Have files of a folder written to the disk, with the folders that they are in; return their manifest.

    Args: names: their paths in the folder; None: all of them. Of a folder that is not there there are none.
    """
    if names is None:
        names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    paths = {name: folder / name for name in sorted(names)}
    found = {name: _sync_file(path) for name, path in paths.items()}
    within = {folder, *(p for path in paths.values() for p in path.parents if folder in p.parents)}
    for each in sorted(within, reverse=True):  # a folder before the one that names it
        if each.is_dir():
            sync_folder(each)
    if folder.is_dir():
        sync_folder(folder.parent)
    return found


def sync_folder(folder: Path) -> None:
    """Have the names in a folder written to the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_folder(folder: Path) -> None:
    """Make a folder, with those that it is in, such that it is still there after a power loss."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_folder(path.parent)


def check(folder: Path, manifest: Manifest, *, contents: bool = True) -> None:
    """See that the files of a manifest are there as they were. Args: contents: not only their sizes.

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


def damaged(text: str, where: Path, **data: object) -> HomeError:
    """Return the error of files that can't be read, or are not what was written."""
    hint = "Roll back to an earlier point with falkirk rollback, or restore the home from a backup."
    return HomeError("STATE_DAMAGED", text, where=where, hint=hint, **data)


def _sync_file(path: Path) -> list[int]:
    opened = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(opened).st_size
        if size:
            os.fsync(opened)  # of an empty file, its folder has all
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
