"""Guard: ends a host that nobody watches, or whose home has another owner, at once.

A host that lost its coordinator, or was replaced, must not stop politely: to stop is to write. So threads of their own
look at the parent from the host's first line on, and at the home's owner while it works, whatever the main thread does.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable

import psutil

from falkirk.errors import FalkirkError

#: How often the owner is looked at.
POLL_S = 0.5
#: How often a host that was asked to stop looks whether its coordinator is alive.
_ORPHANED_S = 0.05
#: The host ended for a reason that a new one can't mend. It is in the status file, if that is still this host's.
EXIT_FATAL = 3
#: The host was orphaned.
EXIT_ORPHANED = 1


def die_with_parent(parent: int, stopping: threading.Event) -> None:
    """Set `stopping` when the coordinator closes standard input; end this process at once when it dies.

    Args: parent: the coordinator's process, as it says itself: whoever is the parent now may have adopted us.
    """

    def watch() -> None:
        sys.stdin.read()  # returns when the coordinator closes the pipe, by intent or by dying
        stopping.set()
        while os.getppid() == parent:  # a process that dies closes its pipes first
            time.sleep(_ORPHANED_S)
        end_at_once(EXIT_ORPHANED)

    threading.Thread(target=watch, name="falkirk-parent", daemon=True).start()


def watch_owner(look: Callable[[], None], say: Callable[[str], None]) -> None:
    """End this process at once when `look` says that the home has another owner.

    Args: look: raises `HOME_TAKEN_OVER` or `HOME_COPIED` then; what else it raises is for the main thread to meet.
    """

    def watch() -> None:
        while True:
            time.sleep(POLL_S)
            try:
                look()
            except FalkirkError as error:
                end_if_replaced(error, say)

    threading.Thread(target=watch, name="falkirk-owner", daemon=True).start()


def end_if_replaced(error: FalkirkError, say: Callable[[str], None]) -> None:
    """End this process at once if an error says that the home has another owner. The coordinator finds the same."""
    if is_replaced(error):
        say(str(error))
        end_at_once(EXIT_FATAL)


def is_replaced(error: BaseException | None) -> bool:
    """Tell whether an error says that this process is no longer the home's owner."""
    return isinstance(error, FalkirkError) and error.condition in ("HOME_TAKEN_OVER", "HOME_COPIED")


def end_at_once(code: int) -> None:
    """Kill the processes that this one has started, and end it."""
    # Our own only: by now the home may be in other hands, and hold the names of their processes.
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    os._exit(code)
