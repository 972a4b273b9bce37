"""Places in a loop's work at which its process is killed, with -9, or a call fails, once, when a file says so."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from falkirk.differential import jobs
from falkirk.differential.jobs import Jobs
from falkirk.epochs.log import EpochLog
from falkirk.epochs.states import States

#: What is called, whether it happens before or behind it, and whether the process is killed or the call fails.
PLACES: dict[str, tuple[type, str, bool, bool]] = {
    "a-round-fails": (Jobs, "flush", False, False),
    "in-a-round": (Jobs, "operate", True, True),
    "between-rounds": (Jobs, "flush", True, True),
    "done-by-one-task": (Jobs, "_go_alone", True, True),
    "state-half-written": (States, "write", True, True),
    "recorded": (EpochLog, "record", True, True),
}


def _strike_at(place: str, folder: Path) -> None:
    owner, name, behind, kills = PLACES[place]
    real: Callable[..., Any] = getattr(owner, name)
    mark = folder / place

    def strike() -> None:
        if mark.exists():
            mark.unlink()
            if kills:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError(place)

    def call(*arguments: Any, **options: Any) -> Any:
        if not behind:
            strike()
        result = real(*arguments, **options)
        if behind:
            strike()
        return result

    setattr(owner, name, call)


def strike_anywhere(folder: Path) -> None:
    """From now on, while a file named like one of the PLACES is in a folder, the next call there takes it away and
    kills its process, or fails."""
    for place in PLACES:
        _strike_at(place, folder)
    prepare = jobs.prepare
    # For what one task does alone there are no jobs in which to strike.
    jobs.prepare = lambda *given: frozenset() if (folder / "in-a-round").exists() else prepare(*given)  # type: ignore[assignment]
