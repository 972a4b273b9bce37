"""Disks for tests: a small one that a test can fill, and one that forgets data that was not synced."""

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A disk that a test can fill and free again."""

    def __init__(self, path: Path) -> None:
        self.path, self._ballast = path, path / "ballast"

    def fill(self) -> None:
        """Use all free space."""
        with open(self._ballast, "ab", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while ballast.write(b"x" * size) == size:
                        continue

    def empty(self) -> None:
        """Free the space again."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a separate disk at a new folder; if that is not allowed, skip the test."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        os.sync()
        subprocess.run(["umount", "-l", str(path)], check=True)


class ForgetfulDisk:
    """A disk that loses its power: it keeps the synced data of a folder, and forgets the rest.

    It replaces `os.fsync`: when this process syncs a file or folder, it records the file's size or the folder's names.
    SQLite syncs its files without `os.fsync`, so the store is not affected.
    """

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.path = path
        self._sizes: dict[int, int] = {}
        self._names: dict[int, frozenset[str]] = {}
        real = os.fsync

        def fsync(opened: int) -> None:
            real(opened)
            found = os.fstat(opened)
            if stat.S_ISDIR(found.st_mode):
                self._names[found.st_ino] = frozenset(os.listdir(opened))
            else:
                self._sizes[found.st_ino] = found.st_size

        patch.setattr(os, "fsync", fsync)

    def lose_power(self, *within: Path) -> list[str]:
        """Forget all data in these folders that was not synced, the worst case; return the lost or shortened files."""
        forgotten: list[str] = []
        for folder in within:
            self._forget(folder, forgotten)
        return forgotten

    def _forget(self, folder: Path, forgotten: list[str]) -> None:
        synced = self._names.get(folder.stat().st_ino, frozenset())
        for path in sorted(folder.iterdir()):
            if path.name not in synced:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            elif path.is_dir():
                self._forget(path, forgotten)
                continue
            elif (size := self._sizes.get(path.stat().st_ino, 0)) < path.stat().st_size:
                os.truncate(path, size)
            else:
                continue
            forgotten.append(str(path.relative_to(self.path)))
