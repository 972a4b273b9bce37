"""Reasons: why the results of one region or batch are published when they are, as data and in plain English.

A program or a test compares the kind, the processor and the operations of a reason, never its text.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from falkirk.analysis.functions import Nature, entry_of, spoken
from falkirk.declare.policy import Acknowledged, Delivery
from falkirk.errors.location import SourceLocation
from falkirk.plan.batch import Batch
from falkirk.plan.live_determinism import SHARED
from falkirk.plan.region import Region, Undetermined

Kind = Literal[
    "deterministic",  # every step gives the same results on replay
    "declared",  # the user declares that a function does
    "independent",  # a value differs on replay, and no two results depend on it
    "waits",  # a value differs on replay, and several results depend on it
    "policy",  # fk.Snapshots
    "recorded",  # a value differs on replay, and each epoch is recorded before it is published
    "unsaved",  # a value differs on replay, and the state that depends on it is not saved with each epoch
    "upstream",  # an input may be cancelled
    "repeated",  # the output asks for repeated results, or an acknowledged processor repeats them
    "hop",  # why there is an internal topic
    "micro-batches",  # why a stream does not run live
    "epoch",  # when an epoch is complete
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason.

    Args:
        text: a sentence. short: a few words, for a table.
        processor: whose reason it is, and operations: those that differ on replay, by Catalyst's names.
        where: the user's line.
    """

    kind: Kind
    text: str
    short: str = ""
    processor: str = ""
    operations: tuple[str, ...] = ()
    where: SourceLocation | None = None

    def __str__(self) -> str:
        return self.text if self.where is None else f"{self.text} ({self.where.place})"

    def as_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "kind": self.kind, "text": self.text, "processor": self.processor, "operations": list(self.operations),
            "declared": None if self.where is None else str(self.where),
        }  # fmt: skip


def differing(operations: Iterable[str]) -> str:
    """Return the start of a sentence: which operations differ on replay."""
    names = tuple(operations)
    surely = all(entry_of(name).nature is Nature.DIFFERENT for name in names)
    plural = len(names) > 1
    verb = ("differ" if plural else "differs") if surely else "may differ"
    text = f"{listed([_quoted(name) for name in names])} {verb} on replay"
    return f"{text[0].upper()}{text[1:]}"


def background(operations: Iterable[str]) -> str:
    """Return why operations differ, as sentences."""
    reasons = dict.fromkeys(entry_of(name).reason for name in operations)
    return "".join(f" {reason[0].upper()}{reason[1:]}." for reason in reasons)


def listed(names: "list[str] | tuple[str, ...]") -> str:
    """Return names as a list in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def of_region(region: Region, *, waits: bool) -> Iterator[Reason]:
    """Yield the reasons of one region. Args: waits: the results that depend on it wait for a checkpoint."""
    name = ", ".join(region.processors) or region.name
    if region.deterministic and not region.drawn and not region.words and region.processors:
        yield Reason(
            kind="deterministic", processor=name, short="deterministic",
            text=_same([name]),
        )  # fmt: skip
    for word in region.words:
        yield Reason(
            kind="declared", processor=name, short="declared deterministic", where=word.where, text=f"{name}: {word}."
        )
    for each in region.drawn:
        yield _of_independent(each, repeats=region.repeats)
    own = None if region.deterministic else region.undetermined
    if own is not None:
        yield _of_undetermined(own, region.name, waits=waits)
    if region.hop is not None:
        yield Reason(
            kind="hop", processor=name, where=region.where,
            text=f"{region.name} is a hop, because {region.hop.reason}. The order of records in the hop "
            "counts.",
        )  # fmt: skip


def _of_independent(each: Undetermined, *, repeats: bool) -> Reason:
    but = (
        "Nothing waits for it, so a result that is repeated after a failure may differ from the first one."
        if repeats
        else "No two results depend on it, so results need not wait: each is published once, with its first value."
    )
    return Reason(
        kind="repeated" if repeats else "independent", processor=each.processor, operations=each.operations,
        short=f"{_short(each)}: {'may differ' if repeats else 'one result each'}", where=each.where,
        text=f"{differing(each.operations)}. {but}{background(each.operations)}",
    )  # fmt: skip


def _of_undetermined(cause: Undetermined, region: str, *, waits: bool) -> Reason:
    if not cause.operations:
        after = "results are published once a checkpoint covers them" if waits else "results wait for no checkpoint"
        repeated = "" if waits else ", and those after the last checkpoint are repeated after a failure"
        return Reason(
            kind="policy" if waits else "repeated", processor=cause.processor, short=_short(cause), where=cause.where,
            text=f"{cause.processor} has the policy {cause.policy}: {after}{repeated}.",
        )  # fmt: skip
    effect = (
        f", so {'they' if cause.why == SHARED else 'results'} wait for a checkpoint of {region}."
        if waits
        else ". Nothing waits for it, so a result that is repeated after a failure may differ from the first one."
    )
    return Reason(
        kind="waits" if waits else "repeated", processor=cause.processor, operations=cause.operations,
        short=_short(cause), where=cause.where,
        text=f"{differing(cause.operations)} and {cause.why}{effect}{background(cause.operations)}",
    )  # fmt: skip


def of_batch(batch: Batch) -> Iterator[Reason]:
    """Yield the reasons of one batch."""
    name = batch.name
    for word in batch.properties.words:
        yield Reason(
            kind="declared", processor=name, short="declared deterministic", where=word.where, text=f"{name}: {word}."
        )
    if batch.reason:
        yield Reason(
            kind="micro-batches", processor=name, where=batch.where,
            text=f"{name} runs in micro-batches, because {batch.reason}.",
        )  # fmt: skip
    if not batch.undetermined:
        direct = " So its results need not be recorded before they are published." if batch.is_direct else ""
        yield Reason(
            kind="deterministic", processor=name, short="deterministic", text=f"{_same([name])}{direct}",
        )  # fmt: skip
        return
    cause = Undetermined(operations=batch.undetermined, processor=name, where=batch.where)
    differs, because = differing(batch.undetermined), background(batch.undetermined)
    if not batch.deterministic:
        yield Reason(
            kind="unsaved", processor=name, operations=batch.undetermined, short=_short(cause), where=batch.where,
            text=f"{differs}, and the state of {name}, which depends on it, is not saved with each epoch. So results "
            f"wait until the state is saved.{because}",
        )  # fmt: skip
        return
    state = " and state" if batch.saves_all and batch.is_stateful else ""
    same = "" if batch.saves_all else " Its state is the same on replay."
    yield Reason(
        kind="recorded", processor=name, operations=batch.undetermined, short="its epochs are recorded",
        where=batch.where,
        text=f"{differs}, but Falkirk records the results{state} of an epoch before it publishes any of them."
        f"{same}{because}",
    )  # fmt: skip


def merged(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return reasons without repetitions. One reason stands for all deterministic processors."""
    found = tuple(dict.fromkeys(reasons))
    same = [each for each in found if each.kind == "deterministic"]
    if len(same) < 2:
        return found
    names = dict.fromkeys(name for each in same for name in each.processor.split(", "))
    one = replace(same[0], processor=", ".join(names), text=_same([*names]))
    return (one, *(each for each in found if each.kind != "deterministic"))


