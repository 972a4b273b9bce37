"""Pipes: ends the waiting of a task that reads a pipe in place of a file.

Spark opens files by name, and a writer of a folder can put a pipe (FIFO) in the place of a file just before. The task
then waits until somebody writes, and neither Java nor Spark can interrupt it. A pipe in the place of a file with
checksums, which Hadoop looks for beside each file, does the same at any time. So while an epoch runs, a thread looks at
its files. It opens a pipe as a writer and closes it, which is the end of the file for the task. Someone else may keep
the pipe open. Then the task keeps waiting, so the thread also writes empty lines until the task has read as much as
the file had. The epoch does not count: after its results, each reader checks that its files are regular and unchanged.
"""

import contextlib
import os
import stat
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

#: The time between two looks, and before the first one. Most epochs are over by then.
_POLL_S = 2.0
#: A pipe holds this many bytes by default.
_LINES = b"\n" * (64 << 10)


@contextlib.contextmanager
def ended_pipes(paths: Collection[Path], *, look_s: float = _POLL_S) -> Iterator[None]:
    """End the waiting of tasks for pipes at these paths, until the end of the block."""
    if not paths:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(look_s):
            for path in paths:
                end_pipe(path)
                end_pipe(path.with_name(f".{path.name}.crc"))  # Hadoop reads it as the checksums of the file

    thread = threading.Thread(target=watch, name="falkirk-pipes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def end_pipe(path: Path) -> None:
    """End the waiting of the readers of a pipe at a path. Do nothing if it is not a pipe, or if nobody reads it."""
    with contextlib.suppress(OSError):
        if not stat.S_ISFIFO(path.lstat().st_mode):
            return
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(pipe)
            if stat.S_ISFIFO(found.st_mode) and found.st_nlink == 1:  # another name may be its true one
                os.write(pipe, _LINES)
        finally:
            os.close(pipe)
