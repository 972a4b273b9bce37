"""The command state: the last saved memory of a step."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from falkirk.declare.application import Application
from falkirk.declare.load import load_application
from falkirk.errors.conditions.commands import STATE_UNREADABLE_CHANGED
from falkirk.plan.patterns import with_recorded_topics
from falkirk.plan.region import RegionLogs
from falkirk.platform.terminal import Terminal
from falkirk.platform.times import when
from falkirk.recovery.ownership.folder import Home
from falkirk.theory.ids import BatchId
from falkirk.user_tools.commands.history.application import recorded_shape
from falkirk.user_tools.commands.history.unchanged import read_unchanged
from falkirk.user_tools.commands.kept_state import (
    KeptState,
    StateReader,
    StateTable,
    TablesReader,
    batch_states,
    live_state,
    newest_checkpoint,
)
from falkirk.user_tools.commands.options import file_argument, home_option, json_option
from falkirk.user_tools.commands.printing import output
from falkirk.user_tools.commands.records import shortened
from falkirk.user_tools.commands.run import count_text
from falkirk.user_tools.commands.running import home_to_read

#: So many characters of a value are shown at most.
_CELL_MAX = 60


@click.command()
@file_argument
@click.argument("processor")
@home_option
@click.option(
    "--key", "key", multiple=True, metavar="VALUE",
    help="Only rows with this value in the first column; repeat the option for the second column, and so on.",
)  # fmt: skip
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Show at most this many rows."
)
@json_option
def state(file: Path, processor: str, home: Path | None, key: tuple[str, ...], limit: int, as_json_: bool) -> None:
    """Show the last saved state of a processor of FILE's application.

    PROCESSOR is a processor, region or batch. For a live region, the command starts a Spark of its own, which takes
    some seconds, and reads the state at the last checkpoint. For a `groupBy` alone, this is for each key the partial
    aggregates that Spark keeps, and the last input record. Other steps show their states and timers, open windows,
    first records, and records that wait in a join. A region with several such steps shows each of them. For a batch,
    the command shows the state after the last epoch that saved one.

    A running application may have a newer state. The command names the checkpoint or epoch of the state that it shows.
    It changes nothing, and also works on a stopped application.
    """
    app = load_application(file)
    with home_to_read(app, home) as (held, _):
        shape = recorded_shape(held.data)
        unit = shape.require_region(processor)
        region = next((r for r in shape.regions if r.name == unit), None)
        if region is not None:
            newest_checkpoint(region, held)  # without one, Spark need not start
            found = _of_region(app, held, region, key, limit)
        else:
            found = list(batch_states(next(b for b in shape.batches if b.name == unit), held, key, limit))
    if as_json_:
        click.echo(json.dumps([each.as_json() for each in found], indent=1, default=str))
        return
    out = output()
    for each in found:
        _print(out, each, region)


def _of_region(app: Application, held: Home, region: RegionLogs, key: tuple[str, ...], limit: int) -> list[KeptState]:
    """Return the parts of the state of a live region."""
    from falkirk.user_tools.commands.planned import PlannedRegions
    from falkirk.user_tools.commands.spark_state import own_spark, read_aggregates
    from falkirk.user_tools.commands.state_tables import StateTables

    with own_spark(app) as session:

        def tables(folder: Path, number: BatchId, key: Sequence[str], limit: int) -> Sequence[StateTable]:
            known = with_recorded_topics(app, held.store)
            planned = PlannedRegions(app=known, home=held, session=session()).region(region)
            if planned is None:
                raise STATE_UNREADABLE_CHANGED.error(unit=region.name)
            shown = StateTables(
                region=planned, folder=folder, number=number, key=key, limit=limit, session=session()
            )  # fmt: skip
            return list(shown.all())

        return list(live_state_unchanged(region, held, partial(read_aggregates, session()), key, limit, tables))


def live_state_unchanged(
    region: RegionLogs, home: Home, read: StateReader, key: tuple[str, ...], limit: int,
    tables: TablesReader | None = None,
) -> tuple[KeptState, ...]:  # fmt: skip
    """Return the state of a region, as of a moment in which no recovery is under way. See `live_state`."""
    return read_unchanged(home.store, lambda: live_state(region, home, read, key, limit, tables))


def _print(out: Terminal, found: KeptState, region: RegionLogs | None) -> None:
    kind = "epoch" if region is None else "checkpoint"
    at = "" if found.made_at_s is None else f", made {when(found.made_at_s)}"
    what = f" ({found.what})" if found.what else ""
    out.print(f"state of {found.unit}{what} at {kind} {found.checkpoint}{at}")
    if found.note:
        out.print(found.note, soft_wrap=True)
        return
    for topic, ends in found.covers.items():
        upto = ", ".join(f"{p}@{end}" for p, end in sorted(ends.items()))
        out.print(f"it has seen the input of {topic} before {upto}", soft_wrap=True)
    table = Table()
    for place, name in enumerate(found.columns):
        table.add_column(name, style="bold" if place < found.keys else "", overflow="fold")
    for row in found.rows:
        table.add_row(*(_cell(row.get(name), region) for name in found.columns))
    out.print(table)
    more = f"; the first {len(found.rows):,} are shown" if len(found.rows) < found.count else ""
    out.print(f"{count_text(found.count, 'row')}{more}")


def _cell(value: Any, region: RegionLogs | None) -> str:
    if isinstance(value, Mapping) and region is not None and {"source", "partition", "offset"} <= set(value):
        return f"{region.sources[int(value['source'])]}/{value['partition']}@{value['offset']}"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return shortened(text, _CELL_MAX)
