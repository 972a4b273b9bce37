"""Machine time: the port for the time. An application uses the module `time`, a test its own, and never waits."""

from typing import Protocol


class MachineTime(Protocol):
    """The clocks of a run, as the module `time` has them."""

    def time(self) -> float:
        """Return the present time, in seconds since 1970."""

    def monotonic(self) -> float:
        """Return seconds since some moment. No change of the machine's time moves it."""

    def sleep(self, seconds: float, /) -> None:
        """Wait for this time."""
