"""The commands history and rollback: the consistent cuts to which an application can roll back, and the rollback."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from falkirk.errors.conditions.commands import PREVIEW_OUTDATED_COMMAND
from falkirk.platform.terminal import Terminal
from falkirk.platform.times import when
from falkirk.recovery.ownership.requests import PATIENCE_S, ask_for_rollback, fail_former, is_rolled_back
from falkirk.recovery.protocol.rollback import contradiction
from falkirk.user_tools.commands.history.application import OfflineApplication, Past, PastCut, Preview
from falkirk.user_tools.commands.history.targets import RollbackTarget, cut_text, rollback_target
from falkirk.user_tools.commands.history.values import cut_json, preview_json
from falkirk.user_tools.commands.running import of_application, offline

#: With more regions than this, a table of cuts has one column for all of them.
_COLUMNS_MAX = 8
_EARLIER = (
    "Nothing was done: this rollback was carried out before, for a command that did not get the answer. Repeat the "
    "command to roll back again."
)
_TO = """A time ("2026-01-31 12:00:00", "10 minutes ago"), the number of a cut in `falkirk history`, or a checkpoint of
one processor, region or batch."""


@click.command()
@of_application
@click.option("--to", "to", metavar="TIME|CUT|PROCESSOR@CHECKPOINT", required=True, help=_TO)
@click.option(
    "--force",
    is_flag=True,
    help="Roll back even if the rollback makes published results invalid; they stay in the topic.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@click.option("--json", "as_json", is_flag=True, help="Print the preview as JSON.")
def rollback(
    file: Path, broker: str | None, local: bool, home: Path | None, to: str, force: bool, yes: bool, dry_run: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Roll FILE's application back to an earlier state.

    --to CUT: the whole application returns to the consistent cut with this number in `falkirk history`.

    --to TIME: the whole application returns to the newest consistent cut that is not later than this time.

    --to PROCESSOR@CHECKPOINT: only this processor returns to this checkpoint, and the regions and batches that have
    read its later results. The checkpoint is a number that `falkirk history --unit` shows, or `start`.

    Later results become invalid: Falkirk's own readers skip them. Results that are already in your topics stay there.
    The command shows the effect first. It works on a running and on a stopped application.
    """
    with offline(file, broker, local, home) as (visit, held, runs):
        target, preview = visit.unchanged(lambda: _effect(visit, to))
        if as_json:
            click.echo(json.dumps(preview_json(target, preview), indent=1))
        else:
            _show(target, preview, visit.place.clock.time())
        if dry_run:
            return
        if preview.outside and not force:
            raise contradiction(tuple(preview.outside))
        if not yes:
            click.confirm("Roll back?", abort=True, err=True)
        _require_same(visit, preview, target)
        if not runs:
            held.take_charge()
            fail_former(held.store)
            if is_rolled_back(held.store, target.asked, force=force, to=to):
                click.echo(_EARLIER, err=True)
                return
            visit.roll_back(target.asked, force=force)
            click.echo("Done. The next start resumes from there.", err=True)
            return
        with Terminal(stderr=True).status("waiting for the application to roll back"):
            done = ask_for_rollback(held.store, target.asked, force=force, timeout_s=PATIENCE_S, to=to)
        click.echo(_EARLIER if done.is_earlier else "Done. The application resumes from there.", err=True)


