"""Objective: chooses the time between checkpoints of a region that has to recover within a time, and explains it.

The choice is made at each start of a region, because a Real-time Mode query keeps the batch duration of its trigger.
The interval is no part of a region's fingerprint: it changes neither the input of a checkpoint nor its state. Until a
number is measured, a guess takes its place, and the explanation says so.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from falkirk.declare.policy import DEFAULT_POLICY, Lazy
from falkirk.errors import GuaranteeError
from falkirk.errors.conditions.objective import OBJECTIVE_MISSED
from falkirk.plan.mechanisms import TWINS_INTERVAL_S
from falkirk.plan.plan import Plan
from falkirk.plan.reasons import duration_text
from falkirk.plan.region import Region
from falkirk.theory.objective import GREATEST_S, LEAST_S, Choice, Measurements, choose_interval


def chosen(region: Region, known: Measurements | None = None, *, standby: bool = False) -> Region:
    """Return a region with the interval for its objective; without one, return it as it is.

    If results wait for its checkpoints, an objective does not make them wait for longer than the default policy.

    Args: known: the measurements of the home. standby: one is kept.
    """
    if not isinstance(region.policy, Lazy) or region.policy.goal_s is None:
        return region
    waits = region.undetermined is not None or not region.deterministic
    choice = choose_interval(
        region.policy.goal_s,
        known or Measurements(),
        standby=standby,
        least_s=TWINS_INTERVAL_S if region.twins else LEAST_S,
        greatest_s=DEFAULT_POLICY.interval_s if waits else GREATEST_S,
    )
    return replace(region, interval_s=choice.interval_s, choice=choice)


def chosen_for(plan: Plan, known: Callable[[str], Measurements], *, standby: bool) -> Plan:
    """Return a plan in which each region with an objective has its interval. Args: known: by region. See `chosen`."""
    if not any(region.has_objective for region in plan.regions):
        return plan
    regions = [chosen(r, known(r.name), standby=standby) if r.has_objective else r for r in plan.regions]
    return replace(plan, regions=tuple(regions))


def missed(region: str, choice: Choice, where: object = None) -> GuaranteeError | None:
    """Return the warning that the shortest interval is still too long; None: the objective is met."""
    if choice.is_met:
        return None
    expected = "more time than there is: input arrives as fast as it is replayed"
    if choice.rates.replay_per_s > choice.rates.input_per_s:
        expected = _seconds(choice.expected_s)
    restart = _seconds(choice.rates.restart_s)
    return OBJECTIVE_MISSED.error(
        where=where,
        region=region,
        goal=duration_text(choice.goal_s),
        interval=duration_text(choice.interval_s),
        expected=expected,
        restart=f"{restart}, with a standby" if choice.standby else restart,
        advice="Give it more processors" if choice.standby else "Keep a standby (falkirk run --standby)",
    )


def in_words(region: str, choice: Choice) -> str:
    """Return a sentence about the choice and the numbers from which it was made."""
    every, goal = duration_text(choice.interval_s), duration_text(choice.goal_s)
    standby = ", with a standby" if choice.standby else ""
    return f"{region}: a checkpoint every {every}, to recover within {goal}{standby}. {numbers(choice)}"


def numbers(choice: Choice) -> str:
    """Return the numbers of a choice as a sentence. Each is a measurement or a guess."""
    rates = choice.rates
    found = (
        ("restart_s", "restart", _seconds(rates.restart_s)),
        ("replay_per_s", "replay", f"{rates.replay_per_s:,.0f} records/s"),
        ("input_per_s", "input", f"{rates.input_per_s:,.0f} records/s"),
        ("checkpoint_s", "checkpoint", _seconds(rates.checkpoint_s)),
    )
    parts = [f"{noun} {value} ({'measured' if n in choice.measured else 'a guess'})" for n, noun, value in found]
    return f"{', '.join(parts)}.".capitalize()


def objective_values(region: Region) -> dict[str, Any] | None:
    """Return the choice of a region as plain values, with its explanation, and a warning if it misses the objective."""
    if (choice := region.choice) is None:
        return None
    warning = missed(region.name, choice, region.where)
    text = None if warning is None else f"{warning.condition}: {warning}"
    return {**choice.as_json(), "text": in_words(region.name, choice), "warning": text}


def previewed(region: Region, known: Mapping[str, Measurements]) -> Iterator[str]:
    """Yield sentences about the choice that the next start makes, without a standby and with one, and the warnings."""
    without, with_one = (chosen(region, known.get(region.name), standby=kept).choice for kept in (False, True))
    if without is None or with_one is None:
        return
    yield in_words(region.name, without)
    every = duration_text(with_one.interval_s)
    yield f"{region.name}: with `falkirk run --standby`, every {every}. {numbers(with_one)}"
    for choice in (without, with_one):
        if (warning := missed(region.name, choice, region.where)) is not None:
            yield f"Warning: {warning.condition}: {warning}"


def _seconds(duration_s: float) -> str:
    return f"{duration_s:.1f} s"
