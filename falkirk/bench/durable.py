"""Durable: how many bytes were written into folders that are tidied up all the while."""

import itertools
import os
import threading
from pathlib import Path
from types import TracebackType

#: More often than anything that is written there is dropped again.
LOOK_S = 0.2


class Durable:
    """Watches folders within a ``with`` block; afterwards `bytes_made` is what their files have grown by, those that
    are gone again included. What is written in place, as the pages of a database, counts once."""

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
                    continue  # it was dropped meanwhile
        return found
