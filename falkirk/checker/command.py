"""The command `falkirk verify run`: checks the output of any job, given the places of its rows."""

import json
import sys
from pathlib import Path

import click
from rich.console import Group

from falkirk.checker.described import Described, check_described
from falkirk.checker.render import read_to_json, render, render_read, render_rules, rules_to_json, to_json
from falkirk.checker.rows import Reading
from falkirk.checker.rules import Increasing, NoGaps, Rule, Transitions, Unique
from falkirk.checker.secrets import refuse_password, setting
from falkirk.checker.spill import Space
from falkirk.checker.types import TYPES
from falkirk.checker.verdict import Guarantee, Verdict
from falkirk.platform.terminal import Terminal

_EXPECTED = {
    "exactly-once": Guarantee.EXACTLY_ONCE,
    "repeated": Guarantee.REPEATED_DELIVERY,
    "at-most-once": Guarantee.AT_MOST_ONCE,
    "at-least-once": Guarantee.AT_LEAST_ONCE,
}


memory_option = click.option(
    "--memory",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    metavar="MB",
    help="Approximate memory for rows. Rows that do not fit are written to a temporary folder.",
)


@click.command("run")
@click.option("--input", "inputs", multiple=True, metavar="PLACE", help="Where the input rows are; can be repeated.")
@click.option(
    "--output",
    "outputs",
    multiple=True,
    required=True,
    metavar="PLACE",
    help="Where the output rows are; can be repeated.",
)
@click.option("--key", metavar="COLUMNS", default="", help="The columns that rows are grouped by, separated by commas.")
@click.option(
    "--record-key",
    metavar="COLUMNS",
    default="",
    help="The columns that form the Kafka record's key in output topics. Without it, Kafka keys are not compared.",
)
@click.option("--model", metavar="MODEL", help="How outputs are computed from inputs. By default outputs equal inputs.")
@click.option("--final", is_flag=True, help="The output is a table that keeps only the last row of each key.")
@click.option(
    "--expect",
    type=click.Choice([*_EXPECTED, "consistent"]),
    default="exactly-once",
    show_default=True,
    help="The weakest result that gives exit code 0. "
    "`consistent`: every output is right for its position; the last ones may be missing.",
)
@click.option(
    "--increasing",
    multiple=True,
    metavar="COLUMN",
    help="A rule: the column increases strictly in the outputs of a key.",
)
@click.option("--no-gaps", multiple=True, metavar="COLUMN", help="A rule: the column increases by one.")
@click.option("--unique", multiple=True, metavar="COLUMN", help="A rule: no value occurs twice under a key.")
@click.option("--transitions", multiple=True, metavar="COLUMN:A>B,…", help="A rule: which value may follow which.")
@click.option("--ignore", multiple=True, metavar="COLUMN", help="Do not compare this column.")
@click.option("--decimal", is_flag=True, help="Read numbers with a fraction as decimals, not as floats.")
@click.option(
    "--type", "types", multiple=True, metavar="COLUMN=TYPE", help=f"The type of a column: {', '.join(TYPES)}."
)
@click.option(
    "--skip",
    multiple=True,
    metavar="PATTERN",
    help="Ignore these files in folders: they hold no rows; can be repeated.",
)
@click.option("--expired", is_flag=True, help="Check topics from which retention or compaction removed records.")
@click.option("--kafka", "broker", metavar="HOST:PORT", help="The broker of the topics.")
@click.option(
    "--client",
    multiple=True,
    metavar="OPTION=VALUE",
    help="An option of the Kafka client, by librdkafka's name; a secret as env:NAME or file:PATH.",
)
@memory_option
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False, exists=True), help="The folder for temporary files."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def check_run(
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    key: str,
    record_key: str,
    model: str | None,
    final: bool,
    expect: str,
    increasing: tuple[str, ...],
    no_gaps: tuple[str, ...],
    unique: tuple[str, ...],
    transitions: tuple[str, ...],
    ignore: tuple[str, ...],
    decimal: bool,
    types: tuple[str, ...],
    skip: tuple[str, ...],
    expired: bool,
    broker: str | None,
    client: tuple[str, ...],
    memory: int,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Check the output of any job against its input.

    The job may run on Flink, Spark or your own engine.

    A PLACE is kafka:TOPIC, a file of rows (.jsonl, .csv, .parquet), a folder of such files, or a table: URL#TABLE. To
    read a table's rows in the order of a column, write URL#TABLE:COLUMN. A field of a CSV file is text: "7" equals the
    number 7, and "7.0" does not.

    A MODEL is a list of aggregates, such as "count, sum(amount), name=max(price)": these are the columns of the outputs
    beside the key. It can also be distinct (the first row of each key), stateless (each row unchanged), or
    FILE.py:name, your own falkirk.checker.Model. If your model has a method record_key(output), the checker compares
    its return value (bytes or None) with the Kafka key.

    Run it when the job has processed all its input. The exit code is 1 if the output does not meet --expect or breaks a
    rule.
    """
    rules: list[Rule] = [Increasing(column) for column in increasing]
    rules += [NoGaps(column) for column in no_gaps]
    rules += [Unique(column) for column in unique]
    rules += [Transitions.of(text) for text in transitions]
    described = Described(
        inputs=inputs,
        outputs=outputs,
        keys=_columns(key),
        record_keys=_columns(record_key),
        model=model,
        rules=rules,
        final=final,
    )
    settings = {"bootstrap.servers": broker} if broker else {}
    for option in client:
        name, equals, value = option.partition("=")
        if not equals:
            raise click.BadParameter(f"{option!r} is not OPTION=VALUE.", param_hint="--client")
        settings[name] = setting(name, value)
    typed: dict[str, str] = {}
    for option in types:
        name, equals, value = option.rpartition("=")
        if not equals:
            raise click.BadParameter(f"{option!r} is not COLUMN=TYPE.", param_hint="--type")
        typed[name] = value
    for place in (*inputs, *outputs):
        refuse_password(place)
    reading = Reading(
        kafka=settings, decimal=decimal, ignored=frozenset(ignore), types=typed, skipped=skip, expired=expired
    )
    found = check_described(described, reading, space=Space(memory_bytes=memory << 20, folder=folder))
    if isinstance(found, Verdict):
        good = found.consistency.holds is True if expect == "consistent" else found.satisfies(_EXPECTED[expect])
        good = good and all(rule.holds for rule in found.rules)
        shown = json.dumps(to_json(found), indent=1) if as_json else render(found)
    else:
        good, read = all(rule.holds for rule in found), reading.sight.read()
        both = {"rules": rules_to_json(found), "read": read_to_json(read)}
        shown = json.dumps(both, indent=1) if as_json else Group(*render_read(read), render_rules(found))
    if isinstance(shown, str):
        click.echo(shown)
    else:
        Terminal().print(shown)
    sys.exit(0 if good else 1)


def _columns(text: str) -> list[str]:
    return [column.strip() for column in text.split(",") if column.strip()]
