"""The command `falkirk redrive`: sends dead letters to their original topics again."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click
from rich.table import Table

from falkirk.declare.application import Application
from falkirk.declare.load import broker_of, load_application
from falkirk.errors import GuaranteeError
from falkirk.errors.conditions.redrive import (
    REDRIVE_REFUSED_CHECKPOINT,
    REDRIVE_REFUSED_CLUSTER,
    REDRIVE_REFUSED_EFFECT,
    REDRIVE_REFUSED_REPLAY,
)
from falkirk.kafka_client.connection import Connection
from falkirk.plan.fingerprint import places_of_keyed_step
from falkirk.plan.patterns import with_recorded_topics
from falkirk.plan.shape import Shape
from falkirk.platform.terminal import Terminal
from falkirk.recovery.ownership.folder import Home
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.live.at_rest import RegionAtRest
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.user_tools.commands.history.application import recorded_shape
from falkirk.user_tools.commands.running import home_of, local_broker, of_application
from falkirk.user_tools.redrive.letters import Letter, LetterKind, read_letters
from falkirk.user_tools.redrive.sending import AT_ONCE, Notes, RedriveSender, count_by_kind, letters_to_send, originals


@click.command()
@of_application
@click.option("--unit", "named", metavar="NAME", help="Only the dead letters of this region, batch or processor.")
@click.option("--dry-run", is_flag=True, help="Only show what would be sent.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def redrive(
    file: Path, broker: str | None, local: bool, home: Path | None, named: str | None, dry_run: bool, as_json: bool
) -> None:
    """Send dead letters to their topics again.

    Dead letters are records that the application could not process. Use the command after you have fixed the cause.
    Each record is sent once, even if you repeat the command or it fails. All readers of such a topic get the record
    again. The command works on a running and on a stopped application.
    """
    app = load_application(file)
    connection = broker_of(app, local_broker() if local else broker)
    with _of(app, home) as (held, shape):
        report = send_again(app, held, shape, connection, named=named, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps(report, indent=1))
    else:
        _show(report, dry_run=dry_run)


def send_again(
    app: Application,
    home: Home,
    shape: Shape,
    connection: Connection,
    *,
    named: str | None = None,
    dry_run: bool = False,
) -> dict[str, int]:
    """Send dead letters again; return the number of sent records, and the numbers of the others by reason.

    Args: named: send only dead letters of this region or processor. dry_run: send nothing.
    Raises: DefinitionError: `REGION_UNKNOWN`. LogError.
    """
    place = Storage(home=home, connection=connection)
    app = with_recorded_topics(app, home.store)
    sources = {name: source.topic.log for name, source in app.sources.items()}
    letters: list[Letter] = []
    only = None if named is None else shape.require_region(named)
    for unit in shape.units:
        if unit.dead_letters is None or only not in (None, unit.name):
            continue
        record = home.store.region(unit.name)
        added = 0 if record is None else places_of_keyed_step(record.fingerprint)
        letters += read_letters(
            place, unit.dead_letters, unit.name, sources, stamped=unit.stamps_letters, added=added,
            covered=partial(_covered, shape, unit.name, place, app.spare_checkpoints),
        )  # fmt: skip
    notes = Notes(place)
    kinds = count_by_kind(letters)
    found: dict[str, int] = {
        "results": kinds["result"],
        "rows_of_files": kinds["file"],
        "rows_of_functions": kinds["row"],
        **{kind: kinds[kind] for kind in _REFUSED},
        "cancelled": kinds["cancelled"],
        "foreign": kinds["foreign"],
        "unknown": kinds["unknown"],
        "gone": 0,
        "refused": 0,
    }
    if dry_run:
        todo = letters_to_send(letters, notes.read())
        found["foreign"] += notes.foreign
        return {"waiting": len(todo), **found}
    notes.prepare()
    place.hold((notes.topic,))  # without its notes, everything would be sent again
    sender = RedriveSender(connection, notes, home.identity)
    # After the fence no other process sends, and all sent records are noted.
    notes.begin()
    todo, sent = letters_to_send(letters, notes.read()), 0
    found["foreign"] += notes.foreign
    for i in range(0, len(todo), AT_ONCE):
        records, gone = originals(todo[i : i + AT_ONCE], connection)
        sent += sender.send(records)
        found["gone"] += gone
    found["refused"] = sender.refused
    return {"sent": sent, **found}


def _covered(shape: Shape, name: str, place: Storage, spare: int) -> OffsetFrontier:
    """Return the input of a live region that no recovery makes it read again.

    Args: name: of the region; batches have none. spare: how many of its newest checkpoints may be damaged.
    """
    region = next((each for each in shape.regions if each.name == name), None)
    known = () if region is None else RegionAtRest(region, place).checkpoints()
    return known[-1 - spare].reads_from if len(known) > spare else EMPTY


@contextmanager
def _of(app: Application, home: Path | None) -> Iterator[tuple[Home, Shape]]:
    with home_of(app, home) as (held, _runs):
        yield held, recorded_shape(held.data)


#: The kinds of letters that must not be sent again, or not yet: see `refusals`.
_REFUSED: tuple[LetterKind, ...] = ("had_effect", "may_change", "uncovered", "elsewhere")
_MEANING = {
    "waiting": "records would be sent again",
    "sent": "records were sent again",
    "results": "are results that their topic or table refused: fix that (max.message.bytes), then use falkirk rollback",
    "rows_of_files": "are rows of files: fix them, and put them into the folder in a file with another name",
    "rows_of_functions": "are rows on which a function failed, not records of a source: use falkirk rollback",
    "had_effect": "come from records that may have had another effect",
    "may_change": "may become results in a replay",
    "uncovered": "may become results in a replay, until a checkpoint covers their records",
    "elsewhere": "come from topics on other clusters",
    "cancelled": "were made invalid by a rollback: their records were processed again",
    "gone": "can't be sent: the original has expired, and the dead letter has only part of it",
    "refused": "are larger than their topic now permits",
    "foreign": "were not written by this application: they are ignored",
    "unknown": "do not come from a source of this application",
}


def refusals(report: dict[str, int]) -> Iterator[GuaranteeError]:
    """Yield why some dead letters must not be sent again. Args: report: of `send_again`."""
    if count := report["had_effect"]:
        yield REDRIVE_REFUSED_EFFECT.error(count=count)
    if count := report["may_change"]:
        yield REDRIVE_REFUSED_REPLAY.error(count=count)
    if count := report["uncovered"]:
        yield REDRIVE_REFUSED_CHECKPOINT.error(count=count)
    if count := report["elsewhere"]:
        yield REDRIVE_REFUSED_CLUSTER.error(count=count)


def _show(report: dict[str, int], *, dry_run: bool) -> None:
    table = Table(show_header=False)
    table.add_column(justify="right")
    table.add_column()
    for name, number in report.items():
        if number or name in ("waiting", "sent"):
            table.add_row(f"{number:,}", _MEANING[name])
    Terminal().print(table)
    for error in refusals(report):
        click.echo(f"[{error.condition}] {error}", err=True)
    if dry_run:
        click.echo("Nothing was sent.", err=True)
