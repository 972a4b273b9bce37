"""Disks for tests: a small one that a test can fill, and one that forgets data that was not synced."""

import contextlib
import json
import os
import shutil
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.sinks.folder import FolderTarget
from falkirk.theory.ids import EpochNumber


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

    def unsynced(self, path: Path, within: Path) -> list[str]:
        """Return what of a file or folder a loss of power would take now.

        Args: within: a folder above it that stays.
        """
        way = [] if path == within else [path, *(p for p in path.parents if within in p.parents)]
        names = [p for p in (*way, *path.rglob("*")) if p.name not in self._names.get(p.parent.stat().st_ino, ())]
        files = [p for p in (path, *path.rglob("*")) if p.is_file()]
        short = [p for p in files if self._sizes.get(p.stat().st_ino, 0) < p.stat().st_size]
        return sorted({str(p.relative_to(within)) for p in (*names, *short)})


class SyncedBefore:
    """Looks at each record of an epoch or a state, and at each epoch of a folder sink: are its files on the disk?

    A check after the run would not notice a sync that comes after the record.

    Args: regions: the folder with the folders of all batches.

    Attributes: seen: how many epochs, states, runs of iterations and folders were recorded. early: records of
        data that was not synced yet.
    """

    def __init__(self, disk: ForgetfulDisk, patch: pytest.MonkeyPatch, regions: Path) -> None:
        self._disk, self._regions = disk, regions
        self.seen, self.early = Counter[str](), list[str]()
        add, replace, rename, note = Store.add_checkpoint, Store.replace_checkpoint, os.replace, FolderTarget._note

        def added(store: Store, processor: str, number: EpochNumber, metadata: Any) -> None:
            self._look("epochs", processor, metadata["folder"])
            self._look_at_state(processor, metadata)
            add(store, processor, number, metadata)

        def replaced(store: Store, processor: str, number: EpochNumber, known: Any, metadata: Any) -> None:
            self._look_at_state(processor, metadata)
            replace(store, processor, number, known, metadata)

        def renamed(before: Any, after: Any) -> None:
            if Path(after).name.startswith("epoch="):
                self.seen["folders"] += 1
                self._add(Path(before), Path(before))
            rename(before, after)

        def noted(target: FolderTarget, upto: EpochNumber) -> None:
            for path in target._path.glob("epoch=*"):
                self._add(path, target._path)
            note(target, upto)

        patch.setattr(Store, "add_checkpoint", added)
        patch.setattr(Store, "replace_checkpoint", replaced)
        patch.setattr(os, "replace", renamed)
        patch.setattr(FolderTarget, "_note", noted)

    def _look_at_state(self, processor: str, metadata: Any) -> None:
        if (state := metadata["state"]) is None:
            return
        self._look("states", processor, state)
        for note in (self._regions / processor / state).glob("iterate-*.json"):
            for name in json.loads(note.read_text()).get("files", ()):
                self._look("runs", processor, f"_files/{note.stem}/{name}")

    def _look(self, kind: str, processor: str, name: str) -> None:
        self.seen[kind] += 1
        self._add(self._regions / processor / name, self._regions)

    def _add(self, path: Path, within: Path) -> None:
        self.early += [f"{path}: {name}" for name in self._disk.unsynced(path, within)]