def _same(names: list[str]) -> str:
    verb = "are" if len(names) > 1 or "," in names[0] else "is"
    return f"{listed(names)} {verb} deterministic: a replay gives the same results, so they need not wait."


def _short(cause: Undetermined) -> str:
    what = [*map(spoken, cause.operations), *([f"{cause.policy}()"] if cause.policy and not cause.operations else [])]
    more = f" and {len(what) - 1} more" if len(what) > 1 else ""
    return f"{what[0]}{more} in {cause.processor}, line {cause.where.line}"


def _quoted(operation: str) -> str:
    name = spoken(operation)
    return f"`{name}`" if name.endswith(")") else name


# -- in a few words ----------------------------------------------------------------------------------------------------

#: The kinds that decide when results are published. The first existing one decides.
_DECIDES: tuple[Kind, ...] = (
    "waits",
    "policy",
    "unsaved",
    "upstream",
    "repeated",
    "independent",
    "declared",
    "recorded",
)


def in_short(reasons: Iterable[Reason]) -> str:
    """Return the reason that decides when results are published, in a few words."""
    found = tuple(reasons)
    for kind in _DECIDES:
        for reason in found:
            if reason.kind == kind:
                return reason.short
    return "deterministic"


def repeats_by_policy(region: Region) -> Iterator[Reason]:
    """Yield why results are repeated after a failure although they do not differ, if they are."""
    if isinstance(region.policy, Acknowledged) or region.repeated_by is not None:
        who = region.repeated_by or region.name
        yield Reason(
            kind="repeated", processor=who, short=f"fk.Acknowledged() on {who}", where=region.where,
            text=f"{who} has the policy fk.Acknowledged: after a failure it sends again what was not acknowledged.",
        )  # fmt: skip
    elif region.delivery is Delivery.REPEATED:
        yield Reason(
            kind="repeated", processor=region.name, short='delivery="repeated"', where=region.where,
            text='The output has delivery="repeated": results after the last checkpoint are published again after a '
            "failure.",
        )  # fmt: skip


# -- what is durable, and what it costs --------------------------------------------------------------------------------


def durable_of_region(region: Region) -> Iterator[str]:
    """Yield the durable data of a region, and their places."""
    if not region.reads_hop:
        yield f"input: topic {region.source.topic.topic}"
    kept = "state and offsets" if region.stateful else "offsets"
    yield f"{region.name}: {kept} in the home, every {region.interval_s:g} s"
    if region.hop is not None:
        yield f"hop {region.hop.topic}, about {region.record_bytes} bytes a record, until all readers have saved"


def costs_of_region(region: Region) -> Iterator[str]:
    """Yield the costs of a region's promise."""
    if region.hop is not None:
        yield f"{region.name}: each record is written once more, about {region.record_bytes} bytes"
    if region.released_to is not None:
        yield f"{region.name}: each result is written twice, about {region.record_bytes} bytes, first to the held log"
    yield f"{region.name}: records wait tenths of a second during a checkpoint, every {region.interval_s:g} s"


def durable_of_batch(batch: Batch) -> tuple[str, ...]:
    """Return the durable data of a batch, and their places."""
    outside = [i for i in batch.inputs if i.folder is not None or (i.topic is not None and not i.reads_hop)]
    read = dict.fromkeys(f"input: {i.name}" for i in outside)
    state = f"{batch.name}: its state in the home, {batch.fingerprint['saves']}" if batch.is_stateful else None
    kept = "cut in the home, its results in their topic" if batch.is_direct else "cut and results in the home"
    return (*read, f"{batch.name}: each epoch's {kept}", *([state] if state else []))


def costs_of_batch(batch: Batch) -> Iterator[str]:
    """Yield the costs of a batch's promise."""
    written = "written to its log, and from there to the output" if batch.sinks else "written to its log"
    written = "written once, directly to its topic" if batch.is_direct else written
    yield f"{batch.name}: a few Spark jobs for each epoch, some tenths of a second; each result is {written}"
