"""Durable: measures how many bytes are written into folders whose files are also deleted."""

import itertools
import os
import threading
from pathlib import Path
from types import TracebackType

#: The pause between two looks, shorter than the life of any file in the folders.
LOOK_S = 0.2


class Durable:
    """Watches folders within a ``with`` block. Afterwards `bytes_made` is the growth of their files, deleted files
    included. Bytes that are overwritten in place, as in the pages of a database, count once."""

    def __init__(self, *folders: Path) -> None:
        self._folders, self.bytes_made = folders, 0
        self._before: dict[str, int] = {}
        self._largest: dict[str, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="durable", daemon=True)

    def __enter__(self) -> "Durable":
        self._before = self._sizes()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._look()
        self.bytes_made = sum(max(0, n - self._before.get(name, 0)) for name, n in self._largest.items())

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        for name, size in self._sizes().items():
            self._largest[name] = max(size, self._largest.get(name, 0))

    def _sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for folder, _, names in itertools.chain.from_iterable(map(os.walk, self._folders)):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    found[path] = os.stat(path).st_size
                except FileNotFoundError:
                    continue  # it was deleted meanwhile
        return found
