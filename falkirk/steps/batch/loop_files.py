"""Loop files: the files of an iteration's state, where its tasks read and write them, and in the home.

Tasks search in files that they map into memory, so they need a folder. With a home on a file system, that folder is
the home's. With a home in an object store and all tasks on this machine, it is a working copy in a folder of this
machine: before an epoch, the files that its state names are fetched if they are missing, and after the rounds, the new
ones are uploaded. On a cluster, tasks fetch and upload files themselves (`differential/copies.py`). The record of the
epoch comes after that, and its note names the files. So an uploaded file counts from that record on, and another
machine begins with the object store and the database alone.

A file is written once, under a name that is used once: each epoch and each job has a folder of its own, and each
attempt of a task names its files.
"""

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from falkirk.errors import StoreError
from falkirk.platform.copies import has_content, measure
from falkirk.platform.data import DataPath, Manifest, local_path
from falkirk.platform.durable import check_files, make_folder, sync
from falkirk.platform.parallel import in_parallel
from falkirk.steps.differential.copies import CopiedFiles
from falkirk.steps.differential.files import FlowFiles, Measured, TaskFiles
from falkirk.steps.differential.state import delete_paths, paths_in

log = logging.getLogger("falkirk")


class LoopFiles(FlowFiles):
    """The files of one iteration. Attributes: folder: of this machine, for its tasks."""

    @abstractmethod
    def require(self, kept: Manifest, *, contents: bool) -> None:
        """Make the files of a saved state readable in the folder.

        Args: contents: compare checksums too, not only sizes.
        Raises: HomeError: `STATE_DAMAGED`. StoreError: `DATA_AWAY`, `DATA_UNUSABLE`.
        """

    @abstractmethod
    def save(self, names: Iterable[str]) -> Manifest:
        """Make new files of the folder durable; return their manifest. Raises: OSError. StoreError: as `require`."""

    @abstractmethod
    def candidates(self, *, only_own: bool = False) -> set[str]:
        """Return the paths of the files that a sweep may delete: those that are there now.

        Call it before the notes are read that say which files to keep. A file that another run saves later is no
        candidate, so it stays, although these notes do not name it.

        Args: only_own: no saved file of another run. If the home is an older copy, the right one may name such files.
            Files of a working copy may be candidates in any case: a start reads them again.
        """

    @abstractmethod
    def sweep(self, candidates: set[str], keep: set[str]) -> None:
        """Delete the candidates that are not kept. Raises: StoreError: `HOME_TAKEN_OVER`."""


class LocalLoopFiles(LoopFiles):
    """Files in a folder of the home."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        #: The saved files that were not deleted since.
        self._saved = set[str]()

    def require(self, kept: Manifest, *, contents: bool) -> None:
        """See LoopFiles."""
        make_folder(self.folder)
        check_files(self.folder, kept, contents=contents)

    def save(self, names: Iterable[str]) -> Manifest:
        """See LoopFiles."""
        new = [*names]
        self._saved |= {*new}
        return sync(self.folder, new)

    def candidates(self, *, only_own: bool = False) -> set[str]:
        """See LoopFiles."""
        return set(self._saved) if only_own else paths_in(self.folder)

    def sweep(self, candidates: set[str], keep: set[str]) -> None:
        """See LoopFiles."""
        delete_paths(self.folder, candidates - keep)
        self._saved -= candidates - keep


class SharedLoopFiles(LoopFiles):
    """Files in an object store, of which this process uploads and fetches copies.

    Args: data: their folder there. folder: the working copy. confirm: raises an error if this process does not own the
        home any more.
    """

    def __init__(self, data: DataPath, folder: Path, confirm: Callable[[], None]) -> None:
        super().__init__(folder)
        self._data, self._confirm = data, confirm
        #: The objects that this process has listed, which it does once, and those that it has begun to upload.
        self._listed: set[str] | None = None
        self._written = set[str]()

    def require(self, kept: Manifest, *, contents: bool) -> None:
        """See LoopFiles. The size of a file with its name is enough once this process has read it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        in_parallel([partial(self._fetch, name, *measured, contents=contents) for name, measured in kept.items()])

    def _fetch(self, name: str, size: int, checksum: int, *, contents: bool) -> None:
        path = self.folder / name
        is_there = has_content(path, size, checksum) if contents else _has_size(path, size)
        if not is_there:
            (self._data / name).copy_to(path, size, checksum)

    def save(self, names: Iterable[str]) -> Manifest:
        """See LoopFiles."""
        new = sorted(names)
        self._written |= set(new)  # before: an upload that is cut off may leave the others
        found = in_parallel([partial((self._data / name).copy_from, self.folder / name) for name in new])
        return {name: [*measured] for name, measured in zip(new, found, strict=True)}

    def candidates(self, *, only_own: bool = False) -> set[str]:
        """See LoopFiles. Besides objects, all files of the working copy are candidates, also those of `require`.

        With `only_own`, copies of listed objects of other runs are none.
        """
        found = paths_in(self.folder) | self._written
        if only_own:
            return found - ((self._listed or set()) - self._written)
        if self._listed is None:
            self._listed = self._objects_in("")
        return found | (self._listed or set())

    def _objects_in(self, folder: str) -> set[str] | None:
        """Return the objects in one of the folders, or in all; None: the object store does not answer."""
        try:
            found = (self._data / folder if folder else self._data).listed()
        except StoreError as error:
            log.warning("old files in %s can't be listed, which the next epoch tries again: %s", self._data, error)
            return None
        return {f"{folder}/{name}" if folder else name for name in found}

    def sweep(self, candidates: set[str], keep: set[str]) -> None:
        """See LoopFiles. A former owner that resumes deletes no file of the present one.

        It knows only files that it has uploaded or listed, and the store confirms after that that it is still the
        owner. If the object store is away, the next call deletes the files.
        """
        due = candidates - keep
        delete_paths(self.folder, due)
        self._confirm()
        with suppress(StoreError):
            in_parallel(
                [partial(self._delete, name) for name in sorted(due & (self._written | (self._listed or set())))]
            )

    def _delete(self, name: str) -> None:
        (self._data / name).delete()
        self._written.discard(name)
        if self._listed is not None:
            self._listed.discard(name)


