"""Explanation: the plan as a user reads it: first what is promised of each output, then what that rests on.

Everything is in blocks with hanging indents, and nothing is cut off: it has to be read on narrow terminals, too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from falkirk.declared import Sink
from falkirk.endpoints import Console
from falkirk.plan import mechanisms
from falkirk.plan.batch import Batch, kept_in_words
from falkirk.plan.guarantees import Promise, promises_of
from falkirk.plan.inference.properties import Properties
from falkirk.plan.published import address
from falkirk.plan.region import Plan, Region
from falkirk.plan.slots import RegionSlots
from falkirk.plan.told import as_json
from falkirk.policy import Lazy

Facts = Iterable[tuple[str, str]]
"""What is said of something, each under a word; an empty word goes on with the one before."""


def explain(plan: Plan, slots: tuple[RegionSlots, ...], available: int) -> RenderableType:
    """Return the plan for the terminal.

    Args: slots: of each region, in order. available: slots of the Spark application.
    """
    parts = [_count(len(plan.regions), "live region", "live regions"), _count(len(plan.batches), "batch", "batches")]
    lines = [Text(f"{plan.application}: {' and '.join(part for part in parts if part)}", style="bold")]
    total = sum(need.total for need in slots)
    if plan.regions:
        verdict = "enough" if total <= available else "NOT enough: Real-time Mode takes all of them at once"
        lines.append(Text(f"core slots: {total} needed, {available} available: {verdict}"))
    outputs = [_block(f"{p.sink} ─▶ {p.to}", [("promise", p.headline), *_promised(p)]) for p in promises_of(plan)]
    push = [_block(p.name, _pushed(p.path, p.topic.topic, p.answers)) for p in plan.push]
    regions = [_block(r.name, _runs(r, need)) for r, need in zip(plan.regions, slots, strict=True)]
    batches = [_block(batch.name, _computes(batch)) for batch in plan.batches]
    known = [_block(name, _is(known)) for name, known in plan.properties.items()]
    return Group(
        *lines,
        *_section("What is promised of each output", outputs),
        *_section("What is known of each processor", known),
        *_section("Live, in Spark's Real-time Mode", regions),
        *_section("Epoch by epoch, in jobs of DataFrames", batches),
        *_section("Requests that are pushed", push),
    )


def _section(title: str, blocks: list[RenderableType]) -> list[RenderableType]:
    return [Text(), Text(title, style="bold underline"), *blocks] if blocks else []


def _block(name: str, facts: Facts) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, min_width=9, style="dim")
    table.add_column(overflow="fold")
    before = None
    for word, text in facts:
        table.add_row("" if word == before else word, Text(text))
        before = word
    return Group(Text(name, style="bold"), Padding(table, (0, 0, 0, 2)))


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}" if number else ""


# -- what is promised --------------------------------------------------------------------------------------------------


def _promised(promise: Promise) -> Iterator[tuple[str, str]]:
    """Say why, what is durable on the way, and what a failure costs."""
    yield from (("because", reason) for reason in promise.reasons)
    if promise.held is not None:
        yield "meanwhile", f"results wait in the held log {promise.held}"
    yield from (("sooner", text) for text in promise.advice)
    yield from (("durable", text) for text in promise.durable)
    yield from (("costs", text) for text in promise.costs)
    told = {name: _with_processors(name, processors) for name, processors in promise.within.items()}
    alone = [name for name, others in promise.goes_back.items() if others == (name,)]
    if alone:
        who = f"{' or '.join(told[name] for name in alone)} fails, {'it' if len(alone) == 1 else 'that one'} alone"
        yield "failure", f"if {who} goes back to what it has saved last, and on from there"
    for name, others in promise.goes_back.items():
        if name not in alone:
            back = ", ".join(other if other == name else told[other] for other in others)
            yield "failure", f"if {told[name]} fails, {back} go back to what they have saved, and on from there"


def _with_processors(name: str, processors: tuple[str, ...]) -> str:
    """Return the name of a region, with its processors where they are called otherwise."""
    return name if processors in ((), (name,)) else f"{name} ({', '.join(processors)})"


def _is(known: Properties) -> Iterator[tuple[str, str]]:
    """Say what is known of a processor, in the paper's terms."""
    good = [
        "by your word" if known.words else "deterministic" if not known.differs else "",
        "" if known.ordered else "commutative", "" if known.adds_up else "idempotent",
    ]  # fmt: skip
    if any(good):
        yield "is", ", ".join(word for word in good if word)
    yield from (("differs", f"not deterministic: {reason}") for reason in known.differs)
    yield from (("order", f"not commutative: {reason}") for reason in known.ordered)
    yield from (("twice", f"not idempotent: {reason}") for reason in known.adds_up)


# -- how it runs -------------------------------------------------------------------------------------------------------


def _runs(region: Region, need: RegionSlots) -> Iterator[tuple[str, str]]:
    yield "runs", ", ".join(region.processors) or "passes on what it reads"
    yield "reads", region.source.topic.topic
    written = region.output.topic
    yield "writes", written if region.released_to is None else f"held log {written} ─▶ {region.released_to.topic}"
    if region.hop is not None:
        yield (
            "",
            f"about {region.record_bytes} bytes a record, kept until all its readers have saved what they made of "
            f"it; that log is there because {region.hop.reason} ({region.where.place})",
        )
    yield "saves", f"every {region.interval_s:g} s: {mechanisms.consequence(region)}"
    state = f" and {need.state} for its state" if need.state else ""
    yield "slots", f"{need.source} for its source{state}"


def _computes(batch: Batch) -> Iterator[tuple[str, str]]:
    if batch.reason:
        yield "runs", f"in micro-batches: {batch.reason}"
    yield from (("reads", f"newest epoch of {i.name}" if i.view else i.name) for i in batch.inputs)
    yield "epochs", f"complete {batch.cut}"
    yield from (("writes", _writes(sink)) for sink in batch.sinks)
    if not batch.sinks:
        yield "writes", "its log, for other batches"
    kept = kept_in_words(batch.state, batch.slots, batch.iteration)
    yield "keeps", f"{kept}; {_saves(batch)}" if kept else "nothing between epochs"


def _writes(sink: Sink) -> str:
    return f"{sink.name}: {address(sink)}{' (again after a failure)' if isinstance(sink.to, Console) else ''}"


def _saves(batch: Batch) -> str:
    if batch.saves_all:
        return "saved at each epoch"
    assert isinstance(batch.policy, Lazy), "others save all"
    return f"saved every {batch.policy.interval_s:g} s" if batch.policy.when is None else "saved when its policy says"


def _pushed(path: str, topic: str, answers: str | None) -> Iterator[tuple[str, str]]:
    yield "posted", f"to {path}; they wait in {topic}"
    yield "answers", answers or "none"


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
