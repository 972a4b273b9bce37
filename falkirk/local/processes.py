"""Processes: which one a number stands for, and on which machine."""

import contextlib
import os
import socket
from pathlib import Path

import psutil


def began(pid: int) -> str:
    """Return what tells a running process from all that had its number before, or will: when it began, counted from the
    machine's own start, and which start that was. A date would move when somebody sets the clock.

    Raises: psutil.NoSuchProcess.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{_boot()}/{fields[19]}"  # field 22 of proc(5)
    except OSError:  # not Linux, or it is gone
        return repr(psutil.Process(pid).create_time())


def find(pid: int, since: str) -> psutil.Process | None:
    """Return a process while it is alive and still the one that began then. Args: since: as of `began`."""
    if not isinstance(pid, int) or not 0 < pid < 1 << 31:  # as a damaged file may say
        return None
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if began(pid) == since and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def machine() -> str:
    """Return where process numbers mean the same as here: this boot of this machine, and this space of processes. A
    cloned disk has another one, and so has a container."""
    try:
        return f"{_boot()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return f"{socket.gethostname()}/{psutil.boot_time():.0f}"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
