"""The commands stop, gc and disown, and the access to an application's home for all commands."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.table import Table

from falkirk.commands.offline import OfflineApplication, never_ran
from falkirk.commands.options import broker_option, file_argument, home_option
from falkirk.declare.application import Application
from falkirk.declare.load import broker_of, load_application
from falkirk.errors import HomeError
from falkirk.errors.conditions.commands import FILE_UNKNOWN, REQUEST_UNANSWERED_STOP
from falkirk.home.executors import await_executors
from falkirk.home.folder import Home, attach_home, open_home
from falkirk.home.requests import ask_to_stop
from falkirk.runtime.context import Place
from falkirk.runtime.epochs.files import FileLog
from falkirk.system.terminal import Terminal

_out = Terminal()
#: The longest wait for an answer: a stop flushes producers, and a rollback reads the results since the checkpoint.
PATIENCE_S = 180.0

Command = Callable[..., None]


def of_application(command: Command) -> Command:
    """Add the argument and options that name the application."""
    for option in (
        home_option,
        click.option("--local", is_flag=True, help="Use the broker that `falkirk run --local` starts on this machine."),
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
def offline(
    file: Path, broker: str | None, local: bool, home: Path | None
) -> Iterator[tuple[OfflineApplication, Home, bool]]:
    """Yield a visit to an application, its home, and whether it runs. Raises: as `home_of`."""
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
def stop(file: Path, broker: str | None, local: bool, home: Path | None) -> None:
    """Stop FILE's application.

    It may run in any terminal or service of this machine. The next start resumes from its last checkpoint.
    """
    app = load_application(file)
    with home_of(app, home) as (held, runs):
        if not runs:
            click.echo(f"{app.name}: does not run", err=True)
            return
        ask_to_stop(held.store)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with home_of(app, home) as (_, runs):
            if not runs:
                click.echo(f"{app.name}: stopped", err=True)
                return
        time.sleep(0.2)
    raise REQUEST_UNANSWERED_STOP.error(app=app.name, patience_s=PATIENCE_S)


@click.command()
@of_application
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def gc(file: Path, broker: str | None, local: bool, home: Path | None, dry_run: bool, as_json: bool) -> None:
    """Delete old checkpoints and records.

    The command deletes those that are needed neither after a failure nor for a rollback to the kept history, which
    `falkirk history` lists. A running application does this continuously.
    """
    with offline(file, broker, local, home) as (visit, held, runs):
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


@click.command()
@of_application
@click.argument("what", metavar="TOPIC|SOURCE/FILE")
def disown(file: Path, broker: str | None, local: bool, home: Path | None, what: str) -> None:
    """Ignore forged records or a changed input file.

    TOPIC: forged records keep FILE's application from starting (FOREIGN_WRITER). They have a tag that this home can't
    verify. The command ignores those that are in TOPIC now. If you restored the home from an old copy, do not use this
    command but restore a newer copy. Otherwise results would be published again.

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
        raise FILE_UNKNOWN.error(
            source=source,
            app=app.name,
            advice=f"It reads folders as {', '.join(app.folders)}." if app.folders else "It reads only topics.",
        )
    with home_of(app, home) as (held, _runs):
        FileLog(source, app.folders[source], held.store).disown(name)
    click.echo(f"Done. Incomplete epochs leave out {source}/{name}.", err=True)
