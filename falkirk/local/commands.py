"""Commands about this machine: `falkirk setup`, `falkirk kafka` and `falkirk doctor`."""

import sys

import click
from rich.text import Text

from falkirk.errors import MachineError
from falkirk.local import broker as local_broker
from falkirk.local.doctor import diagnose
from falkirk.local.jars import resolved, spark_jars
from falkirk.terminal import Terminal

_console = Terminal()


@click.command()
def setup() -> None:
    """Fetch the JVM dependencies and make the class archives, unless this machine has them."""
    _console.print(f"JVM dependencies in {resolved()}", soft_wrap=True)
    from falkirk.local.training import make_archives  # needs Spark

    try:
        _console.print(f"class archives in {make_archives()}", soft_wrap=True)
    except MachineError as error:
        if error.condition != "ARCHIVE_NOT_MADE":
            raise
        _console.print(Text.assemble((error.condition, "yellow"), f" {error}"), soft_wrap=True)


@click.group()
def kafka() -> None:
    """A broker on this machine, to try things out (not for earnest use)."""


@kafka.command()
def start() -> None:
    """Start it, or say where it runs already."""
    running = local_broker.start()
    _console.print(f"broker at {running.bootstrap} (pid {running.pid}, data in {running.folder})", soft_wrap=True)


@kafka.command()
def stop() -> None:
    """Stop it; its data stays."""
    _console.print("stopped" if local_broker.stop() else "it was not running")


@kafka.command()
def status() -> None:
    """Say whether it runs and answers. Exit code 1 when not."""
    running = local_broker.status()
    if running is None:
        _console.print("not running")
        sys.exit(1)
    answers = running.answers()
    _console.print(f"{running.bootstrap} (pid {running.pid}) {'answers' if answers else 'does not answer'}")
    sys.exit(0 if answers else 1)


@click.command()
@click.option("--kafka", metavar="HOST:PORT", help="Also try to reach this broker.")
def doctor(kafka: str | None) -> None:
    """Look at what a run needs on this machine. Exit code 1 when something is missing."""
    findings = diagnose(kafka)
    for finding in findings:
        well = ("note ", "yellow") if finding.is_advice else ("ok   ", "green")
        sign = well if finding.ok else ("fix  ", "red")
        _console.print(Text.assemble(sign, f"{finding.name}: {finding.detail}"), soft_wrap=True)
        if finding.fix and (finding.is_advice or not finding.ok):
            _console.print(f"     {finding.fix}", soft_wrap=True)
    sys.exit(0 if all(f.ok for f in findings) else 1)


@click.command()
def jars() -> None:
    """Print the JVM dependencies, separated by commas: spark-submit --jars "$(falkirk jars)" app.py"""
    click.echo(",".join(str(path) for path in spark_jars()))
