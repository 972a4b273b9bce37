"""The commands stop, gc and disown, and the access to an application's home for all commands."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.table import Table

from falkirk.declare.application import Application
from falkirk.declare.load import broker_of, load_application
from falkirk.errors import HomeError
from falkirk.errors.conditions.commands import FILE_UNKNOWN, REQUEST_UNANSWERED_STOP
from falkirk.platform import locks
from falkirk.platform.terminal import Terminal
from falkirk.recovery.ownership.executors import await_executors
from falkirk.recovery.ownership.folder import Home, attach_home, open_home
from falkirk.recovery.ownership.lease import has_run, is_renewed
from falkirk.recovery.ownership.requests import PATIENCE_S, ask_to_stop
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.user_tools.commands.history.application import OfflineApplication, never_ran
from falkirk.user_tools.commands.options import broker_option, file_argument, home_option, running_broker_option

_Command = Callable[..., None]


def of_application(command: _Command) -> _Command:
    """Add the argument and options that name the application."""
    for option in (
        home_option,
        running_broker_option,
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
    if not has_run(path, app.name, app.store, app.data):
        raise never_ran(app.data or path)
    try:
        held, runs = open_home(path, app.name, app.store, data=app.data, visits=True), False
        if is_renewed(held.store):
            held.close()
            held, runs = attach_home(path, app.name, app.store, app.data), True
    except HomeError as error:
        if error.condition != "HOME_IN_USE":
            raise
        held, runs = attach_home(path, app.name, app.store, app.data), True
    with held:
        yield held, runs


@contextmanager
def home_to_read(app: Application, home: Path | None) -> Iterator[tuple[Home, bool]]:
    """Yield an application's home, only to read it, and whether the application runs on this machine.

    It takes no lock, so the application can start and stop meanwhile.

    Raises: HomeError: `NEVER_RAN`, and as `attach_home`.
    """
    path = home or app.home
    if not has_run(path, app.name, app.store, app.data) or not (path / locks.OWNER).exists():
        raise never_ran(app.data or path)
    with attach_home(path, app.name, app.store, app.data) as held:
        yield held, locks.is_held(path, locks.OWNER)


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
    from falkirk.spark_setup.broker import start

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
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def gc(file: Path, broker: str | None, local: bool, home: Path | None, dry_run: bool, as_json: bool) -> None:
    """Delete data that no recovery or rollback can need.

    The data is checkpoints, and records of Falkirk's internal topics. Your own topics are not touched. The command
    keeps all data that a failure may need, or a rollback to a state in `falkirk history`. A running application deletes
    such data continuously.
    """
    with offline(file, broker, local, home) as (visit, held, runs):
        garbage = visit.garbage()
        if as_json:
            click.echo(json.dumps({"checkpoints": garbage.checkpoints, "records": garbage.records}, indent=1))
        else:
            table = Table()
            for heading in ("data", "can be deleted"):
                table.add_column(heading, justify="left" if heading == "data" else "right")
            for name, number in garbage.checkpoints.items():
                table.add_row(f"checkpoints of {name}", f"{number:,}")
            for topic, number in garbage.records.items():
                table.add_row(f"records of {topic}", f"{number:,}")
            Terminal().print(table)
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

    TOPIC: the application refuses to start because TOPIC has records that this home did not write (FOREIGN_WRITER). The
    command makes it ignore those that are there now. If you restored the home from an old copy, do not use this command
    but restore a newer copy. Otherwise results would be published again.

    SOURCE/FILE: the file was changed or removed (INPUT_CHANGED, INPUT_EXPIRED), and you can't restore it. Epochs that
    are not complete yet are computed without the file, and its name goes to the dead letters. This works on a running
    application.
    """
    app = load_application(file)
    source, _, name = what.partition("/")
    if name:
        _disown_file(app, home, source, name)
        return
    connection = broker_of(app, local_broker() if local else broker)
    with home_of(app, home) as (held, _runs):
        ends = Storage(home=held, connection=connection).disown(what)
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
    click.echo(f"Done. Epochs that are not complete yet are computed without {source}/{name}.", err=True)
