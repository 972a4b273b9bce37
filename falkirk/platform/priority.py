"""Priority: lets a process use only the time that others leave, and ends this again.

Linux divides the processors by the nice values of threads, within one group of processes. Where it has a group for each
session (`man 7 sched`, autogroup), the group has a nice value as well, and only that one counts against the processes
of other sessions. Everybody may set it back to 0. The nice value of a thread can be set back only with CAP_SYS_NICE or
RLIMIT_NICE; without them, `lower` leaves it as it is.
"""

import contextlib
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

#: The lowest priority: 1.5 % of the time of a process with the usual priority, if both want all of it.
LOWEST = 19
#: Only a control group that is not the root has these files; its processes have no group by session.
_LIMITS = ("cpu.max", "cpu.weight")
_CONTROL_GROUP = Path("/sys/fs/cgroup")
_CAP_SYS_NICE = 1 << 23
#: Linux lets only one process per 0.1 s change the value of a group, if it is not root.
_TRIES, _PAUSE_S = 10, 0.12


def can_be_lowered(proc: Path = Path("/proc"), control_group: Path = _CONTROL_GROUP) -> bool:
    """Return whether this process may lower the priority of its child, and set it back. Args: proc: in tests."""
    return _has_groups(proc, control_group) or _may_raise(proc)


def lower(pid: int) -> None:
    """Give a process that this one has just started, and all that it starts, the lowest priority."""
    _set(pid, LOWEST)


def restore(pid: int) -> None:
    """Give a process, its descendants, and all their threads the priority of this process."""
    _set(pid, None)


def _set(pid: int, nice: int | None) -> None:
    """Args: nice: None: that of this process."""
    if _may_raise(Path("/proc")):
        _set_threads(pid, os.getpriority(os.PRIO_PROCESS, 0) if nice is None else nice)
    own, own_nice = _group(Path("/proc/self/autogroup"))
    done = {own, ""}
    for process in _tree(pid):
        file = Path(f"/proc/{process}/autogroup")
        group, _ = _group(file)
        if group not in done:
            done.add(group)
            _write(file, own_nice if nice is None else nice)


def _set_threads(pid: int, nice: int) -> None:
    """Set all threads. A thread inherits the value of the one that starts it: look again until none has another."""
    has_changed = True
    while has_changed:
        has_changed = False
        for process in _tree(pid):
            with contextlib.suppress(OSError):
                for thread in map(int, os.listdir(f"/proc/{process}/task")):
                    with contextlib.suppress(OSError):
                        if os.getpriority(os.PRIO_PROCESS, thread) != nice:
                            os.setpriority(os.PRIO_PROCESS, thread, nice)
                            has_changed = True


def _group(file: Path) -> tuple[str, int]:
    """Return the group of a session, and its nice value. The name is empty if there is none."""
    try:
        name, _, nice = file.read_text().split()  # "/autogroup-7 nice 0"
    except (OSError, ValueError):
        return "", 0
    return name, int(nice)


def _write(file: Path, nice: int) -> None:
    for _ in range(_TRIES):
        try:
            file.write_text(str(nice))
            return
        except BlockingIOError:  # another process has just changed its own
            time.sleep(_PAUSE_S)
        except OSError:  # it has ended
            return


def _tree(pid: int) -> Iterator[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        yield pid
        yield from (child.pid for child in process.children(recursive=True))


def _has_groups(proc: Path, control_group: Path) -> bool:
    """Return whether sessions have groups here, and count."""
    try:
        is_on = (proc / "sys/kernel/sched_autogroup_enabled").read_text().strip() == "1"
    except OSError:
        return False
    return is_on and not any((control_group / name).exists() for name in _LIMITS)


def _may_raise(proc: Path) -> bool:
    """Return whether this process may set a nice value of 0 after a higher one."""
    try:
        soft, _ = resource.getrlimit(resource.RLIMIT_NICE)
        if soft == resource.RLIM_INFINITY or soft >= 20:  # 20 less the nice value
            return True
        lines = (proc / "self/status").read_text().splitlines()
        capabilities = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    except (OSError, StopIteration, ValueError, AttributeError):  # not Linux
        return False
    return bool(capabilities & _CAP_SYS_NICE)
