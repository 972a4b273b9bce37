"""The commands that inspect an application or send it requests: rollback, history, stop, gc, disown."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from falkirk.commands.offline import OfflineApplication, Preview, never_ran
from falkirk.commands.options import broker_option, file_argument, home_option
from falkirk.declare.application import Application
from falkirk.declare.load import broker_of, load_application
from falkirk.errors import DefinitionError, HomeError
from falkirk.home.executors import await_executors
from falkirk.home.folder import Home, attach_home, open_home
from falkirk.home.requests import ask_to_go_back, ask_to_stop
from falkirk.protocol.rollback import contradiction
from falkirk.runtime.context import Place
from falkirk.runtime.epochs.files import FileLog
from falkirk.system.terminal import Terminal

_out = Terminal()
#: The longest wait for an answer: a stop flushes producers, and a rollback reads the results since the checkpoint.
_PATIENCE_S = 180.0

Command = Callable[..., None]


def of_application(command: Command) -> Command:
    """Add the argument and options that name the application."""
    for option in (
        home_option,
        click.option("--local", is_flag=True, help="The broker that --local started on this machine."),
        broker_option,
        file_argument,
    ):
        command = option(command)
    return command


@contextmanager
def home_of(app: Application, home: Path | None) -> Iterator[tuple[Home, bool]]:
    """Yield an application's home, and whether it runs. If it does not, its lock is held meanwhile without a new owner.

    Raises: HomeError: `NEVER_RAN`, and as `open_home`.
    """
    path = home or app.home
    if not (path / "falkirk.json").exists():
        raise never_ran(path)
    try:
        held, runs = open_home(path, app.name, app.store, visits=True), False
    except HomeError as error:
        if error.condition != "HOME_IN_USE":
            raise
        held, runs = attach_home(path, app.name, app.store), True
    with held:
        yield held, runs


@contextmanager
def _offline(
    file: Path, broker: str | None, local: bool, home: Path | None
) -> Iterator[tuple[OfflineApplication, Home, bool]]:
    app = load_application(file)
    connection = broker_of(app, local_broker() if local else broker)
    with home_of(app, home) as (held, runs):
        if not runs:
            held.kill_leftovers()
            await_executors(held.path)
        yield OfflineApplication(app, held, connection, runs=runs, history=app.history), held, runs


def local_broker() -> str:
    """Return the address of this machine's broker; start it first if it does not run."""
    from falkirk.local.broker import start

    return start().bootstrap


