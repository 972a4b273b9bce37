"""Memory and processors: tells how much this process and its children may still use."""

from pathlib import Path

import psutil

#: The memory of a container (cgroup, version 2): its limit, its use, and details of the use.
_CONTAINER = Path("/sys/fs/cgroup")


def idle_s() -> float:
    """Return for how many seconds the machine's processors have been idle, added up since it was started."""
    return float(psutil.cpu_times().idle)


def available_bytes(container: Path = _CONTAINER) -> int:
    """Return the memory that is available on this machine, or in its container if that is less."""
    free = int(psutil.virtual_memory().available)
    try:
        limit, used = (int((container / name).read_text()) for name in ("memory.max", "memory.current"))
        details = dict(line.split() for line in (container / "memory.stat").read_text().splitlines())
        cached = int(details["inactive_file"])  # the kernel gives it back
    except (OSError, ValueError, KeyError):  # no container, or "max": no limit
        return free
    return min(free, limit - used + cached)
