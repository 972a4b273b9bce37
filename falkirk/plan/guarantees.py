"""Guarantees: of each sink what is promised, when its results leave, why, and what a failure costs.

The reasons are a chain from the source to the sink. What goes back when something fails is not written down here: it is
the solver's answer (Falkirk Wheel, Figure 6) for an application in which every region has saved once and gone on.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from falkirk.coordinator.layout import Layout
from falkirk.coordinator.ports import Point
from falkirk.coordinator.rollback import decide
from falkirk.coordinator.shape import layout_of
from falkirk.endpoints import Console
from falkirk.plan import mechanisms
from falkirk.plan.batch import Batch
from falkirk.plan.inference.functions import entry_of, spoken
from falkirk.plan.inference.live import IN_STATE
from falkirk.plan.published import address
from falkirk.plan.region import Plan, Region, Undetermined
from falkirk.policy import Delivery, Lazy
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.times import TopicPartition

Release = Literal["on arrival", "with its epoch", "behind a checkpoint"]

_SAID = {
    Delivery.EXACTLY_ONCE: "exactly once",
    Delivery.REPEATED: "state exact, results since the last checkpoint repeated after a failure",
    Delivery.AT_MOST_ONCE: "at most once: waiting input is skipped after a failure",
    Delivery.AT_LEAST_ONCE: "at least once",
}
#: Of repeated results that depend on something that is drawn anew.
_REDRAWN = "each input counted once, results since the last checkpoint come again after a failure, perhaps as others"
#: Of what is drawn where nothing waits and nothing that comes again is dropped.
_AGAIN = "nothing waits for it, and what comes again after a failure is drawn anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What is promised of a sink.

    Args:
        to: where it writes.
        release: when a result leaves, at the earliest. awaits: whose checkpoints it waits for. within_s: how long that
            that takes at most, in seconds, if anything says so. held: the log in which it waits.
        reasons: why, from the source on. advice: what would let results leave earlier.
        redrawn: what comes again may be something else.
        goes_back: of each region before it, who goes back to a checkpoint when that one fails. within: of these the
            processors.
        durable: what is kept on the way, and where. costs: what the promise takes.
    """

    sink: str
    to: str
    delivery: Delivery
    release: Release
    awaits: tuple[str, ...] = ()
    within_s: float | None = None
    held: str | None = None
    reasons: tuple[str, ...]
    advice: tuple[str, ...] = ()
    redrawn: bool = False
    goes_back: Mapping[str, tuple[str, ...]]
    within: Mapping[str, tuple[str, ...]]
    durable: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """What is promised, in a line."""
        said = _REDRAWN if self.redrawn else _SAID[self.delivery]
        text = f"{said}, released {self.release}"
        if self.release == "behind a checkpoint":
            covers = f"a checkpoint of {self.awaits[0]} covers"
            if len(self.awaits) > 1:
                covers = f"checkpoints of {_listed(self.awaits)} cover"
            text = f"{said}, released once {covers} everything that a result depends on"
        return text if self.within_s is None else f"{text}, at most about {self.within_s:g} s later"

    def as_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "sink": self.sink, "to": self.to, "delivery": self.delivery.value, "release": self.release,
            "awaits": list(self.awaits), "within_s": self.within_s, "held": self.held, "reasons": list(self.reasons),
            "advice": list(self.advice), "durable": list(self.durable), "costs": list(self.costs),
            "redrawn": self.redrawn,
            "goes_back": {name: list(others) for name, others in self.goes_back.items()},
            "processors": {name: list(processors) for name, processors in self.within.items()},
        }  # fmt: skip


def promises_of(plan: Plan) -> tuple[Promise, ...]:
    """Return what is promised of each sink of a planned application."""
    layout = layout_of(plan, lambda topic: 1)  # it matters who reads whom, not in how many parts
    sinks = [region for region in plan.regions if region.hop is None]
    live = [_of_region(plan, layout, region) for region in sinks]
    return (*live, *(promise for batch in plan.batches for promise in _of_batch(plan, layout, batch)))


def _of_region(plan: Plan, layout: Layout, region: Region) -> Promise:
    path, waits = _path(plan, region), region.released_to is not None
    awaited = plan.awaited_by(region) if waits else ()
    goes_back = _goes_back(layout, tuple(each.name for each in path))
    same = ", ".join(dict.fromkeys(name for each in path if _is_same(each) for name in each.processors))
    reasons = [f"{same}: every step gives the same on a replay, so that results need not wait"] if same else []
    reasons += [reason for each in path for reason in _reasons(each, waits=waits)]
    return Promise(
        sink=region.name,
        to=f"topic {(region.released_to or region.output).topic}",
        delivery=region.delivery,
        release="behind a checkpoint" if awaited else "on arrival",
        awaits=tuple(each.name for each in awaited),
        within_s=sum(map(plan.awaited_s, awaited)) if awaited else None,
        held=None if region.released_to is None else region.output.topic,
        reasons=tuple(dict.fromkeys(reasons)),
        advice=_advice(region.undetermined) if awaited else (),
        redrawn=region.delivery is Delivery.REPEATED and mechanisms.is_redrawn(region),
        goes_back=goes_back,
        within=_within(plan, goes_back),
        durable=tuple(text for each in path for text in _durable(each)),
        costs=tuple(text for each in path for text in _costs(each)),
    )


