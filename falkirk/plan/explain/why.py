"""Why: the details of one output: the promise, the reasons with the user's lines, what is durable, and failures."""

from collections.abc import Iterable, Iterator, Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from falkirk.plan import mechanisms
from falkirk.plan.batch import Batch, BatchInput, kept_in_words
from falkirk.plan.explain.columns import wrapped
from falkirk.plan.explain.statement import statement_at
from falkirk.plan.explain.terms import terms_in
from falkirk.plan.guarantees import Promise, epochs
from falkirk.plan.plan import Plan
from falkirk.plan.reasons import listed
from falkirk.plan.region import Region
from falkirk.steps.static_analysis.properties import Properties

#: Part of the names of internal topics instead of the home's identity, before the first run has chosen one.
IDENTITY_UNKNOWN = "HOME"
_INDENT = 2
_LABEL = 11


def output_details(plan: Plan, promise: Promise, width: int | None) -> RenderableType:
    """Return the details of one output. Args: width: see `wrapped`."""
    lines = [Text(line, style="bold") for line in wrapped(f"{promise.sink} → {promise.to}", width)]
    before = ""
    room = None if width is None else width - _INDENT - _LABEL
    facts = [*_facts(plan, promise, room)]
    for label, text in [*facts, *(("terms", line) for line in terms_in(text for _, text in facts))]:
        for number, line in enumerate(wrapped(text, room)):
            shown = label if label != before and not number else ""
            lines.append(Text.assemble(" " * _INDENT, (shown.ljust(_LABEL), "dim"), line))
            before = label
    return Group(*lines)


def _facts(plan: Plan, promise: Promise, width: int | None) -> Iterator[tuple[str, str]]:
    yield "promise", f"{promise.promise}: {promise.meaning}"
    yield "when", promise.waiting
    if promise.held is not None:
        yield "when", f"Until then it waits in {promise.held}, an internal topic (its held log)."
    yield from (("why", text) for text in _reasons(promise, width))
    yield from (("sooner", text) for text in promise.advice)
    yield from _path(plan, promise)
    live = {name for region in plan.regions for name in region.processors}
    views = {batch.name: batch for batch in plan.batches if batch.newest_of}
    inferred = [name for name in _processors(promise) if name not in views and name in plan.properties]
    yield from (("steps", text) for text in _determined({name: plan.properties[name] for name in inferred}))
    for name in _processors(promise):
        if name in views:
            yield "steps", _view(plan, views[name])
        elif name in inferred:
            yield from (("steps", text) for text in _known(name, plan.properties[name], is_live=name in live))
    yield from (("durable", text) for text in _merged(promise.durable))
    if any(f".{IDENTITY_UNKNOWN}." in text for text in promise.durable):
        yield "durable", f"({IDENTITY_UNKNOWN} stands for the identity of the home, which the first run chooses.)"
    yield from (("failure", text) for text in _failures(plan, promise))
    yield from (("costs", text) for text in _merged(promise.costs))


def _reasons(promise: Promise, width: int | None) -> Iterator[str]:
    """Yield the reasons, each with the user's statement. Once a statement is quoted, its lines stand for it."""
    statements = set[tuple[str, ...]]()
    for reason in promise.reasons:
        if reason.kind != "epoch":
            yield reason.text
            if reason.where is not None:
                place, *statement = statement_at(reason.where, None if width is None else width - _INDENT)
                is_known = (reason.where.file, *statement) in statements
                statements.add((reason.where.file, *statement))
                yield from (f"  {line}" for line in ([str(reason.where)] if is_known else [place, *statement]))


