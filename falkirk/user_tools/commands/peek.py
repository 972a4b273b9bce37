"""The command peek: the last records of a topic of an application, and which of its units wrote each."""

import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from falkirk.declare.load import broker_of, load_application
from falkirk.errors.conditions.commands import TOPIC_NOT_OURS_PEEK
from falkirk.errors.conditions.kafka_client import TOPIC_MISSING
from falkirk.kafka_client.signing import RejectedHeader, VerifiedHeader
from falkirk.plan.patterns import with_recorded_topics
from falkirk.plan.requests import bound
from falkirk.runtime.spark.context import Storage
from falkirk.theory.delivery import input_records
from falkirk.user_tools.commands.epoch_records import UnknownEpoch, epoch_records
from falkirk.user_tools.commands.history.application import recorded_shape
from falkirk.user_tools.commands.options import json_option
from falkirk.user_tools.commands.printing import output
from falkirk.user_tools.commands.records import FoundRecord, TopicRecords, as_text, record_time, shortened
from falkirk.user_tools.commands.running import home_to_read, local_broker, of_application
from falkirk.user_tools.commands.shown_values import ShownValues
from falkirk.user_tools.commands.written import Writer, topic_named, writers_of

#: So many characters of a key and of an origin are shown at most, and of a value at least.
_KEY_MAX, _FROM_MAX, _VALUE_MIN = 40, 60, 20


@click.command()
@of_application
@click.argument("topic")
@click.option("-n", "--number", type=click.IntRange(min=1), default=10, show_default=True, help="How many records.")
@click.option("--from-beginning", is_flag=True, help="Show the oldest records instead of the newest.")
@json_option
def peek(
    file: Path, broker: str | None, local: bool, home: Path | None, topic: str, number: int, from_beginning: bool,
    as_json_: bool,
) -> None:  # fmt: skip
    """Show the last records of a topic of FILE's application.

    TOPIC is a topic that the application reads or writes, internal ones included, or the name of a source or sink.
    `sink:NAME` is the topic of a sink, if another cluster has a topic of that name too.
    The command shows what readers of committed records see. Times are those of the records, in the time zone of this
    machine. Avro is shown as JSON, by the schema that the application declares or that the registry has for the id in
    the value.

    If the application writes the topic, each line names the region or batch that wrote the record, the number of its
    incarnation, and the input record or epoch that it comes from. Records of other writers are foreign, with the
    reason. In a topic of `fk.EpochTopic`, the epoch of a record is unknown if Kafka no longer has the note about it.
    `falkirk why` explains one record: paste it from the first column. In a narrow terminal, the table has no
    column for the input record.
    """
    app = load_application(file)
    connection = broker_of(app, local_broker() if local else broker)
    with home_to_read(app, home) as (held, _):
        shape = recorded_shape(held.data)
        app = bound(with_recorded_topics(app, held.store), held.identity)
        writers = writers_of(app, shape)
        log = topic_named(app, writers, topic)
        if log is None:
            names = sorted({*map(str, writers), *(source.topic.topic for source in app.sources.values())})
            raise TOPIC_NOT_OURS_PEEK.error(app=app.name, topic=topic, names=", ".join(names))
        place = Storage(home=held, connection=connection)
        by_epochs = epoch_records(app, writers, place)
        records = TopicRecords(place, ShownValues(app, shape.layout.held).text, by_epochs)
        if not records.exists(log):
            raise TOPIC_MISSING.error(topic=repr(str(log)), advice="The application creates it when it needs it.")
        found = records.first(log, number) if from_beginning else records.last(log, number)
    writer = writers.get(log)
    if as_json_:
        click.echo(json.dumps([_as_json(each, writer) for each in found], indent=1))
        return
    out = output()
    if found:
        out.print(_table(found, writer, out.width))
    else:
        click.echo(f"{log} has no records.", err=True)


def _as_json(found: FoundRecord, writer: Writer | None) -> dict[str, Any]:
    if writer is None:
        return found.as_json()
    if isinstance(found.writer, RejectedHeader):
        return {**found.as_json(), _without_writer(found.writer): found.writer.text}
    numbers = found.writer.numbers
    stamp = {"incarnation": found.writer.incarnation, "stamp": list(numbers), "signed": found.writer.signed}
    return {**found.as_json(), "unit": writer.unit, **stamp}


def _table(found: list[FoundRecord], writer: Writer | None, width: int) -> Table:
    """Return records as a table. The value gets the room that the other columns leave.

    If that is too little, the column "from" is left out: `falkirk why` shows the same for one record.
    """
    rows = [[_place(each), record_time(each.record.timestamp_ms), _key(each.record.key)] for each in found]
    names = ["record", "time", "key"]
    if writer is not None:
        rows = [[*row, *_written(each, writer)] for row, each in zip(rows, found, strict=True)]
        names += ["written by", "from"]
    widths = [max(len(name), *(len(row[place]) for row in rows)) for place, name in enumerate(names)]
    if writer is not None:
        widths[-1] = min(widths[-1], _FROM_MAX)
    if writer is not None and width - _taken(widths) < _VALUE_MIN:
        names, widths, rows = names[:-1], widths[:-1], [row[:-1] for row in rows]
    table, room = Table(), width - _taken(widths)
    for name, least in zip(names, widths, strict=True):
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=least, max_width=least)
    table.add_column("value", no_wrap=True, overflow="ellipsis")
    for row, each in zip(rows, found, strict=True):
        table.add_row(*row, shortened(each.text, max(_VALUE_MIN, room)))
    return table


def _taken(widths: list[int]) -> int:
    """Return the characters of a line that columns and the borders of the table take."""
    return sum(widths) + 3 * len(widths) + 4


def _place(found: FoundRecord) -> str:
    """Return the place of a record as `falkirk why` takes it."""
    return f"{found.at.topic}/{found.record.partition}@{found.record.offset}"


def _key(key: bytes | None) -> str:
    return "" if key is None else shortened(as_text(key), _KEY_MAX)


def _without_writer(reason: RejectedHeader) -> str:
    """Return whether a record is that of another program, or nobody knows, as a word."""
    return "unknown" if isinstance(reason, UnknownEpoch) else "foreign"


def _written(found: FoundRecord, writer: Writer) -> tuple[str, str]:
    """Return the writer of a record, and its input record."""
    if isinstance(found.writer, RejectedHeader):
        return _without_writer(found.writer), found.writer.text
    void = "invalid: " if found.is_void else ""
    if writer.region is not None:
        return f"{void}{writer.unit} #{found.writer.incarnation}", _origin(found.writer, writer)
    return f"{void}{writer.unit}", _origin(found.writer, writer)


def _origin(header: VerifiedHeader, writer: Writer) -> str:
    _, partition, offset, *sub = header.numbers
    if writer.held is not None:
        return f"{writer.held}/{partition}@{offset}"
    if writer.region is None:
        return f"epoch {offset}" + (f", row {sub[0]}" if sub else "")
    sources = writer.region.sources
    causes = input_records(header.numbers, joins=len(writer.region.joined))
    return " and ".join(f"{sources[s]}/{p}@{o}" for (s, p), o in causes if s < len(sources))
