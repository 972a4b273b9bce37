"""Status: the state of each region of a running application, as users see it."""

from dataclasses import dataclass, replace
from typing import Any

from falkirk.errors import FalkirkError
from falkirk.theory.ids import Incarnation

#: The incarnation of a region that has not started.
NO_INCARNATION = Incarnation(0)
#: The environment variable with the file descriptor of the pipe that leads to the coordinator's terminal.
CONSOLE = "FALKIRK_CONSOLE"
#: How the detail of a processor begins that waits for a broker or a store. The name of either follows, and a colon.
AWAY_DETAIL = "waiting for the "

#: The upper bounds of the buckets of a latency, in seconds: `Figures.java` has the same in milliseconds.
LATENCY_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
#: The same, of the duration of an epoch.
EPOCH_BOUNDS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0)


@dataclass(kw_only=True)
class RegionStatus:
    """The state of a region, as users see it. Times in seconds.

    Args: dead_letters: of this home; None: not all of those from before this process are counted yet. condition: the
        name of the error for which it stays down, if it does; `detail` then has the whole error. error: the name of the
        error that ended it last, if one did. twin: whether its second query runs; None: it has no twins. objective: the
        interval that was chosen at its start, and from which numbers, if it has to recover within a time
        (falkirk/plan/objective.py).
    """

    name: str
    state: str = "starting"
    incarnation: Incarnation = NO_INCARNATION
    restarts: int = 0
    suppressed: int = 0
    dead_letters: int | None = None
    last_commit: int = -1
    checkpoint_age_s: float | None = None
    detail: str = ""
    condition: str = ""
    error: str = ""
    twin: bool | None = None
    objective: dict[str, Any] | None = None

    def copy(self) -> "RegionStatus":
        """Return the present values, which change no more."""
        return replace(self)

    def failed(self, error: FalkirkError) -> "RegionStatus":
        """Return the same status of a region that stays down because of an error."""
        state = self.state if self.state == "stopped" else "failed"
        return replace(self, state=state, condition=error.condition, detail=f"{error.condition}: {error}")