class RecomputedLoopFiles(SharedLoopFiles):
    """Files of a recomputation, which reads saved states in an object store and changes nothing there."""

    def save(self, names: Iterable[str]) -> Manifest:
        """See LoopFiles: the next epoch of this process finds them in the folder."""
        return {name: [*measure(self.folder / name)] for name in names}

    def candidates(self, *, only_own: bool = False) -> set[str]:
        """See LoopFiles. They are in the working copy alone."""
        return paths_in(self.folder)

    def sweep(self, candidates: set[str], keep: set[str]) -> None:
        """See LoopFiles."""
        delete_paths(self.folder, candidates - keep)


class WrittenLoopFiles(SharedLoopFiles):
    """Files in an object store that the tasks of a cluster fetch and upload themselves.

    The folder is that of SharedLoopFiles, in which a run on one machine may have left copies.
    """

    def __init__(self, data: DataPath, folder: Path, confirm: Callable[[], None]) -> None:
        super().__init__(data, folder, confirm)
        #: The files that tasks of this epoch may read.
        self._known = dict[str, Measured]()
        #: The folders of epochs of this process that were not listed before a sweep since; and those that now are.
        self._begun, self._found = set[str](), set[str]()

    def begin(self, name: str) -> None:
        """See FlowFiles."""
        self._begun.add(name)

    def of_task(self, names: Iterable[str]) -> TaskFiles:
        """See FlowFiles."""
        return CopiedFiles(self._data, {name: self._known[name] for name in names})

    def add(self, written: Mapping[str, Measured]) -> None:
        """See FlowFiles."""
        self._known |= written
        self._written |= written.keys()

    def require(self, kept: Manifest, *, contents: bool) -> None:
        """See LoopFiles. This compares sizes, once per process: tasks compare the contents of what they fetch.

        Each file is a request that is repeated by itself: one of thousands may fail.
        """
        if contents:
            in_parallel([partial(self._data.check, {name: size}, contents=False) for name, size in kept.items()])
        self._known = {name: [*measured] for name, measured in kept.items()}

    def save(self, names: Iterable[str]) -> Manifest:
        """See LoopFiles. The tasks have uploaded them before they reported them."""
        return {name: self._known[name] for name in names}

    def candidates(self, *, only_own: bool = False) -> set[str]:
        """See LoopFiles. Attempts of tasks that failed have left files that nobody has reported."""
        self._found.clear()
        for folder in sorted(self._begun):
            if (found := self._objects_in(folder)) is not None:
                self._written |= found
                self._found.add(folder)
        return super().candidates(only_own=only_own)

    def sweep(self, candidates: set[str], keep: set[str]) -> None:
        """See LoopFiles. Without a sweep, the next run may have begun one of the folders, so it is listed again."""
        self._begun -= self._found
        super().sweep(candidates, keep)


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


class LoopFolders:
    """The files of the iterations of one batch, by slot.

    Args: data: the folder in the home of the files that notes name. copy: for the working copies if the home is in an
        object store; None: its files are in a file system. confirm: as of SharedLoopFiles. is_recomputed: nothing in
        the object store changes. on_cluster: tasks do not see the folder of this machine. may_delete: returns whether
        files that no note names may be deleted now.
    """

    def __init__(
        self, data: DataPath, copy: Path | None = None, confirm: Callable[[], None] = lambda: None, *,
        is_recomputed: bool = False, on_cluster: bool = False, may_delete: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self._data, self._copy, self._confirm, self.may_delete = data, copy, confirm, may_delete
        self._kind = RecomputedLoopFiles if is_recomputed else WrittenLoopFiles if on_cluster else SharedLoopFiles
        self._known: dict[str, LoopFiles] = {}

    def of(self, slot: str) -> LoopFiles:
        """Return the files of a slot: the same object each time, since it remembers what it has written."""
        if slot not in self._known:
            data, copy = self._data / slot, self._copy
            self._known[slot] = (
                LocalLoopFiles(local_path(data, "a loop"))
                if copy is None
                else self._kind(data, copy / slot, self._confirm)
            )
        return self._known[slot]
