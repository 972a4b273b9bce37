"""Policies: how a processor survives failures, and what a sink promises about delivery.

Each mechanism of the papers is a policy, so that users can choose and compare them (docs/concepts.md has the table).
Source: Falkirk Wheel, Figure 1 (regimes); Delivery-consistency-determinism, §II (mechanisms), Definitions 6 to 8
    (delivery).
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from falkirk.errors.conditions.declare import DURATION_MALFORMED, INTERVAL_TOO_SHORT
from falkirk.errors.conditions.objective import OBJECTIVE_CONTRADICTED
from falkirk.errors.location import caller
from falkirk.theory.ids import EpochNumber
from falkirk.theory.objective import Measurements, choose_interval

#: A number of seconds, a text such as ``"30 seconds"``, or a `timedelta`.
Duration = str | float | timedelta

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
    "d": 86_400,
    "day": 86_400,
}


def duration_s(text: Duration) -> float:
    """Return a duration in seconds, given as ``"30 seconds"`` or ``"1 day"``, a `timedelta`, or a number of seconds.

    Raises: DefinitionError: `DURATION_MALFORMED`.
    """
    value = 0.0
    if isinstance(text, timedelta):
        value = text.total_seconds()
    elif isinstance(text, int | float) and not isinstance(text, bool):
        value = float(text) if abs(text) < _SECONDS_MAX else math.inf
    elif isinstance(text, str) and (match := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text.lower())):
        unit_s = _UNITS_S.get(match[2]) or _UNITS_S.get(match[2].removesuffix("s"), 0.0)
        value = float(match[1]) * unit_s
    if not 0 < value < math.inf:  # excludes NaN too
        raise DURATION_MALFORMED.error(where=caller(), text=text)
    return value


class Delivery(StrEnum):
    """The promise of a sink to its readers.

    EXACTLY_ONCE: everything that readers see is possible in a run without failures (Definition 6).
    REPEATED: each input record counts once in the state, but after a failure the results since the last checkpoint are
    published again.
    AT_MOST_ONCE: each input takes effect with all its derivatives, or not at all. After a failure the waiting inputs
    are skipped (Definition 7).
    AT_LEAST_ONCE: each input takes effect with all its derivatives, and after a failure possibly again (Definition 8).
    After `Acknowledged` this is the only possible promise. Without that policy, the mechanism for exactly-once provides
    it.
    """

    EXACTLY_ONCE = "exactly-once"
    REPEATED = "repeated"
    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a processor survives failures. Use one of the subclasses."""

    @property
    def interval_s(self) -> float:
        """Seconds between checkpoints of a live processor."""
        return DEFAULT_POLICY.interval_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Ephemeral(Policy):
    """Nothing of the processor is saved; its steps run in the regions that read it."""


class _Default(str):
    """A text that is distinguished from an equal one of the user."""

    __slots__ = ()


#: The time between checkpoints of a policy without one.
DEFAULT_INTERVAL = _Default("10 seconds")


@dataclass(frozen=True, slots=True)
class Periodic(Policy):
    """A live processor saves data every `interval`, a duration such as ``"30 seconds"``."""

    interval: Duration = DEFAULT_INTERVAL

    def __post_init__(self) -> None:
        if self.interval_s < 1:
            raise INTERVAL_TOO_SHORT.error(where=caller(), interval=self.interval)

    @property
    def interval_s(self) -> float:
        """See Policy."""
        return duration_s(self.interval)


@dataclass(frozen=True, slots=True)
class Lazy(Periodic):
    """A checkpoint every `interval`. Results are published at once, unless they may differ on a replay.

    Args:
        interval: a duration such as ``"30 seconds"``, by default ``"10 seconds"``; a longer one means a longer replay
            after a failure.
        when: for a batch with state, decides instead of `interval` whether to save the state. Called with the number of
            each complete epoch (Falkirk Wheel, §4.1).
        twins: of a live processor: two queries compute the results, with checkpoints at different times. The first one
            to compute a result publishes it, so no result waits while one of them makes a checkpoint. They take twice
            the slots and memory, and up to twice the processor time.
        recover_within: of a live processor, instead of `interval`: the time after a death in which its region is to
            have caught up. At each start of the region, Falkirk chooses the longest interval that allows this, from the
            measured times of restarts and the measured rates of replay and input: falkirk/theory/objective.py.

    Raises: DefinitionError: `OBJECTIVE_CONTRADICTED`, `DURATION_MALFORMED`, `INTERVAL_TOO_SHORT`.
    """

    when: Callable[[int], bool] | None = None
    twins: bool = False
    recover_within: Duration | None = None

    def __post_init__(self) -> None:
        if self.recover_within is not None and (not isinstance(self.interval, _Default) or self.when is not None):
            other = "when=" if isinstance(self.interval, _Default) else f"interval={self.interval!r}"
            raise OBJECTIVE_CONTRADICTED.error(where=caller(), recover_within=self.recover_within, other=other)
        Periodic.__post_init__(self)

    @property
    def goal_s(self) -> float | None:
        """The time in which a region is to recover; None: the interval is given instead."""
        return None if self.recover_within is None else duration_s(self.recover_within)

    @property
    def interval_s(self) -> float:
        """See Policy. With an objective: the interval before the first measurement."""
        if self.goal_s is not None:
            return choose_interval(self.goal_s, Measurements(), standby=False).interval_s
        return duration_s(self.interval)

    def saves(self, epoch: EpochNumber, since_s: float) -> bool:
        """Return whether to save at a complete epoch. Args: since_s: seconds since a state was last saved."""
        return since_s >= self.interval_s if self.when is None else bool(self.when(epoch))


#: The policy of a stream without an explicit one. In micro-batches `Eager` replaces it, so that results are not
#: delayed.
DEFAULT_POLICY = Lazy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Eager(Policy):
    """Every result, and the state that it depends on, is durable before publication.

    A deterministic result that goes to only one topic becomes durable there.
    """


@dataclass(frozen=True, slots=True)
class LogSends(Periodic):
    """Records of a processor are logged before anything reads them, and kept until no reader can need them again.

    So a failure downstream never rolls back anything upstream. For a batch this is log sends (an RDD); for a live
    processor, strong productions (MillWheel, Dataflow).

    Args: interval: time between checkpoints of a live processor.
    """


@dataclass(frozen=True, slots=True)
class Snapshots(Periodic):
    """A checkpoint of a live processor every `interval`; the processor can return only to a checkpoint.

    So results are held until a checkpoint covers them, even if they are deterministic (distributed snapshots with
    commit: Flink).

    Args: interval: a duration such as ``"5 seconds"``; results wait for half of it on average.
    """


@dataclass(frozen=True, slots=True)
class Acknowledged(Periodic):
    """A live processor without state; its input is acknowledged once the input's results are in a log.

    After a failure the input without acknowledgement is read again, and its results are published again; no barrier
    drops them (upstream backup: Storm).

    Args: interval: between acknowledgements; after a failure, results of this time may be repeated.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FullHistory(Policy):
    """All input of a batch is kept, so that the batch can roll back to any of its epochs."""
