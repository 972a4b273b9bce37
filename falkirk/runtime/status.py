"""Status: the state of each region of a running application, as users see it."""

from dataclasses import dataclass, replace

from falkirk.errors import FalkirkError

#: The environment variable with the file descriptor of the pipe that leads to the coordinator's terminal.
CONSOLE = "FALKIRK_CONSOLE"


@dataclass(kw_only=True)
class RegionStatus:
    """The state of a region, as users see it. Times in seconds.

    Args: condition: of the error for which it stays down, if it does; `detail` then has the whole error.
    """

    name: str
    state: str = "starting"
    incarnation: int = 0
    restarts: int = 0
    suppressed: int = 0
    dead_letters: int = 0
    last_commit: int = -1
    checkpoint_age_s: float | None = None
    input_rows_per_s: float = 0.0
    detail: str = ""
    condition: str = ""

    def copy(self) -> "RegionStatus":
        """Return the present values, which change no more."""
        return replace(self)

    def failed(self, error: FalkirkError) -> "RegionStatus":
        """Return the same status of a region that stays down because of an error."""
        state = self.state if self.state == "stopped" else "failed"
        return replace(self, state=state, condition=error.condition, detail=f"{error.condition}: {error}")
