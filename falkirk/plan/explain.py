"""Explanation: the plan as a user reads it: regions, hops with their reasons, and core slots needed against
available."""

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from falkirk.declared import Sink
from falkirk.endpoints import Console
from falkirk.plan import mechanisms
from falkirk.plan.batch import Batch, address
from falkirk.plan.guarantees import Promise, promises_of
from falkirk.plan.region import Hop, Plan, Region
from falkirk.plan.slots import RegionSlots
from falkirk.policy import Delivery, Lazy


def explain(plan: Plan, slots: tuple[RegionSlots, ...], available: int) -> RenderableType:
    """Return the plan for the terminal.

    Args: slots: of each region, in order. available: slots of the Spark application.
    """
    table = Table(title=f"{plan.application}: {len(plan.regions)} live region(s)", title_justify="left")
    for heading in ("region", "runs", "reads", "writes", "checkpoint", "slots"):
        table.add_column(heading)
    for region, need in zip(plan.regions, slots, strict=True):
        table.add_row(
            region.name,
            ", ".join(region.processors) or "(pass through)",
            region.source.topic.topic,
            region.output.topic if region.released_to is None else f"held log ─▶ {region.released_to.topic}",
            f"every {region.interval_s:g} s",
            f"{need.source} source + {need.state} state" if need.state else f"{need.source} source",
        )
    hops = [_hop(region, region.hop) for region in plan.regions if region.hop is not None]
    policies = [Text(f"{region.name}: {mechanisms.consequence(region)}") for region in plan.regions]
    promises = [_promise(promise) for promise in promises_of(plan)]
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
    return Group(*tables, *batches, *push, *policies, *hops, *engines, _known(plan), *promises, needed)


def _batches(plan: Plan) -> RenderableType:
    """Return what the batches read and write, and why their results leave when they do."""
    table = Table(title=f"{plan.application}: {len(plan.batches)} batch(es)", title_justify="left")
    for heading in ("batch", "reads", "an epoch is complete", "writes", "keeps"):
        table.add_column(heading)
    for batch in plan.batches:
        table.add_row(
            batch.name,
            "\n".join(f"newest epoch of {i.name}" if i.view else i.name for i in batch.inputs),
            str(batch.cut),
            "\n".join(map(_writes, batch.sinks)) or "its log, for other batches",
            _keeps(batch),
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


def _known(plan: Plan) -> RenderableType:
    """Return what is known of each processor."""
    table = Table(title="what is known before it runs", title_justify="left")
    for heading in ("processor", "same on a replay", "the order of rows", "a row taken in twice"):
        table.add_column(heading)
    for name, known in plan.properties.items():
        same = "by your word" if known.words else "yes"
        table.add_row(
            name,
            "no: " + "; ".join(known.differs) if known.differs else same,
            "matters: " + "; ".join(known.ordered) if known.ordered else "does not matter",
            "counts twice: " + "; ".join(known.adds_up) if known.adds_up else "counts once",
        )
    return table


def _promise(promise: Promise) -> Text:
    """Return what is promised of a sink, and why, in lines."""
    lines = [f"{promise.sink} ─▶ {promise.to}: {promise.headline}"]
    lines += [f"  because {reason}" for reason in promise.reasons]
    if promise.held is not None:
        lines.append(f"  until then results wait in the held log {promise.held}")
    lines += [f"  to have them earlier: {text}" for text in promise.advice]
    lines.append(f"  durable: {'; '.join(promise.durable)}")
    alone = [name for name, others in promise.goes_back.items() if others == (name,)]
    if alone:
        lines.append(
            f"  if {' or '.join(alone)} fails, it alone goes back to what it has saved last, and on from there"
        )
    lines += [
        f"  if {name} fails, {', '.join(others)} go back to what they have saved, and on from there"
        for name, others in promise.goes_back.items()
        if name not in alone
    ]
    return Text("\n".join(lines))


def _hop(region: Region, hop: Hop) -> Text:
    return Text(
        f"hop {hop.topic}: {hop.reason}; its order is the recorded one ({region.where.place}); about "
        f"{hop.record_bytes} bytes a record, kept until all its readers have saved what they made of it"
    )


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
        "properties": {name: known.as_json() for name, known in plan.properties.items()},
        "sinks": [promise.as_json() for promise in promises_of(plan)],
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
        "released_within_s": None if released_to is None else sum(r.interval_s for r in plan.awaited_by(region)),
        "deterministic": region.deterministic,
        "undetermined": _undetermined(region),
        "dead_letters": region.dead_letter_topic,
        "engine": "real-time mode",
        "delivery": region.delivery.value,
        "policy": type(region.policy).__name__,
        "consequence": mechanisms.consequence(region),
        "repeated_by": region.repeated_by,
        "interval_s": region.interval_s,
        "stateful": region.stateful,
        "hop": None if region.hop is None else _hop_json(region.hop),
        "slots": {"source": slots.source, "state": slots.state},
        "declared": str(region.where),
    }


def _undetermined(region: Region) -> dict[str, object] | None:
    cause = region.undetermined
    if cause is None:
        return None
    return {
        "operations": list(cause.operations), "policy": cause.policy or None, "processor": cause.processor,
        "declared": str(cause.where),
    }  # fmt: skip


def _hop_json(hop: Hop) -> dict[str, object]:
    return {"topic": hop.topic, "reason": hop.reason, "record_bytes": hop.record_bytes}