@click.command()
@of_application
@click.option("--unit", metavar="NAME", help="List the checkpoints of this region, batch or processor.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def history(file: Path, broker: str | None, local: bool, home: Path | None, unit: str | None, as_json: bool) -> None:
    """List the states to which FILE's application can roll back.

    Each of them is a consistent cut. The newest comes first. A consistent cut has one checkpoint of each
    region and batch. (A checkpoint of a batch is an epoch whose state is saved.) These checkpoints fit together: no
    reader has read a result that its writer had not sent.

    = means: the same as in the line above. Several cuts between which nothing happened are shown as one line, with the
    time from the first to the last.
    """
    with offline(file, broker, local, home) as (visit, _, _runs):
        if unit is not None:
            past = visit.history(unit)
            if as_json:
                click.echo(json.dumps([_past_json(visit, p) for p in past], indent=1))
            else:
                Terminal().print(_checkpoints(past, visit.place.clock.time()))
            return
        cuts = visit.past_cuts()
        if as_json:
            click.echo(json.dumps([cut_json(c) for c in cuts], indent=1))
        else:
            Terminal().print(_cuts(tuple(visit.shape.layout.stages), cuts, visit.place.clock.time()))


def _effect(visit: OfflineApplication, to: str) -> tuple[RollbackTarget, Preview]:
    """Return the state that a text names, and the effect of a rollback to it."""
    target = rollback_target(visit, to, visit.place.clock.time())
    return target, visit.preview(target.asked)


def _require_same(visit: OfflineApplication, preview: Preview, target: RollbackTarget) -> None:
    """Check that the checkpoints of a preview still exist. A rollback meanwhile may have made others with their
    numbers.

    Raises: HomeError: `PREVIEW_OUTDATED`.
    """
    now = {
        (name, p.number, p.read, p.made_at_s) for name, checkpoints in visit.checkpoints().items() for p in checkpoints
    }
    shown_then = {m.region: (m.region, m.to.number, m.to.read, m.to.made_at_s) for m in preview.moves}
    changed = [name for name in target.asked if name in shown_then and shown_then[name] not in now]
    if changed:
        raise PREVIEW_OUTDATED_COMMAND.error(names=", ".join(changed))


def _cuts(units: Sequence[str], cuts: Sequence[PastCut], now_s: float) -> Table:
    columns = units if len(units) <= _COLUMNS_MAX else ("checkpoints",)
    table = _table(("cut", "made", "ago", *columns, "published results after it", "records read again"), "made")
    above: PastCut | None = None
    for past in cuts:
        cut, same = (
            past.cut,
            {n for n in units if above is not None and above.cut.checkpoints[n] is past.cut.checkpoints[n]},
        )
        numbers = {name: _checkpoint(cut.checkpoints[name].number) for name in units}
        if columns is units:
            cells = [f"= {numbers[name]}" if name in same else numbers[name] for name in units]
        else:
            changed = [f"{name}@{numbers[name]}" for name in units if name not in same]
            cells = [", ".join([*changed, *([f"{len(same)} unchanged"] if same else [])])]
        made_at_s, since_s = cut.made_at_s, cut.since_s
        table.add_row(
            str(cut.number),
            _between(since_s, made_at_s) if made_at_s is not None and since_s is not None else "at the start",
            "" if made_at_s is None else _ago(now_s - made_at_s),
            *cells,
            f"{sum(past.outside.values()):,}",
            f"{past.again:,}",
        )
        above = past
    return table


def _checkpoints(past: Iterable[Past], now_s: float) -> Table:
    past = tuple(past)
    remarked = any(p.checkpoint.detail for p in past)
    headings = ("unit", "checkpoint", "made", "ago", "input records read", "results after it")
    table = _table((*headings, "") if remarked else headings, "unit", "made", "")
    for p in past:
        made_at_s = p.checkpoint.made_at_s
        table.add_row(
            p.region,
            _checkpoint(p.checkpoint.number),
            "" if made_at_s is None else _between(p.first.made_at_s or made_at_s, made_at_s),
            "" if made_at_s is None else _ago(now_s - made_at_s),
            f"{sum(int(n) for _, n in p.checkpoint.read.prefixes):,}",
            f"{p.since:,}" + (", published" if p.outside and p.since else ""),
            *([p.checkpoint.detail] if remarked else []),
        )
    return table


def _past_json(visit: OfflineApplication, past: Past) -> dict[str, Any]:
    return {
        "region": past.region,
        "processors": list(visit.shape.processors[past.region]),
        "checkpoint": past.checkpoint.number,
        "made_at_s": past.checkpoint.made_at_s,
        "since_s": past.first.made_at_s,
        "read": sum(int(n) for _, n in past.checkpoint.read.prefixes),
        "results_since": past.since,
        "outside": past.outside,
        "detail": past.checkpoint.detail,
    }


def _show(target: RollbackTarget, preview: Preview, now_s: float) -> None:
    out = Terminal()
    if target.cut is not None:
        out.print(f"Back to cut {cut_text(target.cut)}.")
    texts = ("unit", "from", "to", "made", "why")
    table = _table(("unit", "from", "to", "made", "input read again", "results made invalid", "why"), *texts)
    for m in preview.moves:
        made = "" if m.to.made_at_s is None else _ago(now_s - m.to.made_at_s) + " ago"
        where = _checkpoint(m.newest.number), _checkpoint(m.to.number)
        table.add_row(m.region, *where, made, f"{m.again:,}", f"{m.taken_back:,}", m.why)
    out.print(table)
    if preview.stays:
        out.print(f"These keep their state: {', '.join(preview.stays)}.")
    for topic, number in preview.outside.items():
        out.print(f"{number:,} results in topic {topic} are already published and stay there.")


def _table(headings: Iterable[str], *left: str) -> Table:
    """Return a table with these columns. Args: left: those that are text; numbers are aligned to the right."""
    table = Table()
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right")
    return table


def _checkpoint(number: int) -> str:
    return "start" if number < 0 else str(number)


def _between(first_s: float, last_s: float) -> str:
    """Return a span of time; of one within a day, the day once."""
    if first_s == last_s:
        return when(last_s)
    first, last = (datetime.fromtimestamp(at_s).astimezone() for at_s in (first_s, last_s))
    end = f"{last:%H:%M:%S %Z}" if first.date() == last.date() else when(last_s)
    return f"{first:%Y-%m-%d %H:%M:%S} to {end}"


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