def _path(plan: Plan, region: Region) -> list[Region]:
    """Return the regions from the source to this one."""
    writers = {each.output.topic: each for each in plan.regions if each.hop is not None}
    found = [region]
    while (writer := writers.get(found[0].source.topic.topic)) is not None:
        found.insert(0, writer)
    return found


def _reasons(region: Region, *, waits: bool) -> Iterator[str]:
    """Say why a region's results leave when they do. Args: waits: what comes of them in the end waits."""
    name = ", ".join(region.processors) or region.name
    for word in region.words:
        yield f"{name}: {word}"
    for drawn in region.drawn:
        told = "no two results depend on it, so that each is there once all the same, as it was drawn first"
        yield f"{drawn}: {_why(drawn)}; {_AGAIN if region.repeats else told}"
    own = region.undetermined if not region.deterministic else None
    if own is not None and own.operations:
        theorem = f"by Theorem 1 results wait for a checkpoint of {region.name}"
        yield f"{own}: {_why(own)}; {own.why}: {theorem if waits else _AGAIN}"
    elif own is not None:
        after = "its results count once a checkpoint covers them"
        yield f"{own}: {after if waits else 'what no checkpoint covers comes again after a failure'}"
    if region.hop is not None:
        order = "the order in which records are in that log is the one that counts"
        yield f"{region.hop.reason} ({region.where.place}): {order}"


def _is_same(region: Region) -> bool:
    """Tell whether all that a region does is the same on a replay, by what is known of it."""
    return region.deterministic and not region.drawn and not region.words and bool(region.processors)


def _durable(region: Region) -> Iterator[str]:
    if not region.reads_hop:
        yield f"input: topic {region.source.topic.topic}"
    kept = "state and offsets" if region.stateful else "offsets"
    yield f"{region.name}: {kept} in the home, every {region.interval_s:g} s"
    if region.hop is not None:
        yield f"log {region.hop.topic}, about {region.record_bytes} bytes a record"


def _costs(region: Region) -> Iterator[str]:
    if region.hop is not None:
        yield f"{region.name}: each record is written once more, about {region.record_bytes} bytes"
    if region.released_to is not None:
        yield f"{region.name}: each result is written twice, about {region.record_bytes} bytes in the held log first"
    yield f"{region.name}: what comes while it saves waits for that, tenths of a second every {region.interval_s:g} s"


def _costs_of_batch(batch: Batch) -> Iterator[str]:
    written = "written to its log, and from there to the sink" if batch.sinks else "written to its log"
    written = "written once, straight to its topic" if batch.is_direct else written
    yield f"{batch.name}: a few Spark jobs an epoch, some tenths of a second; each result is {written}"


def _why(cause: Undetermined) -> str:
    return ", ".join(dict.fromkeys(entry_of(name).reason for name in cause.operations))


def _advice(cause: Undetermined | None) -> tuple[str, ...]:
    if cause is None or cause.policy:
        return ()
    found = [f"{spoken(name)}: {entry_of(name).instead}." for name in cause.operations if entry_of(name).instead]
    if cause.why == IN_STATE:
        found.append(
            f"Or declare {cause.processor!r} under fk.LogSends(): what is drawn is then in a log before its state "
            "takes it in, and results leave once they are there."
        )
    return tuple(found)


def _of_batch(plan: Plan, layout: Layout, batch: Batch) -> Iterator[Promise]:
    path = _path_of_batch(plan, batch)
    goes_back = _goes_back(layout, tuple(each.name for each in path))
    awaited = [each for each in path if not layout.stages[each.name].deterministic]  # they may take back what they sent
    reasons = [reason for each in path for reason in _reasons_of(each)]
    if awaited and batch not in awaited:
        reasons.append(f"{batch.name}: what its epochs rest on may be taken back until that is saved, and they with it")
    advice = [text for each in awaited for text in _advice_on(each)]
    for sink in batch.sinks:
        yield Promise(
            sink=sink.name,
            to=address(sink),
            delivery=Delivery.REPEATED if isinstance(sink.to, Console) else Delivery.EXACTLY_ONCE,
            release="behind a checkpoint" if awaited else "with its epoch",
            awaits=tuple(each.name for each in awaited),
            within_s=_within_s(plan, awaited),
            reasons=(*dict.fromkeys(reasons), f"an epoch is complete {batch.cut}"),
            advice=tuple(dict.fromkeys(advice)),
            goes_back=goes_back,
            within=_within(plan, goes_back),
            durable=tuple(dict.fromkeys(text for each in path for text in _durable_of(each))),
            costs=tuple(text for each in path for text in _costs_of(each)),
        )


