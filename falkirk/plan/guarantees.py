"""Guarantees: for each output the promise, when its results are published, why, and what a failure costs.

The reasons are a chain from the source to the sink. The solver decides which regions restart after a failure (Falkirk
Wheel, Figure 6). It is asked about an application in which every region has saved one checkpoint.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from falkirk.declare.cut import ByClock, ByRows, ByTime, Cut
from falkirk.declare.endpoints import EpochTopic, Kafka
from falkirk.declare.parts import DeclaredSink
from falkirk.declare.policy import Delivery
from falkirk.declare.sink import OwnSink
from falkirk.plan import mechanisms
from falkirk.plan.batch import Batch
from falkirk.plan.plan import Plan
from falkirk.plan.reasons import Reason, distinct_reasons, duration_text, in_short, listed
from falkirk.plan.region import Region
from falkirk.plan.shape import layout_of
from falkirk.plan.unit import Unit
from falkirk.recovery.protocol.layout import Layout
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.recovery.protocol.rollback import decide_rollback
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.ids import INITIAL, CheckpointNumber, LogId

_ReleaseTime = Literal["on arrival", "with its epoch", "behind a checkpoint"]

_SAID = {
    Delivery.EXACTLY_ONCE: "exactly once",
    Delivery.REPEATED: "repeated after a failure",
    Delivery.AT_MOST_ONCE: "at most once",
    Delivery.AT_LEAST_ONCE: "at least once",
}
#: The meaning of a promise for a reader.
_MEANS = {
    Delivery.EXACTLY_ONCE: "each result is published once",
    Delivery.REPEATED: "each input record counts once in the state; results since the last checkpoint are published "
    "again after a failure",
    Delivery.AT_MOST_ONCE: "after any restart, also a planned one, waiting input is skipped",
    Delivery.AT_LEAST_ONCE: "no result is lost, and some are published again after a failure",
}
#: The meaning of repeated epochs of a batch, which only a terminal has.
_PRINTED = "each epoch is printed; after a failure, the last epochs may be printed twice"
#: The meaning of repeated results that depend on a value that differs on replay.
_REDRAWN = (
    "each input record counts once in the state; results since the last checkpoint are published again after a "
    "failure, and may differ from the first ones"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The promise of a sink.

    Args:
        to: its address.
        release: when a result is published at the earliest. awaits: the regions for whose checkpoints it waits.
            within_s: the longest wait in seconds, if it is known. held: the log in which results wait. passed: the
            inputs whose event time has to pass a record before its result is computed. cut: decides when an epoch of a
            batch is complete.
        reasons: the reasons, from the source on. advice: changes that would let results be published earlier.
        may_vary: a repeated result may differ. declared: the sink is the user's, and has to keep it.
        goes_back: for each region upstream, the regions that restart from a checkpoint when it fails. within: the
            processors of these regions.
        durable: the durable data on the way, and their places. costs: the costs of the promise.
    """

    sink: str
    to: str
    delivery: Delivery
    release: _ReleaseTime
    awaits: tuple[str, ...] = ()
    within_s: float | None = None
    held: str | None = None
    passed: tuple[str, ...] = ()
    cut: Cut | ByTime | None = None
    reasons: tuple[Reason, ...]
    advice: tuple[str, ...] = ()
    may_vary: bool = False
    declared: bool = False
    goes_back: Mapping[str, tuple[str, ...]]
    within: Mapping[str, tuple[str, ...]]
    durable: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()

    @property
    def promise(self) -> str:
        """The promise in a few words."""
        declared = ", if your sink keeps its contract" if self.declared else ""
        return f"{_SAID[self.delivery]}{', may differ' if self.may_vary else ''}{declared}"

    @property
    def meaning(self) -> str:
        """The meaning of the promise for a reader."""
        if self.delivery is Delivery.REPEATED and self.cut is not None:
            return _PRINTED
        kept = ", if your sink keeps the contract of fk.Sink" if self.declared else ""
        return f"{_REDRAWN if self.may_vary else _MEANS[self.delivery]}{kept}"

    @property
    def when(self) -> str:
        """When results are published, in a few words."""
        if self.release == "behind a checkpoint":
            several = f"{len(self.awaits)} checkpoints" if len(self.awaits) > 1 else "a checkpoint"
            return f"after {several}" if self.within_s is None else f"after {several}, ≤ {duration_text(self.within_s)}"
        if self.release != "on arrival":
            return f"per epoch, {epochs(self.cut)}"
        if not self.passed:
            return "immediately"
        return f"when the time of {listed(self.passed)} has passed the record's time"

    @property
    def waiting(self) -> str:
        """When results are published, as a sentence."""
        if self.release == "behind a checkpoint":
            whose = listed([f"a checkpoint of {name}" for name in self.awaits])
            longest = "" if self.within_s is None else f", at most about {duration_text(self.within_s)} later"
            return f"A result is published after {whose}{longest}."
        if self.release == "on arrival":
            computed = "A result is published as soon as it is computed"
            if self.passed:
                return f"{computed}: when the event time of {listed(self.passed)} has passed the time of its record."
            return f"{computed}, usually within milliseconds."
        after = ""
        if self.passed:
            passed = f"the event time of {listed(self.passed)} has passed the time of the record"
            after = f" The result of a record is computed when {passed}."
        return f"The results of an epoch are published together, when all of them are computed. {ends(self.cut)}{after}"

    @property
    def why(self) -> str:
        """The reason for that time, in a few words."""
        return in_short(self.reasons)

    def as_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "sink": self.sink, "to": self.to, "delivery": self.delivery.value, "release": self.release,
            "awaits": list(self.awaits), "within_s": self.within_s, "held": self.held, "passed": list(self.passed),
            "reasons": [str(reason) for reason in self.reasons], "details": [each.as_json() for each in self.reasons],
            "advice": list(self.advice), "durable": list(self.durable), "costs": list(self.costs),
            "may_vary": self.may_vary, "declared": self.declared, "promise": self.promise, "when": self.when,
            "why": self.why,
            "goes_back": {name: list(others) for name, others in self.goes_back.items()},
            "processors": {name: list(processors) for name, processors in self.within.items()},
        }  # fmt: skip