@click.command()
@of_application
@click.option("--to", "to", metavar="PROCESSOR@POINT", required=True, help="A point of `falkirk history`, or @start.")
@click.option("--force", is_flag=True, help="Roll back even if this contradicts published results.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@click.option("--json", "as_json", is_flag=True, help="Print the preview as JSON.")
def rollback(
    file: Path, broker: str | None, local: bool, home: Path | None, to: str, force: bool, yes: bool, dry_run: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Roll FILE's application back to a consistent point. Results that depend on void results become void too.

    The command shows the effect first. It works on a running and on a stopped application.
    """
    with _offline(file, broker, local, home) as (visit, held, runs):
        asked = visit.asked(to)
        preview = visit.preview(asked)
        if as_json:
            click.echo(json.dumps(_preview_json(preview), indent=1))
        else:
            _show(preview)
        if dry_run:
            return
        if preview.outside and not force:
            raise contradiction(tuple(preview.outside))
        if not yes:
            click.confirm("Go back?", abort=True, err=True)
        if not runs:
            held.take_charge()
            visit.roll_back(asked, force=force)
            click.echo("Done. The next start resumes from there.", err=True)
            return
        with Terminal(stderr=True).status("waiting for the application to go back"):
            ask_to_go_back(held.store, asked, force=force, timeout_s=_PATIENCE_S)
        click.echo("Done. The application resumes from there.", err=True)


@click.command()
@of_application
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def history(file: Path, broker: str | None, local: bool, home: Path | None, as_json: bool) -> None:
    """Print the points that FILE's application can go back to.

    Points with nothing in between are one line, with the time from the first to the last of them.
    """
    with _offline(file, broker, local, home) as (visit, _, _runs):
        past = visit.history()
        if as_json:
            click.echo(
                json.dumps(
                    [
                        {
                            "region": p.region,
                            "processors": list(visit.shape.processors[p.region]),
                            "point": p.point.number,
                            "made_at_s": p.point.made_at_s,
                            "since_s": p.first.made_at_s,
                            "read": sum(int(n) for _, n in p.point.read.prefixes),
                            "results_since": p.since,
                            "outside": p.outside,
                            "detail": p.point.detail,
                        }
                        for p in past
                    ],
                    indent=1,
                )
            )
            return
        table = Table()
        for heading in ("region", "point", "made", "ago", "input in it", "results since"):
            table.add_column(heading, justify="left" if heading in ("region", "made") else "right")
        told = any(p.point.detail for p in past)
        if told:
            table.add_column("")
        for p in past:
            made = p.point.made_at_s
            table.add_row(
                p.region,
                _point(p.point.number),
                ""
                if made is None
                else _when(made)
                if p.first is p.point
                else _between(p.first.made_at_s or made, made),
                "" if made is None else _ago(time.time() - made),
                f"{sum(int(n) for _, n in p.point.read.prefixes):,}",
                f"{p.since:,}" + (", outside" if p.outside and p.since else ""),
                *([p.point.detail] if told else []),
            )
        _out.print(table)


@click.command()
@of_application
def stop(file: Path, broker: str | None, local: bool, home: Path | None) -> None:
    """Stop FILE's application, wherever on this machine it was started. The next start resumes from there."""
    app = load_application(file)
    with home_of(app, home) as (held, runs):
        if not runs:
            click.echo(f"{app.name}: does not run", err=True)
            return
        ask_to_stop(held.store)
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        with home_of(app, home) as (_, runs):
            if not runs:
                click.echo(f"{app.name}: stopped", err=True)
                return
        time.sleep(0.2)
    raise HomeError(
        "REQUEST_UNANSWERED",
        f"{app.name!r} has not stopped for {_PATIENCE_S:.0f} s.",
        hint="Read host.log in its home. You may kill the application at any moment without harm.",
    )


@click.command()
@of_application
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def gc(file: Path, broker: str | None, local: bool, home: Path | None, dry_run: bool, as_json: bool) -> None:
    """Delete checkpoints and records that neither a failure nor a rollback to the kept history can need.

    A running application does this continuously.
    """
    with _offline(file, broker, local, home) as (visit, held, runs):
        garbage = visit.garbage()
        if as_json:
            click.echo(json.dumps({"checkpoints": garbage.checkpoints, "records": garbage.records}, indent=1))
        else:
            table = Table()
            for heading in ("what", "can go"):
                table.add_column(heading, justify="right" if heading == "can go" else "left")
            for name, number in garbage.checkpoints.items():
                table.add_row(f"checkpoints of {name}", f"{number:,}")
            for topic, number in garbage.records.items():
                table.add_row(f"records of {topic}", f"{number:,}")
            _out.print(table)
        if runs and not dry_run:
            click.echo("The application runs, and deletes these itself.", err=True)
        elif not dry_run:
            held.take_charge()
            visit.recovery.collect()
            click.echo("Done.", err=True)


def _show(preview: Preview) -> None:
    table = Table()
    for heading in ("region", "goes back to", "made", "input read again", "results taken back", "why"):
        table.add_column(heading, justify="right" if heading.startswith(("input", "results")) else "left")
    for m in preview.moves:
        made = "" if m.to.made_at_s is None else _ago(time.time() - m.to.made_at_s) + " ago"
        table.add_row(m.region, _point(m.to.number), made, f"{m.again:,}", f"{m.taken_back:,}", m.why)
    _out.print(table)
    if preview.stays:
        _out.print(f"Not taken back: {', '.join(preview.stays)}.")
    for topic, number in preview.outside.items():
        _out.print(f"Already published, and can't be taken back: {number:,} results in {topic}.")


def _preview_json(preview: Preview) -> dict[str, Any]:
    return {
        "moves": [
            {
                "region": m.region,
                "to": m.to.number,
                "made_at_s": m.to.made_at_s,
                "input_read_again": m.again,
                "results_taken_back": m.taken_back,
                "why": m.why,
            }
            for m in preview.moves
        ],
        "stays": list(preview.stays),
        "outside": dict(preview.outside),
    }


def _point(number: int) -> str:
    return "start" if number < 0 else str(number)


def _when(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s).astimezone():%Y-%m-%d %H:%M:%S %Z}"


def _between(first_s: float, last_s: float) -> str:
    """Return a span of time; of one within a day, the day once."""
    first, last = (datetime.fromtimestamp(at_s).astimezone() for at_s in (first_s, last_s))
    end = f"{last:%H:%M:%S %Z}" if first.date() == last.date() else _when(last_s)
    return f"{first:%Y-%m-%d %H:%M:%S} to {end}"


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"


@click.command()
@of_application
@click.argument("what", metavar="TOPIC|SOURCE/FILE")
def disown(file: Path, broker: str | None, local: bool, home: Path | None, what: str) -> None:
    """Ignore forged records in TOPIC, or leave out a FILE of the folder that SOURCE reads.

    TOPIC: forged records keep FILE's application from starting (FOREIGN_WRITER). They have a tag that this home can't
    verify. The command ignores those that are in TOPIC now. If the home was restored from an old copy, restore a newer
    one instead, because its results would be repeated.

    SOURCE/FILE: the file was changed or removed (INPUT_CHANGED, INPUT_EXPIRED), and you can't put it back. Incomplete
    epochs leave it out, and its name goes to the dead letters. This works on a running application.
    """
    app = load_application(file)
    source, _, name = what.partition("/")
    if name:
        _disown_file(app, home, source, name)
        return
    connection = broker_of(app, local_broker() if local else broker)
    with home_of(app, home) as (held, _runs):
        ends = Place(home=held, connection=connection).disown(what)
    places = ", ".join(f"{offset} of partition {partition}" for partition, offset in sorted(ends.items()))
    click.echo(f"Done. Unverified records of {what} are ignored up to offset {places}.", err=True)


def _disown_file(app: Application, home: Path | None, source: str, name: str) -> None:
    if source not in app.folders:
        raise DefinitionError(
            "FILE_UNKNOWN",
            f"application {app.name!r} reads no folder as {source!r}.",
            hint=f"It reads folders as {', '.join(app.folders)}." if app.folders else "It reads only topics.",
            source=source,
        )
    with home_of(app, home) as (held, _runs):
        FileLog(source, app.folders[source], held.store).disown(name)
    click.echo(f"Done. Incomplete epochs leave out {source}/{name}.", err=True)
