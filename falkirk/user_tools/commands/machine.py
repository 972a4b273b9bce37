"""The commands about this machine: `falkirk setup`, `falkirk kafka`, `falkirk doctor` and `falkirk jars`."""

import sys

import click
from rich.text import Text

from falkirk.errors import MachineError
from falkirk.platform.terminal import Terminal
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup import jars as jvm_jars
from falkirk.spark_setup.doctor import check_machine
from falkirk.spark_setup.module import application_jars, module_jar

_console = Terminal()


@click.command()
def setup() -> None:
    """Download and compile the JVM parts.

    These are the JVM dependencies, the Java module and the class archives, which make JVMs start faster. The command
    keeps parts that exist.
    """
    for kind in jvm_jars.JAR_KINDS:
        jvm_jars.resolved(kind)
    _console.print(f"JVM dependencies in {jvm_jars.jars_entry()}", soft_wrap=True)
    _console.print(f"Java module in {module_jar()}", soft_wrap=True)
    from falkirk.user_tools.commands.training import make_archives  # needs Spark

    try:
        _console.print(f"class archives in {make_archives()}", soft_wrap=True)
    except MachineError as error:
        if error.condition != "ARCHIVE_NOT_MADE":
            raise
        _console.print(Text.assemble((error.condition, "yellow"), f" {error}"), soft_wrap=True)


@click.group()
def kafka() -> None:
    """Manage a broker on this machine for trials. Do not use it in production."""


@kafka.command()
def start() -> None:
    """Start the broker, or print its address if it is running."""
    running = local_broker.start()
    _console.print(f"broker at {running.bootstrap} (pid {running.pid}, data in {running.folder})", soft_wrap=True)


@kafka.command()
def stop() -> None:
    """Stop the broker and keep its data."""
    _console.print("stopped" if local_broker.stop() else "the broker was not running")


@kafka.command()
def status() -> None:
    """Print whether the broker runs and answers. The exit code is 1 if it does not."""
    running = local_broker.status()
    if running is None:
        _console.print("not running")
        sys.exit(1)
    answers = running.answers()
    _console.print(f"{running.bootstrap} (pid {running.pid}) {'answers' if answers else 'does not answer'}")
    sys.exit(0 if answers else 1)


@click.command()
@click.option("--kafka", metavar="HOST:PORT", help="Also check whether this broker answers.")
@click.option(
    "--secure", metavar="FILE", help="Also check this file with the secret of a cluster, for `falkirk run --secure`."
)
@click.option("--home", metavar="ADDRESS", help="Also check whether this home in an object store or HDFS can be read.")
def doctor(kafka: str | None, secure: str | None, home: str | None) -> None:
    """Check that this machine has everything that a run needs. The exit code is 1 if something is missing."""
    findings = check_machine(kafka, secure=secure, home=home)
    for finding in findings:
        well = ("note ", "yellow") if finding.is_advice else ("ok   ", "green")
        sign = well if finding.ok else ("fix  ", "red")
        _console.print(Text.assemble(sign, f"{finding.name}: {finding.detail}"), soft_wrap=True)
        if finding.fix and (finding.is_advice or not finding.ok):
            _console.print(f"     {finding.fix}", soft_wrap=True)
    sys.exit(0 if all(f.ok for f in findings) else 1)


@click.command()
def jars() -> None:
    """Print the paths of the jars, separated by commas.

    These are the JVM dependencies and Falkirk's Java module. For example:

    \b
    spark-submit --jars "$(falkirk jars)" app.py
    """
    click.echo(",".join(str(path) for path in application_jars()))
