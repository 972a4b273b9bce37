"""Unchanged: reads an application's checkpoints so that no recovery comes between two of the reads.

A rollback drops checkpoints, and the region then makes others with the same numbers. A command that reads one part of
checkpoint 7 before and another part after would mix the two. The store records each recovery before anything goes back,
and each step of it. So a command looks there before and after, and reads again if there was another step.
"""

from collections.abc import Callable
from typing import TypeVar

from falkirk.errors import FalkirkError
from falkirk.errors.conditions.commands import RECOVERIES_MEANWHILE
from falkirk.recovery.decision_store import Store

T = TypeVar("T")

#: A command reads so often at most. Recoveries take seconds, and most reads less.
TRIES = 10


def read_unchanged(store: Store, read: Callable[[], T]) -> T:
    """Return what `read` returns while the application restores no checkpoint.

    Args: read: reads everything from the start each time, and changes nothing.
    Raises: HomeError: `RECOVERIES_MEANWHILE`. Others as `read`, if there was no recovery meanwhile.
    """
    for _ in range(TRIES):
        before = store.newest_recovery()
        try:
            found = read()
        except FalkirkError:
            if store.newest_recovery() == before:
                raise
            continue
        if store.newest_recovery() == before:
            return found
    raise RECOVERIES_MEANWHILE.error(tries=TRIES)
