"""Locks: files in the home that one process holds at a time. The kernel frees a lock when its holder ends.

The process that runs the application holds `lock`, and the process with Spark holds `host.lock`. If a host outlives its
coordinator, it still holds its lock. So the next coordinator finds it, even if the list of processes is lost.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from pathlib import Path

from falkirk.errors.conditions.platform import HOME_IN_USE, HOME_IN_USE_HERE
from falkirk.platform.machine_time import MachineTime

OWNER, HOST = "lock", "host.lock"
#: A command that holds the owner's lock for a visit writes this after its process id.
_VISITS = " visits"
_SAID_BYTES = 1_000
#: `is_held` shares a lock for an instant, so a lock counts as held only if it can't be taken for this long.
_POLL_S, LOOKS = 0.02, 10


def hold(home: Path, name: str, says: str, *, clock: MachineTime = time, looks: int = LOOKS) -> int:
    """Take a lock and write its holder into it; return the descriptor that holds it.

    Args: clock, looks: as of `take_soon`.
    Raises: HomeError: `HOME_IN_USE`. OSError.
    """
    while True:
        lock = open_lock(home, name)
        try:
            if not take_soon(lock, clock, looks):
                holder = said(lock)
                if holder == str(os.getpid()):
                    raise HOME_IN_USE_HERE.error(where=home, pid=holder)
                holder = holder.removesuffix(_VISITS)
                raise HOME_IN_USE.error(where=home, pid=holder, holder=f" (pid {holder})" if holder.isdigit() else "")
            if is_present(lock, home, name):
                write_holder(lock, says)
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # it was replaced meanwhile


def visitor(pid: int) -> str:
    """Return the text of a process that holds the owner's lock and does not run the application."""
    return f"{pid}{_VISITS}"


def open_lock(home: Path, name: str) -> int:
    """Open a lock's file without taking the lock."""
    return os.open(home / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(lock: int) -> bool:
    """Take a lock unless another process holds it; return whether it was taken."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_holder(lock: int, says: str) -> None:
    """Write the holder of a lock into its file.

    On a full disk, a text can still be written over another one, but not into an empty file. So it comes first.

    Raises: OSError: the file names nobody then. The name of a former holder would be wrong.
    """
    text = says.encode()
    try:
        os.pwrite(lock, text.ljust(os.fstat(lock).st_size), 0)
    except OSError:
        os.ftruncate(lock, 0)
        raise
    os.ftruncate(lock, len(text))


def free(lock: int) -> None:
    """Give up a lock, and keep its file open."""
    fcntl.flock(lock, fcntl.LOCK_UN)


def is_present(lock: int, home: Path, name: str) -> bool:
    """Return whether an open lock is still the one in the home, so that others meet it there."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock), os.stat(home / name))
    return False


def replace(home: Path, name: str, says: str) -> int:
    """Replace the file of a lock by a new one, and hold that; return its descriptor. At no moment is it free.

    For an owner whose right is proved elsewhere, and which can neither end the holder of the lock nor wait for it.
    The former holder keeps a lock that nobody meets.

    Raises: OSError.
    """
    lock, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=home)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_holder(lock, says)
        os.replace(temporary, home / name)
    except BaseException:
        os.close(lock)
        Path(temporary).unlink(missing_ok=True)
        raise
    return lock


def take_soon(lock: int, clock: MachineTime = time, looks: int = LOOKS) -> bool:
    """Take a lock, if necessary after processes that only test it; return whether this process has it now.

    Args: clock: waits between two looks. looks: how often to look before the last one.
    """
    for _ in range(looks):
        if try_lock(lock):
            return True
        clock.sleep(_POLL_S)
    return try_lock(lock)


def is_held(home: Path, name: str) -> bool:
    """Return whether any process on this machine holds a lock of a home; a missing file counts as not held."""
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


def is_run(home: Path) -> bool:
    """Return whether a process on this machine runs the application of a home, or starts it; a visit does not count."""
    if not is_held(home, OWNER):
        return False
    lock = os.open(home / OWNER, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return not said(lock).endswith(_VISITS)
    finally:
        os.close(lock)


def said(lock: int) -> str:
    """Return the text that the last holder wrote into a lock."""
    return os.pread(lock, _SAID_BYTES, 0).decode(errors="replace").strip()
