"""Explanation: the plan as a user reads it: regions, hops with their reasons, and core slots needed against
available."""

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from falkirk.declared import Sink
from falkirk.endpoints import Console
from falkirk.plan.batch import Batch, address
from falkirk.plan.region import Plan, Region
from falkirk.plan.slots import RegionSlots
from falkirk.policy import Delivery, Lazy

_PROMISE = {
    Delivery.EXACTLY_ONCE: "exactly once, released on arrival",
    Delivery.REPEATED: "state exact; results since the last checkpoint are repeated after a failure",
    Delivery.AT_MOST_ONCE: "at most once: waiting input is skipped after a failure",
}
_HELD = "exactly once, released when a checkpoint covers it"


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
            region.output.topic if region.released_to is None else f"held log ─▶ {region.released_to.topic}",
            f"every {region.interval_s:g} s",
            _PROMISE[region.delivery] if region.released_to is None else _HELD,
            f"{need.source} source + {need.state} state" if need.state else f"{need.source} source",
        )
    hops = [
        Text(f"hop {region.hop.topic}: {region.hop.reason}; its order is the recorded one ({region.where})")
        for region in plan.regions
        if region.hop is not None
    ]
    held = [Text(text) for region in plan.regions if (text := _why_held(plan, region))]
    push = [
        Text(f"{p.name}: requests posted to {p.path} wait in {p.topic.topic}; answers: {p.answers or 'none'}")
        for p in plan.push
    ]
    batches = [_batches(plan)] if plan.batches else []
    total = sum(need.total for need in slots)
    verdict = "enough" if total <= available else "NOT enough: Real-time Mode takes all of them at once"
    tables = [table] if plan.regions else []
    engines = [Text(f"{b.name} runs in micro-batches: {b.reason}") for b in plan.batches if b.reason]
    needed = Text(f"core slots: {total} needed, {available} available: {verdict}")
    return Group(*tables, *push, *hops, *held, *batches, *engines, needed)


def _batches(plan: Plan) -> RenderableType:
    """Return what the batches read and write, and why their results leave when they do."""
    table = Table(title=f"{plan.application}: {len(plan.batches)} batch(es)", title_justify="left")
    for heading in ("batch", "reads", "an epoch is complete", "writes", "keeps", "promise"):
        table.add_column(heading)
    for batch in plan.batches:
        table.add_row(
            batch.name,
            "\n".join(f"newest epoch of {i.name}" if i.view else i.name for i in batch.inputs),
            str(batch.cut),
            "\n".join(map(_writes, batch.sinks)) or "its log, for other batches",
            _keeps(batch),
            _batch_promise(batch),
        )
    return table


def _writes(sink: Sink) -> str:
    return f"{sink.name}: {address(sink)}{' (again after a failure)' if isinstance(sink.to, Console) else ''}"


def _keeps(batch: Batch) -> str:
    """Return what a batch keeps from one epoch to the next, and when it is saved."""
    kept = [] if batch.state is None else [*batch.state.names]
    kept += [f"what {slot.rpartition('-')[0]} keeps" for slot in batch.slots]
    if batch.iteration is not None:
        kept.append(f"what its loops keep, of at most {batch.iteration.rounds:,} rounds")
    return f"{', '.join(kept)}; {_saves(batch)}" if kept else "nothing between epochs"


def _saves(batch: Batch) -> str:
    if not isinstance(batch.policy, Lazy):
        return "saved at each epoch"
    return f"saved every {batch.policy.interval_s:g} s" if batch.policy.when is None else "saved when its policy says"


def _batch_promise(batch: Batch) -> str:
    if batch.deterministic:
        return "exactly once, released as soon as the epoch is recorded"
    return (
        f"exactly once, released when a saved epoch covers it: {', '.join(batch.undetermined)} may come out differently"
    )


def _why_held(plan: Plan, region: Region) -> str:
    """Return when the results of a sink that is held back are released, and why not at once."""
    if region.released_to is None:
        return ""
    awaited = plan.awaited_by(region)
    covers = "a checkpoint covers" if len(awaited) == 1 else f"checkpoints of {_listed(awaited)} cover"
    return (
        f"held log {region.output.topic}: results are released to {region.released_to.topic} once {covers} everything "
        f"that they depend on, at most about {_within_s(awaited):g} s later, because {region.undetermined} "
        "may come out differently on a replay"
    )


def _listed(regions: tuple[Region, ...]) -> str:
    names = [region.name for region in regions]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _within_s(awaited: tuple[Region, ...]) -> float:
    return sum(region.interval_s for region in awaited)


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
        "regions": [_region(plan, r, s) for r, s in zip(plan.regions, slots, strict=True)],
        "batches": [_batch(batch) for batch in plan.batches],
        "push": [{"source": p.name, "path": p.path, "answers": p.answers} for p in plan.push],
    }


def _engine(batch: Batch) -> str:
    if batch.iteration is not None:
        return "a DataFrame job per round"
    return "micro-batches" if batch.reason else "a DataFrame job per epoch"


def _batch(batch: Batch) -> dict[str, object]:
    return {
        "name": batch.name,
        "engine": _engine(batch),
        "engine_reason": batch.reason or None,
        "reads": [{"name": i.name, "log": i.log, "view": i.view} for i in batch.inputs],
        "cut": str(batch.cut),
        "writes": [
            {
                "sink": s.name,
                "to": address(s),
                "delivery": (Delivery.REPEATED if isinstance(s.to, Console) else Delivery.EXACTLY_ONCE).value,
            }
            for s in batch.sinks
        ],
        "state": None if batch.state is None else batch.state.simpleString(),
        "deterministic": batch.deterministic,
        "undetermined": list(batch.undetermined),
        "dead_letters": batch.dead_letter_topic,
        "declared": str(batch.where),
    }


def _region(plan: Plan, region: Region, slots: RegionSlots) -> dict[str, object]:
    released_to = region.released_to
    return {
        "name": region.name,
        "processors": list(region.processors),
        "reads": region.source.topic.topic,
        "writes": region.output.topic,
        "released_to": None if released_to is None else released_to.topic,
        "released_within_s": None if released_to is None else _within_s(plan.awaited_by(region)),
        "deterministic": region.deterministic,
        "undetermined": _undetermined(region),
        "dead_letters": region.dead_letter_topic,
        "engine": "real-time mode",
        "delivery": region.delivery.value,
        "interval_s": region.interval_s,
        "stateful": region.stateful,
        "hop": None if region.hop is None else {"topic": region.hop.topic, "reason": region.hop.reason},
        "slots": {"source": slots.source, "state": slots.state},
        "declared": str(region.where),
    }


def _undetermined(region: Region) -> dict[str, object] | None:
    cause = region.undetermined
    if cause is None:
        return None
    return {"operations": list(cause.operations), "processor": cause.processor, "declared": str(cause.where)}