def epochs(cut: Cut | ByTime | None) -> str:
    """Return when an epoch is complete, in a few words."""
    if isinstance(cut, ByClock):
        return f"every {duration_text(cut.every_s)}"
    if isinstance(cut, ByRows):
        return f"every {cut.rows:,} records"
    if isinstance(cut, ByTime):
        return f"every {duration_text(cut.every_us / 1e6)} of event time (`{cut.column}`)"
    return "whenever records arrive"


def ends(cut: Cut | ByTime | None) -> str:
    """Return when an epoch ends, as sentences."""
    if isinstance(cut, ByClock):
        return f"An epoch ends every {duration_text(cut.every_s)}, by the clock."
    if isinstance(cut, ByRows):
        return f"An epoch ends after {cut.rows:,} records."
    if isinstance(cut, ByTime):
        slice_s = cut.every_us / 1e6
        over = f" Each epoch covers the last {duration_text(cut.over * slice_s)}." if cut.over > 1 else ""
        late = f" Rows may be up to {duration_text(cut.late_us / 1e6)} late." if cut.late_us else ""
        return f"An epoch ends every {duration_text(slice_s)} of event time (`{cut.column}`).{over}{late}"
    return "An epoch has all records that have arrived when the one before it is done."


def promises_of(plan: Plan) -> tuple[Promise, ...]:
    """Return the promise of each sink of a planned application."""
    layout = layout_of(plan, lambda topic: 1)  # the number of partitions does not matter here
    live = [_of_region(plan, layout, region) for region in plan.regions if region.hop is None]
    return (*live, *(promise for batch in plan.batches for promise in _of_batch(plan, layout, batch)))


def _of_region(plan: Plan, layout: Layout, region: Region) -> Promise:
    waits = region.released_to is not None
    awaited = plan.awaited_by(region) if waits else ()
    common = _common(plan, layout, region, awaited)
    reasons = [reason for each in plan.path_to(region) for reason in each.reasons(waits=waits)]
    if not waits and not any(reason.kind == "repeated" for reason in reasons):
        reasons += region.repeated_by_policy()
    return replace(
        common,
        sink=region.name,
        to=f"topic {(region.released_to or region.output).topic}",
        delivery=region.delivery,
        release="behind a checkpoint" if awaited else "on arrival",
        held=None if region.released_to is None else region.output.topic,
        reasons=distinct_reasons(reasons),
        may_vary=region.delivery is Delivery.REPEATED and mechanisms.may_vary(region),
        costs=(
            *common.costs,
            *_of_fence(plan, region.name, " They see a result about 5 ms later." * region.transactional),
        ),
    )


