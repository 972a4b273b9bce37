"""A disk of a few megabytes, to be filled by tests."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A disk that can be filled, and emptied again."""

    def __init__(self, path: Path) -> None:
        self.path, self._ballast = path, path / "ballast"

    def fill(self) -> None:
        """Leave no byte."""
        with open(self._ballast, "ab", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while ballast.write(b"x" * size) == size:
                        continue

    def empty(self) -> None:
        """Make the room again that was there."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a disk of its own at a new folder; where that may not be done, the test is skipped."""
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
