"""Objective: the longest time between checkpoints with which a region recovers within a time that the user names.

R is the time from a death until the region reads its first record. λ records arrive per second, and μ are replayed per
second. T is the time between checkpoints, and C the time that a checkpoint takes, all in seconds. At the worst moment,
a checkpoint is almost complete, so the last complete one lacks the records of T + C seconds.

A recovery has ended once the region has caught up: it has processed the replay and all records that arrived meanwhile.
From then on, a new record is processed at once. G seconds after the death, λ(T + C + G) records are to be processed,
and μ(G − R) can have been. So

    λ(T + C + G) ≤ μ(G − R),   which is   T ≤ (G − R)·μ/λ − G − C.

Without the new input, the bound would be (G − R)·μ/λ. With this bound, the replay of the old records ends in time, but
the new ones still wait behind it. The term G is that input: during G seconds it takes λG/μ seconds of work.

    >>> rates = RecoveryRates(restart_s=3.0, replay_per_s=5000.0, input_per_s=1000.0, checkpoint_s=1.0)
    >>> longest_interval_s(5.0, rates), recovery_s(4.0, rates)
    (4.0, 5.0)
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

#: The least and the greatest interval that an objective chooses. A checkpoint costs about 0.3 s of CPU time and delays
#: records, so below the least one a region does little else. Above the greatest one, nothing more is saved.
LEAST_S, GREATEST_S = 2.0, 60.0
#: After this time without a similar value, half of a greatest value is forgotten.
HALF_LIFE_S = 3600.0
#: Chosen intervals are multiples of this time.
STEP_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRates:
    """The numbers on which the time of a recovery depends.

    Args: restart_s: R. replay_per_s: μ. input_per_s: λ. checkpoint_s: C.
    """

    restart_s: float
    replay_per_s: float
    input_per_s: float
    checkpoint_s: float


def recovery_s(interval_s: float, rates: RecoveryRates) -> float:
    """Return the time from a death at the worst moment until a region has caught up; inf: it never does.

    It is R + λ(T + C + R) / (μ − λ): the records that wait after the restart, at the rate at which they become fewer.
    """
    spare_per_s = rates.replay_per_s - rates.input_per_s
    waiting = rates.input_per_s * (interval_s + rates.checkpoint_s + rates.restart_s)
    if waiting <= 0:
        return rates.restart_s
    return rates.restart_s + waiting / spare_per_s if spare_per_s > 0 else math.inf


def longest_interval_s(goal_s: float, rates: RecoveryRates) -> float:
    """Return the longest time between checkpoints with which a recovery takes at most `goal_s`.

    It is negative if no interval is short enough, and infinite without input.
    """
    left_s = goal_s - rates.restart_s
    if rates.input_per_s <= 0:
        return math.inf if left_s >= 0 else -math.inf
    return left_s * rates.replay_per_s / rates.input_per_s - goal_s - rates.checkpoint_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """The numbers that a home has measured about a region. None: not measured yet.

    Args: restart_s: R without a standby. standby_restart_s: R with a warm one. replay_per_s, input_per_s, checkpoint_s:
        as of `RecoveryRates`. at_s: when the input and the checkpoints were last measured.
    """

    restart_s: float | None = None
    standby_restart_s: float | None = None
    replay_per_s: float | None = None
    input_per_s: float | None = None
    checkpoint_s: float | None = None
    at_s: float = 0.0

    def with_restart(self, took_s: float, *, standby: bool) -> "Measurements":
        """Return them with one restart more. A longer one counts at once, a shorter one by half."""
        name = "standby_restart_s" if standby else "restart_s"
        return replace(self, **{name: _worst(getattr(self, name), took_s)})

    def with_replay(self, records: float, took_s: float) -> "Measurements":
        """Return them with one replay more. A slower one counts at once, a faster one by half."""
        per_s, known = records / took_s, self.replay_per_s
        return replace(self, replay_per_s=per_s if known is None else min(per_s, (per_s + known) / 2))

    def with_at_least(self, per_s: float) -> "Measurements":
        """Return them after a replay that was too short to be measured. Args: per_s: it was at least as fast."""
        known = GUESSES.replay_per_s if self.replay_per_s is None else self.replay_per_s
        return replace(self, replay_per_s=per_s) if per_s > known else self

    def with_interval(self, input_per_s: float | None, checkpoint_s: float | None, now_s: float) -> "Measurements":
        """Return them with one interval between checkpoints more. The greatest values count, and are forgotten slowly.

        Args: input_per_s: the records that arrived. checkpoint_s: the time by which it exceeded the chosen interval.
            None: not measured this time.
        """
        kept = 0.5 ** (max(0.0, now_s - self.at_s) / HALF_LIFE_S)
        return replace(
            self, at_s=now_s,
            input_per_s=_greatest(input_per_s, self.input_per_s, kept),
            checkpoint_s=_greatest(checkpoint_s, self.checkpoint_s, kept),
        )  # fmt: skip


def _greatest(found: float | None, known: float | None, kept: float) -> float | None:
    values = [value for value in (found, None if known is None else kept * known) if value is not None]
    return max(values, default=None)


def _worst(known: float | None, found: float) -> float:
    return found if known is None else max(found, (found + known) / 2)


#: The numbers before the first measurement. docs/latency.md has times of restarts, and a checkpoint delays records by
#: 0.2 to 1 s. Nothing is known about the load. The guess is a fifth of what a JVM replays that has just started.
GUESSES = RecoveryRates(restart_s=12.0, replay_per_s=5000.0, input_per_s=1000.0, checkpoint_s=1.0)
STANDBY_RESTART_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An interval that was chosen for an objective.

    Args: goal_s: the objective. greatest_s: the greatest interval that it may choose. standby: a standby is kept, so R
        is that with a standby. measured: the names of the rates that were measured; the others are guesses.
    """

    goal_s: float
    interval_s: float
    greatest_s: float
    rates: RecoveryRates
    measured: frozenset[str] = field(default_factory=frozenset)
    standby: bool = False

    @property
    def expected_s(self) -> float:
        """The time of a recovery at the worst moment, with these numbers."""
        return recovery_s(self.interval_s, self.rates)

    @property
    def is_met(self) -> bool:
        """Whether a recovery at the worst moment takes at most as long as the objective."""
        return self.expected_s <= self.goal_s + 1e-9

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        names = ("restart_s", "replay_per_s", "input_per_s", "checkpoint_s")
        expected_s = self.expected_s
        return {
            "recover_within_s": self.goal_s,
            "interval_s": self.interval_s,
            "expected_s": None if math.isinf(expected_s) else round(expected_s, 2),
            "met": self.is_met,
            "standby": self.standby,
            "rates": {n: {"value": getattr(self.rates, n), "measured": n in self.measured} for n in names},
        }


def choose_interval(
    goal_s: float, known: Measurements, *, standby: bool, least_s: float = LEAST_S, greatest_s: float = GREATEST_S
) -> Choice:
    """Return the interval for an objective. Args: standby: one is kept. least_s, greatest_s: bounds of the interval."""
    found = {
        "restart_s": known.standby_restart_s if standby else known.restart_s,
        "replay_per_s": known.replay_per_s,
        "input_per_s": known.input_per_s,
        "checkpoint_s": known.checkpoint_s,
    }
    measured = {name: value for name, value in found.items() if value is not None}
    guesses = replace(GUESSES, restart_s=STANDBY_RESTART_S) if standby else GUESSES
    rates = replace(guesses, **measured)
    bounded_s = max(least_s, min(greatest_s, longest_interval_s(goal_s, rates)))
    stepped_s = max(least_s, math.floor(bounded_s / STEP_S + 1e-6) * STEP_S)
    return Choice(
        goal_s=goal_s, interval_s=round(stepped_s, 3), greatest_s=greatest_s, rates=rates,
        measured=frozenset(measured), standby=standby,
    )  # fmt: skip
