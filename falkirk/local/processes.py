"""Processes: which one a number stands for."""

import contextlib
from pathlib import Path

import psutil


def began(pid: int) -> str:
    """Return what tells a running process from all that had its number before, or will: when it began, counted from the
    machine's own start, and which start that was. A date would move when somebody sets the clock.

    Raises: psutil.NoSuchProcess.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{fields[19]}"  # field 22 of proc(5)
    except OSError:  # not Linux, or it is gone
        return repr(psutil.Process(pid).create_time())


def find(pid: int, since: str) -> psutil.Process | None:
    """Return a process while it is alive and still the one that began then. Args: since: as of `began`."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if began(pid) == since and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None
