"""Stand-ins for the processes that a coordinator starts."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from falkirk.runtime.supervision.settings import HostSettings


def host_process(run: Callable[[HostSettings], Iterator[int | None]]) -> Any:
    """Return a stand-in for the `subprocess.Popen` of a host.

    Args: run: begins with the settings that the coordinator writes, and yields the result of each `poll`.
    """
    process = SimpleNamespace(returncode=None, wait=lambda timeout_s=0.0: None, kill=lambda: None, pid=0)
    work: Iterator[int | None] = iter(())

    def begin(line: str) -> None:
        nonlocal work
        work = run(HostSettings.of(line))

    def poll() -> int | None:
        process.returncode = next(work)
        return process.returncode

    process.stdin, process.poll = SimpleNamespace(write=begin, flush=lambda: None, close=lambda: None), poll
    return process
