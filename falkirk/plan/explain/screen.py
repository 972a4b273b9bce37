"""Explanation: the plan as a user reads it, on one screen: each output with its promise, then what runs.

The details of one output are in `why`, the graph is in `mermaid`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from falkirk.errors.conditions.plan import SINK_UNKNOWN
from falkirk.plan.batch import Batch
from falkirk.plan.explain.columns import table, wrapped
from falkirk.plan.explain.mermaid import mermaid
from falkirk.plan.explain.terms import terms_in
from falkirk.plan.explain.values import plan_values
from falkirk.plan.explain.why import output_details, read_by, read_from, with_steps
from falkirk.plan.guarantees import Promise, epochs, promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.reasons import duration_text
from falkirk.plan.region import Region
from falkirk.plan.slots import RegionSlots

#: The widest that the overview becomes.
WIDTH_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A plan with the slots that it needs and has, ready to be shown.

    Args:
        available: slots of the Spark application. is_provided: no Spark master is named, so `falkirk run` starts Spark
            on this machine with enough slots.
        home: the application's folder on this machine. data: the address of its home in an object store, if it has one.
            broker: its address, if one is named. objectives: sentences about the intervals that regions choose to
            recover within a time.
    """

    plan: Plan
    slots: tuple[RegionSlots, ...]
    available: int
    is_provided: bool = False
    home: Path | None = None
    data: str | None = None
    broker: str | None = None
    notes: tuple[str, ...] = ()
    objectives: tuple[str, ...] = ()

    def renderable(self, width: int = WIDTH_MAX) -> RenderableType:
        """Return the overview for a terminal of that width."""
        return explain(self, width)

    def why(self, output: str, width: int | None = None) -> RenderableType:
        """Return the details of one output. Args: width: the terminal's; None: lines are not wrapped.

        Raises: DefinitionError: `SINK_UNKNOWN`.
        """
        promises = {promise.sink: promise for promise in promises_of(self.plan)}
        if output not in promises:
            raise SINK_UNKNOWN.error(output=output, outputs=tuple(promises), application=self.plan.application)
        return output_details(self.plan, promises[output], width)

    def mermaid(self) -> str:
        """Return the graph as mermaid text."""
        return mermaid(self.plan)

    def as_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return plan_values(self.plan, self.slots, self.available)


def explain(shown: Shown, width: int = WIDTH_MAX) -> RenderableType:
    """Return the overview of a plan, at most `width` characters wide."""
    promises, width = promises_of(shown.plan), min(width, WIDTH_MAX)
    outputs = [("SINK", "PROMISE", "WHEN", "WHY"), *((_output(p), p.promise, p.when, p.why) for p in promises)]
    regions = [(with_steps(shown.plan, r), _how(r), _source(r)) for r in shown.plan.regions]
    batches = [(b.name, f"{_kind(b)}, {epochs(b.cut)}", _inputs(shown.plan, b)) for b in shown.plan.batches]
    units = [("QUERY OR BATCH", "HOW IT RUNS", "READS"), *regions, *batches]
    notes = (*_requests(shown.plan), *_slots(shown), *shown.objectives, *_warnings(shown, promises))
    example = _example(promises)
    ending = [
        *notes,
        f"To see the reasons and the costs of a promise, add `--why SINK`, for example `--why {example}`.",
    ]
    cells = [_header(shown), *(cell for rows in (outputs, regions, batches) for row in rows for cell in row)]
    return Group(
        *(Text(line, style="bold") for line in wrapped(_header(shown), width)),
        Text(),
        *_lines(outputs, width),
        Text(),
        *_lines(units, width),
        Text(),
        *(Text(line) for text in terms_in(cells) for line in wrapped(text, width)),
        Text(),
        *(Text(line) for text in ending for line in wrapped(text, width)),
    )


def _header(shown: Shown) -> str:
    parts = [f"application {shown.plan.application}"]
    if shown.data is not None:
        parts.append(f"home {shown.data} (checkpoints)")
    elif shown.home is not None:
        parts.append(f"home {shown.home} (folder for checkpoints)")
    if shown.broker is not None:
        parts.append(f"broker {shown.broker}")
    return " · ".join(parts)


def _lines(rows: Sequence[Sequence[str]], width: int) -> Iterator[Text]:
    for number, line in enumerate(table(rows, width)):
        yield Text(line, style="" if number else "dim")


def _output(promise: Promise) -> str:
    return f"{promise.sink} → {promise.to}"


def _how(region: Region) -> str:
    kind = f"live{', transactional' if region.transactional else ''}{', two queries' if region.twins else ''}"
    return f"{kind}, checkpoint every {duration_text(region.interval_s)}"


def _source(region: Region) -> str:
    return ", ".join([read_from(region), *(f"newest {view.name}" for view in region.views)])


def _kind(batch: Batch) -> str:
    if batch.iteration is not None:
        return "iteration"
    return "micro-batch" if batch.reason else "batch"


def _inputs(plan: Plan, batch: Batch) -> str:
    newest = [f"newest {i.name}" for i in batch.inputs if i.view]
    return ", ".join([*(read_by(plan, i) for i in batch.inputs if not i.view), *newest])


def _requests(plan: Plan) -> Iterator[str]:
    for push in plan.push:
        answered = f"; the response is the answer in topic {push.answers}" if push.answers else ""
        yield f"HTTP: POST {push.path} adds a record to the internal topic {push.name}{answered}."


def _slots(shown: Shown) -> Iterator[str]:
    if shown.slots:
        needed = f"{sum(need.total for need in shown.slots)} needed, one per live Spark task"
        had = "`falkirk run` starts Spark with enough." if shown.is_provided else f"{shown.available} are available."
        yield f"Core slots (threads): {needed}. {had}"


def _warnings(shown: Shown, promises: tuple[Promise, ...]) -> Iterator[str]:
    yield from (f"Note: {note}" for note in shown.notes)
    needed = sum(need.total for need in shown.slots)
    if needed > shown.available:
        yield (
            f"Warning: {needed} core slots are needed and {shown.available} available. Real-time Mode needs all "
            f"{needed} at the same time: use more cores, or --master local[{needed}]."
        )
    for promise in promises:
        if promise.may_vary:
            yield f"Warning: {promise.sink}: a result that is repeated after a failure may differ from the first one."
    declared = sorted({word.name for known in shown.plan.properties.values() for word in known.assertions})
    if declared:
        yield f"Warning: you declare {', '.join(declared)} deterministic. Test this with `falkirk verify determinism`."
    printed = [sink.name for batch in shown.plan.batches for sink in batch.sinks if not sink.to.remembers]
    if printed:
        yield f"Warning: {', '.join(printed)}: the last epochs may be printed twice after a failure."


def _example(promises: tuple[Promise, ...]) -> str:
    waiting = [promise.sink for promise in promises if promise.awaits]
    return [*waiting, promises[0].sink][0]
