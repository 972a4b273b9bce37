"""The plan as plain values, for ``falkirk plan --json`` and its readers."""

from falkirk.declare.policy import Delivery
from falkirk.plan import mechanisms, objective
from falkirk.plan.batch import Batch
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.region import Hop, Region
from falkirk.plan.slots import RegionSlots


def plan_values(plan: Plan, slots: tuple[RegionSlots, ...], available: int) -> dict[str, object]:
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
        "engine_reason": batch.reason or "it is declared as a batch",
        "reads": [{"name": i.name, "log": i.log, "view": i.view} for i in batch.inputs],
        "cut": str(batch.cut),
        "writes": [
            {
                "sink": s.name,
                "to": s.to.address,
                "delivery": (Delivery.EXACTLY_ONCE if s.to.remembers else Delivery.REPEATED).value,
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
        "unites": [each.topic.topic for each in region.others],
        "joins": [each.topic.topic for each in region.joined],
        "writes": region.output.topic,
        "released_to": None if released_to is None else released_to.topic,
        "released_within_s": None if released_to is None else plan.awaited_s(plan.awaited_by(region)),
        "deterministic": region.deterministic,
        "undetermined": _undetermined(region),
        "dead_letters": region.dead_letter_topic,
        "engine": "real-time mode",
        "engine_reason": "all its steps can run there, and results take milliseconds",
        "delivery": region.delivery.value,
        "policy": type(region.policy).__name__,
        "consequence": mechanisms.consequence(region),
        "repeated_by": region.repeated_by,
        "interval_s": region.interval_s,
        "objective": objective.objective_values(region),
        "twins": region.twins,
        "stateful": region.stateful,
        "hop": None if region.hop is None else _hop_json(region.hop, region.record_bytes),
        "record_bytes": region.record_bytes,
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


def _hop_json(hop: Hop, record_bytes: int) -> dict[str, object]:
    return {"topic": hop.topic, "reason": hop.reason, "record_bytes": record_bytes}
