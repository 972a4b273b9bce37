"""Policies: how a processor survives failure, and what a sink promises about delivery.

Each mechanism of the papers is a policy, so that they can be chosen, and compared (docs/concepts.md has the table).
Source: Falkirk Wheel, Figure 1 (regimes); Delivery-consistency-determinism, §II (mechanisms), Definitions 6 to 8
(delivery).
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from falkirk.errors import DefinitionError
from falkirk.location import caller

_SECONDS_MAX = 1e300
_UNITS_S = {
    "ms": 0.001,
    "millisecond": 0.001,
    "s": 1,
    "second": 1,
    "m": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
}


def duration_s(text: str | float) -> float:
    """Return a duration in seconds from text such as ``"30 seconds"``, ``"500 ms"``, or from a number of seconds.

    Raises: DefinitionError: `DURATION_MALFORMED`.
    """
    value = 0.0
    if isinstance(text, int | float) and not isinstance(text, bool):
        value = float(text) if abs(text) < _SECONDS_MAX else math.inf
    elif isinstance(text, str) and (match := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text.lower())):
        unit_s = _UNITS_S.get(match[2]) or _UNITS_S.get(match[2].removesuffix("s"), 0.0)
        value = float(match[1]) * unit_s
    if not 0 < value < math.inf:  # NaN is neither
        raise DefinitionError(
            "DURATION_MALFORMED",
            f"{text!r} is not a duration.",
            where=caller(),
            hint='Write a positive number and a unit, such as "30 seconds".',
            text=text,
        )
    return value


class Delivery(StrEnum):
    """What a sink promises its readers.

    EXACTLY_ONCE: what is observed could be observed in a run without failures (Definition 6).
    REPEATED: the state is exact, but results released since the last checkpoint are released again after a failure.
    AT_MOST_ONCE: each input takes effect with all of its derivatives, or not at all; after a failure the inputs
        that waited are skipped rather than worked off (Definition 7).
    AT_LEAST_ONCE: each input takes effect with all of its derivatives, and after a failure perhaps again
        (Definition 8). All that there is behind `Acknowledged`; elsewhere it is kept by what keeps exactly-once.
    """

    EXACTLY_ONCE = "exactly-once"
    REPEATED = "repeated"
    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a processor survives failure. Use one of its kinds."""

    @property
    def interval_s(self) -> float:
        """Seconds between checkpoints of a live processor."""
        return DEFAULT_POLICY.interval_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Ephemeral(Policy):
    """Nothing of the processor is saved; it is fused into the regions that read it."""


@dataclass(frozen=True, slots=True)
class Periodic(Policy):
    """A live processor saves something every `interval`, a duration such as ``"30 seconds"``."""

    interval: str | float = "10 seconds"

    def __post_init__(self) -> None:
        if self.interval_s < 1:
            raise DefinitionError(
                "INTERVAL_TOO_SHORT",
                f"a checkpoint every {self.interval} would leave no time for work between checkpoints.",
                where=caller(),
                hint="Use at least 1 second; 5 seconds or more is usual.",
                interval=self.interval,
            )

    @property
    def interval_s(self) -> float:
        """See Policy."""
        return duration_s(self.interval)


@dataclass(frozen=True, slots=True)
class Lazy(Periodic):
    """A checkpoint every `interval`; results leave on arrival, without waiting for it,
    unless they may come out differently on a replay.

    Args:
        interval: a duration such as ``"30 seconds"``; longer ones replay more after a failure.
        when: of a batch with state, decides instead whether to save it: called with each epoch's number once the epoch
            is complete (Falkirk Wheel, §4.1).
    """

    when: Callable[[int], bool] | None = None

    def saves(self, epoch: int, since_s: float) -> bool:
        """Tell whether to save at a complete epoch. Args: since_s: seconds since a state was last saved."""
        return since_s >= self.interval_s if self.when is None else bool(self.when(epoch))


#: Of a stream that names none: in micro-batches it gives way to `Eager`, which lets results out at once.
DEFAULT_POLICY = Lazy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Eager(Policy):
    """Every result, and the state behind it, is durable before it leaves; a result that comes out the same whenever it
    is computed, and goes to one topic, is durable there."""


@dataclass(frozen=True, slots=True)
class LogSends(Periodic):
    """What a processor sends is in a log before anything sees it, and is kept there until nobody can ask for it again,
    so nothing upstream ever goes back because of what happens downstream: of a batch, log sends (an RDD); of a live
    processor, strong productions (MillWheel, Dataflow).

    Args: interval: of a live processor, between checkpoints.
    """


@dataclass(frozen=True, slots=True)
class Snapshots(Periodic):
    """A checkpoint of a live processor every `interval`, and nothing else to go back to: its results are held until one
    covers them, though they would come out the same (distributed snapshots with commit: Flink).

    Args: interval: a duration such as ``"5 seconds"``; results wait for half of it on average.
    """


@dataclass(frozen=True, slots=True)
class Acknowledged(Periodic):
    """A live processor without state, whose input is acknowledged once what came of it is in a log; after a failure
    what is not acknowledged is read and sent again, and nothing is held back (upstream backup: Storm).

    Args: interval: between acknowledgements, which is how much may be repeated.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FullHistory(Policy):
    """All that a batch reads is kept, so that it can go back to any of its epochs."""
