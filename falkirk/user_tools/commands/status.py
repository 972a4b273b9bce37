"""The command status: the present state of the regions and batches of an application, once or repeatedly."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from falkirk.declare.application import Application
from falkirk.declare.load import load_application
from falkirk.platform import locks
from falkirk.platform.terminal import Terminal
from falkirk.platform.times import when
from falkirk.recovery.protocol.down import stays_down
from falkirk.runtime.supervision.coordinator import read_status
from falkirk.runtime.supervision.settings import SILENT_S
from falkirk.user_tools.commands.options import file_argument, home_option, json_option
from falkirk.user_tools.commands.owners import OwnerReader, Owners
from falkirk.user_tools.commands.run import foreign_records, status_line

#: The time between two looks of `--watch`.
_POLL_S = 1.0
#: The detail of a region with twins, by whether the second query runs.
_TWINS = {True: "twins", False: "one of its twins"}
_STATES = {"running": "green", "failed": "red", "stopped": "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenStatus:
    """The last status of an application.

    Args: runs: a host still publishes it, or starts. starts: the coordinator runs, and no host has reported since the
        last one ended. The state of each region is then `starting`, unless it stays down. owners: None if it has never
        run with a lease.
    """

    app: Application
    status: Mapping[str, Any]
    runs: bool
    starts: bool = False
    owners: Owners | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether another machine runs the application, with its home in an object store."""
        return not self.runs and self.app.data is not None and self.owners is not None and self.owners.is_renewed

    @property
    def failures(self) -> Iterator[str]:
        """The errors for which regions stay down."""
        for region in self.status["regions"]:
            if region.get("condition"):
                yield f"{region['name']} {stays_down(region['condition'])}. {region['detail']}"

    @property
    def objectives(self) -> Iterator[str]:
        """The intervals that regions have chosen for their objectives, and warnings about those that they miss."""
        for region in self.status["regions"]:
            if (objective := region.get("objective")) is not None:  # an older version's status has none
                yield objective["text"]
                if objective["warning"] is not None:
                    yield f"Warning: {objective['warning']}"

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"runs": self.runs, **self.status, **({} if self.owners is None else self.owners.as_json())}

    @property
    def ownership(self) -> tuple[str, ...]:
        """Lines about the owner and the processes that wait, if there is a lease."""
        return () if self.owners is None else tuple(self.owners.lines())

    @property
    def line(self) -> str:
        """The state of each region, in a few words."""
        if self.starts and not self.status["regions"]:
            return f"{self.app.name}: starting"
        if self.is_elsewhere:
            return f"{self.app.name}: runs on another machine, which has the state of its batches"
        return status_line(self.app, dict(self.status)) if self.runs else f"{self.app.name}: does not run"


def see(app: Application, home: Path, owners: OwnerReader | None = None) -> SeenStatus:
    """Return the last status that an application has published in its home, and its owners, if they are to be read.

    Between the end of a host and the first report of the next one, nothing is published. The lock of the home then
    shows that the coordinator runs.
    """
    starts = locks.is_run(home)  # before the status: a host that has just reported is no longer starting
    status = read_status(home / "status.json") or {"at_s": 0.0, "regions": []}
    owned = None if owners is None else owners.read()
    fresh = time.time() - status["at_s"] < SILENT_S
    if fresh and any(r["state"] != "stopped" for r in status["regions"]):
        return SeenStatus(app=app, status=status, runs=True, owners=owned)
    if starts:
        status = {**status, "regions": [_starting(region) for region in status["regions"]]}
    return SeenStatus(app=app, status=status, runs=starts, starts=starts, owners=owned)


def _starting(region: Mapping[str, Any]) -> dict[str, Any]:
    if region.get("condition"):
        return {**region, "state": "failed"}
    return {**region, "state": "starting", "detail": "", "checkpoint_age_s": None}


@click.command()
@file_argument
@home_option
@click.option("--watch", "watches", is_flag=True, help="Show it again each second, until Ctrl-C.")
@json_option
def status(file: Path, home: Path | None, watches: bool, as_json_: bool) -> None:
    """Print the state of FILE's regions and batches.

    A region is one Spark query, with the steps of one or more processors: `falkirk plan` shows them. The exit code is 1
    if the application does not run. While its Spark application starts or restarts, it counts as running. With --watch,
    a terminal shows a table that stays in its place. Otherwise, a line is printed at each change of a state, and with
    --json one JSON object per line.
    """
    app = load_application(file)
    path = home or app.home
    with OwnerReader(app, path) as owners:
        if watches:
            watch(lambda: see(app, path, owners), as_json=as_json_)
            return
        seen = see(app, path, owners)
    if as_json_:
        click.echo(json.dumps(seen.as_json(), indent=1))
    else:
        _print(seen)
    sys.exit(0 if seen.runs or seen.is_elsewhere else 1)


