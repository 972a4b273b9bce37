"""Process records: identify processes that may write for a home, and kill or find those of former runs."""

import contextlib
import os
from dataclasses import dataclass
from itertools import pairwise

import psutil

from falkirk.platform import locks, processes
from falkirk.platform.stored import parse_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """A process by identity. A pid alone is not enough, because the system may reuse it."""

    pid: int
    began: str
    role: str

    @classmethod
    def of(cls, pid: int, role: str) -> "ProcessRecord":
        """Return the record of a running process."""
        return cls(pid=pid, began=processes.began(pid), role=role)

    def find(self) -> psutil.Process | None:
        """Return the process if it is alive and still the recorded one."""
        return processes.find_process(self.pid, self.began)


def kill_host(lock: int) -> ProcessRecord | None:
    """Kill the host that holds a lock; return it.

    None: it is this process or not on this machine, or the lock has no record yet.
    """
    with contextlib.suppress(ValueError, TypeError):
        record = ProcessRecord(**parse_json(locks.said(lock)))
        if record.pid != os.getpid() and (process := record.find()) is not None:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # it has ended, or stays
                process.kill()
            return record
    return None


def executors_of(spark_applications: list[str]) -> list[tuple[ProcessRecord, psutil.Process]]:
    """Return the executor JVMs on this machine that belong to these Spark applications."""
    if not spark_applications:
        return []
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            line = process.cmdline()
            if any(pair[0] == "--app-id" and pair[1] in spark_applications for pair in pairwise(line)):
                found.append((ProcessRecord.of(process.pid, "executor"), process))
    return found