def _merged(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts of the form `name: fact`. Those with the same fact become one, with all their names."""
    names: dict[str, list[str]] = {}
    for text in texts:
        name, _, fact = text.partition(": ")
        names.setdefault(fact or text, []).extend([name] if fact else [])
    yield from (f"{listed(names_)}: {fact}" if names_ else fact for fact, names_ in names.items())


def _path(plan: Plan, promise: Promise) -> Iterator[tuple[str, str]]:
    for region in plan.regions:
        if region.name in promise.goes_back:
            read = " and ".join(short_topic(each.name, each.topic.topic, is_hop=each.is_hop) for each in region.sources)
            if region.views:
                read += f", and the newest results of {listed([view.name for view in region.views])}"
            yield "runs", f"{with_steps(plan, region)}: live, reads {read}, {_written(region)}"
    regions = [region for region in plan.regions if region.name in promise.goes_back]
    if len(regions) == 1:
        yield "runs", f"  {mechanisms.consequence(regions[0])}"
    else:
        texts = _merged(f"{region.name}: {mechanisms.consequence(region)}" for region in regions)
        yield from (("runs", text) for text in texts)
    for batch in plan.batches:
        if batch.name in promise.goes_back:
            read = ", ".join(f"the newest results of {i.name}" if i.view else read_by(plan, i) for i in batch.inputs)
            yield "runs", f"{batch.name}: processes an epoch {epochs(batch.cut)}, reads {read}; {_keeps(batch)}"


def _written(region: Region) -> str:
    if region.released_to is not None:
        return f"writes the held log, from which Falkirk copies to topic {region.released_to.topic}"
    return f"writes {_destination(region)}"


def _destination(region: Region) -> str:
    """Return where the results of a region go in the end."""
    return f"hop {region.name}" if region.hop is not None else f"topic {(region.released_to or region.output).topic}"


def _keeps(batch: Batch) -> str:
    kept = kept_in_words(batch.state, batch.slots, batch.iteration)
    if not kept:
        return "has no state between epochs"
    columns = "columns " if batch.state is not None else ""
    return f"its state ({columns}{kept}) is saved {batch.saved_when}"


def _processors(promise: Promise) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for region in promise.goes_back for name in promise.within[region]))


def _view(plan: Plan, view: Batch) -> str:
    """Return a sentence about a batch that the planner adds, with the parameters that the user declared as views."""
    readers = [b.name for b in plan.batches if any(i.view and i.log == view.log for i in b.inputs)]
    readers = sorted([*readers, *(r.name for r in plan.regions if any(v.log == view.log for v in r.views))])
    return f"{view.name} keeps the newest record of each key of {view.newest_of}, for the view in {listed(readers)}."


def _determined(known: Mapping[str, Properties]) -> Iterator[str]:
    """Yield which processors are deterministic, by the user's word and by inference."""
    for who, is_asserted in (("You declared", True), ("Falkirk inferred", False)):
        names = [name for name, each in known.items() if not each.differs and bool(each.assertions) == is_asserted]
        if names:
            yield f"{who} that {listed(names)} {'are' if len(names) > 1 else 'is'} deterministic."


def _known(name: str, known: Properties, *, is_live: bool) -> Iterator[str]:
    """Yield the inferred properties of a processor that have more consequences; `falkirk plan --json` has all of them.

    An operation in a batch for which the order of rows matters is one of those that differ on a replay.
    """
    yield from (f"{name} is not deterministic, because {_because(reason)}." for reason in known.differs)
    if is_live:
        for reason in known.ordered:
            fixed = "Falkirk keeps the order of each key's records in a replay."
            yield f"{name} depends on the order of records, because {_because(reason)}. {fixed}"


def _because(reason: str) -> str:
    """Return an inferred reason as a part of a sentence. It may be an operation, a colon and a clause."""
    operation, _, clause = reason.partition(": ")
    return f"of {operation} ({clause})" if clause else reason


def _failures(plan: Plan, promise: Promise) -> Iterator[str]:
    """Yield sentences about the regions and batches that restart when one of them fails."""
    batches = {batch.name for batch in plan.batches}
    alone = [name for name, others in promise.goes_back.items() if others == (name,)]
    kinds = (
        ("that region restarts, from its last checkpoint", [name for name in alone if name not in batches]),
        (
            "that batch restarts, with the epoch that follows the last recorded one",
            [name for name in alone if name in batches],
        ),
    )
    for restart, names in kinds:
        if names:
            yield f"If {listed(names, 'or')} fails, only {restart}."
    for name, others in promise.goes_back.items():
        if others != (name,):
            yield f"If {name} fails, {listed(others)} restart from a checkpoint."


def short_topic(name: str, topic: str, *, is_hop: bool) -> str:
    """Return the name of a log in the plan: that of an internal topic is the region that writes it."""
    return f"{'hop' if is_hop else 'topic'} {name if topic.startswith('falkirk.') else topic}"


def read_from(region: Region) -> str:
    """Return the names of the topics and hops that a region reads."""
    return ", ".join(short_topic(each.name, each.topic.topic, is_hop=each.is_hop) for each in region.sources)


def read_by(plan: Plan, given: BatchInput) -> str:
    """Return the name of an input of a batch in the plan."""
    if given.topic is None:
        return given.name if given.folder is not None else f"batch {given.name}"
    hops = {region.output.topic: region.name for region in plan.regions}
    is_hop = given.topic.topic in hops
    return short_topic(hops.get(given.topic.topic, given.name), given.topic.topic, is_hop=is_hop)


def with_steps(plan: Plan, region: Region) -> str:
    """Return the name of a region, with the processors whose steps it runs.

    A hop before a keyed step divides a processor: its first steps run in the region that writes the hop. A region
    without a processor copies a hop.
    """
    if not region.processors:
        return f"{region.name} (copy in {_destination(region)})"
    *former, last = region.processors
    reads = [each for each in plan.regions if region.writes in each.reads]
    if not any(last in each.processors for each in reads):
        return with_processors(region.name, region.processors)
    is_later = any(
        last in each.processors and each.writes in region.reads for each in plan.regions
    )  # fmt: skip
    part = f"{last} before its next groupBy" if is_later else f"{last} before groupBy"
    return f"{region.name} ({', '.join(former)}, and {part})" if former else f"{region.name} ({part})"


def with_processors(name: str, processors: tuple[str, ...]) -> str:
    """Return the name of a region, with its processors if they have other names."""
    return name if processors in ((), (name,)) else f"{name} ({', '.join(processors)})"
