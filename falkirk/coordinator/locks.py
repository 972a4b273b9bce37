"""Locks: files in the home that one process holds at a time. The kernel frees a lock when its holder ends.

`lock` belongs to whoever runs the application, `host.lock` to the process that has Spark. A host that outlives its
coordinator still holds its own, so the next coordinator finds it, whatever became of the lists of processes.
"""

import fcntl
import os
from pathlib import Path

from falkirk.errors import HomeError

OWNER, HOST = "lock", "host.lock"
_SAID_BYTES = 1_000


def hold(home: Path, name: str, says: str) -> int:
    """Take a lock and write into it who has it; return the descriptor that holds it.

    Raises: HomeError: `HOME_IN_USE`. OSError.
    """
    lock = open_lock(home, name)
    try:
        if not take(lock):
            holder = said(lock)
            raise HomeError(
                "HOME_IN_USE",
                f"another process runs this application{f' (pid {holder})' if holder.isdigit() else ''}.",
                where=home,
                hint="Stop it first, or give this one a home of its own.",
                pid=holder,
            )
        os.ftruncate(lock, 0)
        os.pwrite(lock, says.encode(), 0)
    except BaseException:
        os.close(lock)
        raise
    return lock


def open_lock(home: Path, name: str) -> int:
    """Open a lock's file without taking the lock."""
    return os.open(home / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def take(lock: int) -> bool:
    """Take a lock unless somebody else has it; tell whether it was taken."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(home: Path, name: str) -> bool:
    """Tell whether anybody holds a lock of a home on this machine; where there is no such file, nobody does."""
    try:
        lock = os.open(home / name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def said(lock: int) -> str:
    """Return what the last holder has written into a lock."""
    return os.pread(lock, _SAID_BYTES, 0).decode(errors="replace").strip()
