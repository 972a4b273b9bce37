"""Dying: a Python worker of Spark's that is killed, with -9, half way through a file that its task writes."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from falkirk.differential import runs

Work = Callable[[Iterator[Any]], Iterator[Any]]


def dying(work: Work, mark: Path, what: str, *, torn: bool = False) -> Work:
    """Return a task's work whose worker is killed when it has written half of a file of a kind, once: while there is a
    mark, which whoever dies takes away.

    All of it is in here, since workers get it by value: they need not find the tests.

    Args: what: `heard0`, `said`, …. torn: that half gets the file's own name, as if it was written under no other one.
    """
    path = str(mark)

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        def replace(partial: str, target: str) -> None:
            if f"_{what}_" in os.path.basename(target) and os.path.exists(path):
                try:
                    os.unlink(path)
                except FileNotFoundError:  # another one has been quicker to die
                    os.replace(partial, target)
                    return
                os.truncate(partial, os.path.getsize(partial) // 2)
                if torn:
                    os.replace(partial, target)
                os.kill(os.getpid(), signal.SIGKILL)
            os.replace(partial, target)

        runs.os = SimpleNamespace(replace=replace)  # type: ignore[attr-defined]
        try:
            yield from work(batches)
        finally:
            runs.os = os  # type: ignore[attr-defined]

    return call