def _path_of_batch(plan: Plan, batch: Batch) -> list[Region | Batch]:
    """Return all that a batch's results rest on, from the sources to the batch itself."""
    batches = {each.log: each for each in plan.batches}
    regions = {each.output.topic: each for each in plan.regions if each.hop is not None}
    found: dict[str, Region | Batch] = {}

    def visit(each: Batch) -> None:
        for given in each.inputs:
            if given.log in regions:
                found.update((region.name, region) for region in _path(plan, regions[given.log]))
            elif given.log in batches and batches[given.log].name not in found:
                visit(batches[given.log])
        found[each.name] = each

    visit(batch)
    return list(found.values())


def _within_s(plan: Plan, awaited: list[Region | Batch]) -> float | None:
    """Return how long checkpoints take at most, one after the other, if anything says so."""
    every = [
        plan.awaited_s(each) if isinstance(each, Region) else each.policy.interval_s
        for each in awaited
        if isinstance(each, Region) or (isinstance(each.policy, Lazy) and each.policy.when is None)
    ]
    return sum(every) if awaited and len(every) == len(awaited) else None


def _advice_on(each: Region | Batch) -> tuple[str, ...]:
    if isinstance(each, Region):
        return _advice(each.undetermined)
    return (f"Declare {each.name!r} under fk.Eager(): its state is then saved at each epoch.",)


def _durable_of(each: Region | Batch) -> Iterable[str]:
    return _durable(each) if isinstance(each, Region) else _durable_of_batch(each)


def _costs_of(each: Region | Batch) -> Iterable[str]:
    return _costs(each) if isinstance(each, Region) else _costs_of_batch(each)


def _reasons_of(each: Region | Batch) -> Iterable[str]:
    return _reasons(each, waits=True) if isinstance(each, Region) else _reasons_of_batch(each)


def _reasons_of_batch(batch: Batch) -> Iterator[str]:
    yield from (f"{batch.name}: {word}" for word in batch.properties.words)
    if batch.reason:
        yield f"{batch.name} runs in micro-batches: {batch.reason}"
    causes = [
        f"{text.partition(':')[0]} in {batch.name!r} ({batch.where.place}):{text.partition(':')[2]}"
        for text in batch.properties.differs
    ]
    cause = "; ".join(causes)
    if not cause:
        yield f"{batch.name}: an epoch comes out the same whenever it is computed{_so(batch)}"
    elif batch.deterministic:
        with_state = ", with its state," if batch.saves_all else ""
        yield f"{cause}; but what an epoch has come to is recorded{with_state} before any of it leaves"
        if not batch.saves_all:
            yield f"{batch.name}: its state comes out the same whenever it is computed"
    else:
        yield f"{cause}; its state is not saved at each epoch, and what comes of it is kept there"


def _so(batch: Batch) -> str:
    return ", so that its results need not be recorded before they leave" if batch.is_direct else ""


def _durable_of_batch(batch: Batch) -> tuple[str, ...]:
    read = dict.fromkeys(f"input: {i.name}" for i in batch.inputs)
    state = f"{batch.name}: its state in the home, {batch.fingerprint['saves']}" if batch.is_stateful else None
    kept = "cut in the home, its results in their topic" if batch.is_direct else "cut and results in the home"
    return (*read, f"{batch.name}: each epoch's {kept}", *([state] if state else []))


def _goes_back(layout: Layout, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return who goes back when one of these fails, where each region has saved after half of what it has read."""
    half = {
        name: Point(number=1, read=_half(*stage.inputs), sent=_half(stage.output))
        for name, stage in layout.stages.items()
    }
    begin = Point(number=-1, read=EMPTY, sent=EMPTY)
    points = {name: (begin, point) for name, point in half.items()}
    found = {}
    for name in names:
        decision = decide(layout, points, failed=frozenset({name}), outside={})
        found[name] = tuple(stage for stage in layout.stages if stage in decision.goes)
    return found


def _within(plan: Plan, goes_back: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the processors of each region, or batch, that is told of."""
    processors = {region.name: region.processors for region in plan.regions}
    told = dict.fromkeys(name for failed, others in goes_back.items() for name in (failed, *others))
    return {name: processors.get(name, (name,)) for name in told}


def _half(*logs: str) -> OffsetFrontier:
    return OffsetFrontier.of({TopicPartition(topic=log, partition=0): 5 for log in logs})


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