def _print(seen: SeenStatus) -> None:
    if seen.runs:
        Terminal().print(seen.line.replace(" · ", "\n  ").replace(": ", ":\n  ", 1))
    else:
        click.echo(seen.line)
    for text in (*seen.failures, *seen.objectives, *seen.ownership):
        Terminal().print(text, soft_wrap=True)


def watch(
    look: Callable[[], SeenStatus], *, as_json: bool, terminal: Terminal | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> None:  # fmt: skip
    """Show the status again and again until Ctrl-C. Args: wait: between two looks; a test ends the watch there."""
    terminal = Terminal() if terminal is None else terminal
    with contextlib.suppress(KeyboardInterrupt):
        if as_json or not terminal.is_terminal:
            _report(look, terminal, wait, as_json=as_json)
        else:
            _redraw(look, terminal, wait)


def _redraw(look: Callable[[], SeenStatus], terminal: Terminal, wait: Callable[[float], None]) -> None:
    """Show the status in one place of the terminal."""
    with Live(console=terminal, auto_refresh=False) as live:
        while True:
            live.update(picture(look(), time.time()), refresh=True)
            wait(_POLL_S)


def _report(
    look: Callable[[], SeenStatus], terminal: Terminal, wait: Callable[[float], None], *, as_json: bool
) -> None:
    """Print a line at each change: with JSON of the status, otherwise of the state of a region."""
    last: object = None
    while True:
        seen = look()
        states = tuple((r["name"], r["state"], r.get("detail"), r["dead_letters"]) for r in seen.status["regions"])
        now: object = (seen.runs, seen.status["at_s"]) if as_json else (seen.runs, states)
        if now != last:
            last = now
            if as_json:
                click.echo(json.dumps(seen.as_json()))
            else:
                terminal.print(f"{datetime.now():%H:%M:%S} {seen.line}", soft_wrap=True)
        wait(_POLL_S)


def picture(seen: SeenStatus, now_s: float) -> RenderableType:
    """Return the status as a table with a line for each region and batch."""
    status = seen.status
    if seen.is_elsewhere:
        return Group(*map(Text, (seen.line, *seen.ownership)))
    if not seen.runs:
        since = f"; its last status is of {when(status['at_s'])}" if status["at_s"] else ""
        return Group(*map(Text, (f"{seen.app.name}: does not run{since}", *seen.ownership)))
    figures = {str(f.get("name")): f for f in status.get("figures") or ()}
    if not status["regions"]:
        return Text(seen.line)
    table = Table()
    for name in ("unit", "state", "checkpoint", "waiting input", "results since the start", "dead letters"):
        table.add_column(name, justify="left" if name in ("unit", "state") else "right")
    for region in status["regions"]:
        age, found = region["checkpoint_age_s"], figures.get(region["name"], {})
        lag = _sum(source.get("lag") for source in (found.get("sources") or {}).values())
        results = _sum(sink.get("records") for sink in (found.get("sinks") or {}).values())
        state = Text(region["state"], style=_STATES.get(region["state"], "yellow"))
        detail = region.get("condition") or region["detail"] or _TWINS.get(region.get("twin"), "")
        table.add_row(
            region["name"],
            Text.assemble(state, f" ({detail})" if detail else ""),
            "" if age is None else f"{age + max(0.0, now_s - status['at_s']):.0f} s ago",
            lag,
            results,
            f"{region['dead_letters']:,}" if region["dead_letters"] else "",
        )
    return Group(
        Text(f"{seen.app.name}: runs"),
        table,
        *map(Text, (*seen.failures, *foreign_records(status), *seen.objectives, *seen.ownership)),
    )


def _sum(numbers: Iterator[int | None]) -> str:
    """Return the sum of the known numbers; an empty text if none is known."""
    known = [number for number in numbers if number is not None]
    return f"{sum(known):,}" if known else ""
