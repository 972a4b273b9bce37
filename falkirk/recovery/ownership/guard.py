"""Guard: ends a host at once if its coordinator died or its home has another owner.

This host must not stop in an orderly way, because that includes writes. So separate threads check the parent from the
host's first line on, and the home's owner while it works. They don't depend on the main thread.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

import psutil

from falkirk.errors import FalkirkError

#: The time between two checks of the owner.
OWNER_POLL_S = 0.5
#: The time between two checks of the coordinator by a host that was asked to stop.
_ORPHANED_S = 0.05
#: The longest time for the last words of a process that ends at once.
_LAST_S = 1.0
#: The host ended for a reason that a new host can't fix. The status file has it, if it is still this host's file.
EXIT_FATAL = 3
#: The host lost its coordinator.
EXIT_ORPHANED = 1


def die_with_parent(parent: int, stopping: threading.Event, take: Callable[[str], None] = lambda line: None) -> None:
    """Set `stopping` when the coordinator closes standard input; end this process at once when the coordinator dies.

    Args: parent: the coordinator's process id, from the coordinator. The present parent may have adopted this process.
        take: called with each further line of standard input.
    """

    def watch() -> None:
        for line in sys.stdin:  # ends when the coordinator closes the pipe or dies
            take(line)
        stopping.set()
        while os.getppid() == parent:  # a process closes its pipes before it ends
            time.sleep(_ORPHANED_S)
        end_at_once(EXIT_ORPHANED)

    threading.Thread(target=watch, name="falkirk-parent", daemon=True).start()


def watch_owner(look: Callable[[], None], say: Callable[[str], None]) -> None:
    """End this process at once when `look` reports that the home has another owner.

    Args: look: raises `HOME_TAKEN_OVER` or `HOME_COPIED` then. Its other errors are left to the main thread.
    """

    def watch() -> None:
        while True:
            time.sleep(OWNER_POLL_S)
            try:
                look()
            except FalkirkError as error:
                end_if_replaced(error, say)

    threading.Thread(target=watch, name="falkirk-owner", daemon=True).start()


def end_if_replaced(error: FalkirkError, say: Callable[[str], None]) -> None:
    """End this process at once if the error means that the home has another owner. The coordinator meets it too."""
    if is_replaced(error):
        say(str(error))
        end_at_once(EXIT_FATAL)


def is_replaced(error: BaseException | None) -> bool:
    """Return whether the error means that this process no longer owns the home."""
    return isinstance(error, FalkirkError) and error.condition in ("HOME_TAKEN_OVER", "HOME_COPIED")


def end_at_once(code: int, last: Callable[[], None] = lambda: None) -> NoReturn:
    """Kill the processes that this one has started, call `last`, and end this one."""
    # Only own children: by now the home may have another owner, and its files may name the processes of that owner.
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    # If `last` waits, the main thread must not start new children meanwhile.
    ends = threading.Timer(_LAST_S, os._exit, (code,))
    ends.daemon = True
    ends.start()
    try:
        last()
        for stream in (sys.stdout, sys.stderr):  # a file or a pipe has a buffer
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
    finally:
        os._exit(code)