def _of_batch(plan: Plan, layout: Layout, batch: Batch) -> Iterator[Promise]:
    path = plan.path_to(batch)
    awaited = [each for each in path if not layout.stages[each.name].deterministic]  # they may cancel results
    common = _common(plan, layout, batch, awaited)
    reasons = [_as_read_by(batch, each, reason) for each in path for reason in each.reasons(waits=True)]
    if awaited and batch not in awaited:
        names = common.awaits
        covered = f"checkpoints of {listed(names)} cover" if len(names) > 1 else f"a checkpoint of {names[0]} covers"
        wait = "these checkpoints" if len(names) > 1 else "that checkpoint"
        reasons.append(
            Reason(
                kind="upstream", processor=batch.name, where=batch.where,
                short=f"reads {listed(names)}, whose results may change",
                text=f"After a failure, {listed(names)} may compute other results. Until {covered} them, the results "
                f"that {batch.name} has read may become invalid. So the results of {batch.name} wait for {wait}.",
            )
        )  # fmt: skip
    for sink in batch.sinks:
        yield replace(
            common,
            sink=sink.name,
            to=sink.to.address,
            delivery=Delivery.EXACTLY_ONCE if sink.to.remembers else Delivery.REPEATED,
            declared=isinstance(sink.to, OwnSink),
            release="behind a checkpoint" if awaited else "with its epoch",
            cut=batch.cut,
            reasons=distinct_reasons([*reasons, *_of_sink(sink), _of_epoch(batch)]),
            costs=(*common.costs, *_of_transactions(plan, sink)),
        )


def _as_read_by(batch: Batch, unit: Unit, reason: Reason) -> Reason:
    """Return the reason of a unit upstream, as it concerns a batch that reads what this unit has recorded."""
    if unit is batch or reason.kind != "independent":
        return reason
    return replace(
        reason, short=f"{reason.place}: may differ, but is recorded before {batch.name} reads it",
        text=f"{reason.text} {batch.name} reads recorded values only.",
    )  # fmt: skip


def _common(plan: Plan, layout: Layout, unit: Unit, awaited: Sequence[Unit]) -> Promise:
    """Return the parts that the promises of all sinks of a unit share."""
    path = plan.path_to(unit)
    goes_back = _goes_back(layout, tuple(each.name for each in path))
    return Promise(
        sink="",
        to="",
        delivery=Delivery.EXACTLY_ONCE,
        release="on arrival",
        reasons=(),
        awaits=tuple(each.name for each in awaited),
        within_s=plan.awaited_s(awaited),
        passed=tuple(dict.fromkeys(name for each in path for name in each.passed)),
        advice=tuple(dict.fromkeys(text for each in awaited for text in each.advice())),
        goes_back=goes_back,
        within=_within(plan, goes_back),
        durable=tuple(dict.fromkeys(text for each in path for text in each.durable())),
        costs=tuple(text for each in path for text in each.costs()),
    )


def _of_fence(plan: Plan, sink: str, more: str = "") -> Iterator[str]:
    if plan.transactional:
        yield f"{sink} is written in transactions. Consumers must set isolation.level=read_committed.{more}"


def _of_transactions(plan: Plan, sink: DeclaredSink) -> Iterator[str]:
    """Yield the cost of the transactions in which a sink of a batch is written, if it is."""
    if isinstance(sink.to, EpochTopic):
        yield (
            f"{sink.name} is written in one transaction per epoch. Consumers must set isolation.level=read_committed."
        )
    elif isinstance(sink.to, Kafka):
        yield from _of_fence(plan, sink.name)


def _of_epoch(batch: Batch) -> Reason:
    return Reason(kind="epoch", processor=batch.name, where=batch.where, text=ends(batch.cut))


def _of_sink(sink: DeclaredSink) -> Iterator[Reason]:
    if isinstance(sink.to, OwnSink):
        text = (
            f"Sink {sink.name} is your own code. It receives each epoch exactly once only if it keeps the contract of "
            "fk.Sink. Before and after each epoch, Falkirk asks it which epochs it already has."
        )
        yield Reason(kind="sink", processor=sink.reads, where=sink.where, text=text)
    if not sink.to.remembers:
        text = "Falkirk can't see what was printed. So after a failure, the last epochs may be printed twice."
        yield Reason(
            kind="repeated", processor=sink.reads, where=sink.where, short="a terminal can't be read", text=text
        )


def _goes_back(layout: Layout, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the regions that go back when one of these fails, if each has a checkpoint after half of its input."""
    half = {
        name: Checkpoint(number=CheckpointNumber(1), read=_half(*stage.inputs), sent=_half(stage.output))
        for name, stage in layout.stages.items()
    }
    begin = Checkpoint(number=INITIAL, read=EMPTY, sent=EMPTY)
    checkpoints = {name: (begin, checkpoint) for name, checkpoint in half.items()}
    found = {}
    for name in names:
        decision = decide_rollback(layout, checkpoints, failed=frozenset({name}), outside={})
        found[name] = tuple(stage for stage in layout.stages if stage in decision.goes)
    return found


def _within(plan: Plan, goes_back: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the processors of each region and batch in `goes_back`."""
    processors = {unit.name: unit.processors for unit in plan.units}
    listed = dict.fromkeys(name for failed, others in goes_back.items() for name in (failed, *others))
    return {name: processors.get(name, (name,)) for name in listed}


def _half(*logs: LogId) -> OffsetFrontier:
    return OffsetFrontier.before({log: {0: 5} for log in logs})
