"""Explanation: the plan as a user reads it: regions, hops with their reasons, and core slots needed against
available."""

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from falkirk.plan.region import Plan, Region
from falkirk.plan.slots import RegionSlots
from falkirk.policy import Delivery

_PROMISE = {
    Delivery.EXACTLY_ONCE: "exactly once, released on arrival",
    Delivery.REPEATED: "state exact; results since the last checkpoint are repeated after a failure",
    Delivery.AT_MOST_ONCE: "at most once: waiting input is skipped after a failure",
}


def explain(plan: Plan, slots: tuple[RegionSlots, ...], available: int) -> RenderableType:
    """Return the plan for the terminal.

    Args: slots: of each region, in order. available: slots of the Spark application.
    """
    table = Table(title=f"{plan.application}: {len(plan.regions)} live region(s)", title_justify="left")
    for heading in ("region", "runs", "reads", "writes", "checkpoint", "promise", "slots"):
        table.add_column(heading)
    for region, need in zip(plan.regions, slots, strict=True):
        table.add_row(
            region.name,
            ", ".join(region.processors) or "(pass through)",
            region.source.topic.topic,
            region.output.topic,
            f"every {region.interval_s:g} s",
            _PROMISE[region.delivery],
            f"{need.source} source + {need.state} state" if need.state else f"{need.source} source",
        )
    hops = [
        Text(f"hop {region.hop.topic}: {region.hop.reason}; its order is the recorded one ({region.where})")
        for region in plan.regions
        if region.hop is not None
    ]
    total = sum(need.total for need in slots)
    verdict = "enough" if total <= available else "NOT enough: Real-time Mode takes all of them at once"
    return Group(table, *hops, Text(f"core slots: {total} needed, {available} available: {verdict}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A plan with the slots that it needs and has, ready to be shown."""

    plan: Plan
    slots: tuple[RegionSlots, ...]
    available: int

    def renderable(self) -> RenderableType:
        """Return it for the terminal."""
        return explain(self.plan, self.slots, self.available)

    def as_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return as_json(self.plan, self.slots, self.available)


def as_json(plan: Plan, slots: tuple[RegionSlots, ...], available: int) -> dict[str, object]:
    """Return the plan as plain values for ``falkirk plan --json``."""
    return {
        "application": plan.application,
        "slots": {"needed": sum(s.total for s in slots), "available": available},
        "regions": [_region(r, s) for r, s in zip(plan.regions, slots, strict=True)],
    }


def _region(region: Region, slots: RegionSlots) -> dict[str, object]:
    return {
        "name": region.name,
        "processors": list(region.processors),
        "reads": region.source.topic.topic,
        "writes": region.output.topic,
        "dead_letters": region.dead_letter_topic,
        "engine": "real-time mode",
        "delivery": region.delivery.value,
        "interval_s": region.interval_s,
        "stateful": region.stateful,
        "hop": None if region.hop is None else {"topic": region.hop.topic, "reason": region.hop.reason},
        "slots": {"source": slots.source, "state": slots.state},
        "declared": str(region.where),
    }
