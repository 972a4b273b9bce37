"""Status: the state of each region of a running application, as users see it."""

from dataclasses import dataclass

#: The environment variable with the file descriptor of the pipe that leads to the coordinator's terminal.
CONSOLE = "FALKIRK_CONSOLE"


@dataclass(kw_only=True)
class RegionStatus:
    """The state of a region, as users see it. Times in seconds."""

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
