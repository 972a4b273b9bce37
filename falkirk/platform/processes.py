"""Identifies processes and machines beyond process numbers."""

import contextlib
import os
import socket
from pathlib import Path

import psutil


def began(pid: int) -> str:
    """Return when a running process started, which tells it from other processes with the same number.

    The start is counted from the boot of the machine and names that boot. A date would change when someone sets the
    clock.

    Raises: psutil.NoSuchProcess.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{_boot()}/{fields[19]}"  # field 22 of proc(5)
    except OSError:  # not Linux, or the process ended
        return repr(psutil.Process(pid).create_time())


def find_process(pid: int, since: str) -> psutil.Process | None:
    """Return a process if it is alive and started at this time, otherwise None. Args: since: from `began`."""
    if not isinstance(pid, int) or not 0 < pid < 1 << 31:  # a damaged file may contain such a number
        return None
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if began(pid) == since and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def kill_tree(process: psutil.Process, timeout_s: float) -> list[int]:
    """Kill a process and its descendants; return those that are still alive after the timeout."""
    tree = [process]
    with contextlib.suppress(psutil.NoSuchProcess):
        tree += process.children(recursive=True)
    for each in tree:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            each.kill()
    _, alive = psutil.wait_procs(tree, timeout=timeout_s)
    return [p.pid for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def machine() -> str:
    """Return the identity of this machine's boot and process namespace, within which process numbers are unique.

    A cloned disk gives another identity, and so does a container.
    """
    try:
        return f"{_boot()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return f"{socket.gethostname()}/{psutil.boot_time():.0f}"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
