"""Dying: whoever is killed, with -9, half way through a file: a Python worker of Spark's that writes one of its task's,
or a process that writes the note of a state."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from falkirk.differential import runs

Work = Callable[[Iterator[Any]], Iterator[Any]]


def dying(work: Work, mark: Path, what: str, *, torn: bool = False, with_it: int | None = None) -> Work:
    """Return a task's work whose worker is killed when it has written half of a file of a kind, once: while there is a
    mark, which whoever dies takes away.

    All of it is in here, since workers get it by value: they need not find the tests.

    Args: what: `heard0`, `said`, …. torn: that half gets the file's own name, as if it was written under no other one.
        with_it: the process that is killed first.
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
                if with_it is not None:
                    os.kill(with_it, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            os.replace(partial, target)

        runs.os = SimpleNamespace(replace=replace)  # type: ignore[attr-defined]
        try:
            yield from work(batches)
        finally:
            runs.os = os  # type: ignore[attr-defined]

    return call


def opening_notes(strike: Callable[[], None]) -> Callable[..., Any]:
    """Return an `open` for `falkirk.coordinator.home` that calls `strike` whenever half of a state's note is in the
    file that it is written to, before that gets its name."""

    def opened(file: Path, *arguments: Any, **options: Any) -> Any:
        handle = open(file, *arguments, **options)  # noqa: SIM115
        if not file.parent.name.endswith("-state"):
            return handle
        write = handle.write

        def in_halves(text: str) -> int:
            written = int(write(text[: len(text) // 2]))
            handle.flush()
            strike()
            return written + int(write(text[written:]))

        handle.write = in_halves
        return handle

    return opened
