"""The command-line interface of Falkirk."""

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from falkirk.app import App
from falkirk.check.command import check_run, memory_option
from falkirk.coordinator.commands import disown, gc, history, local_broker, rollback, stop
from falkirk.coordinator.load import broker_of, load_application
from falkirk.coordinator.signals import stop_on_signals
from falkirk.coordinator.supervise import SILENT_S, Coordinator, RunSettings, read_status
from falkirk.errors import DefinitionError, FalkirkError
from falkirk.local import private
from falkirk.local.commands import doctor, jars, kafka, setup
from falkirk.redrive.command import redrive
from falkirk.terminal import Terminal

_console = Terminal(stderr=True)


#: Commands that take a second to import; they are imported when they are called.
_LATER = {"bench": "falkirk.bench.command", "demo": "falkirk.demo.command"}


class _Group(click.Group):
    """Prints Falkirk's errors as one line, with exit code 1, instead of a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_LATER})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _LATER:
            command: click.Command = getattr(import_module(_LATER[cmd_name]), cmd_name)
            return command
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FalkirkError as error:
            _console.print(Text.assemble((error.condition, "red"), f" {error}"), soft_wrap=True)
            ctx.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="falkirk")
@click.pass_context
def main(context: click.Context) -> None:
    """Run Spark pipelines that survive any failure and publish every result exactly once, within milliseconds."""
    context.with_resource(private.entered())


main.add_command(setup)
main.add_command(kafka)
main.add_command(doctor)
main.add_command(jars)
main.add_command(check_run)
for command in (history, rollback, stop, gc, redrive, disown):
    main.add_command(command)


_file = click.argument("file", type=click.Path(path_type=Path))
_broker = click.option("--kafka", "broker", metavar="HOST:PORT", help="The broker; overrides the broker in FILE.")
_local = click.option("--local", is_flag=True, help="Start and use a broker on this machine, for trials.")
_home = click.option("--home", type=click.Path(path_type=Path), help="Folder for checkpoints and decisions.")
_master = click.option("--master", help="Spark master; by default local, with as many slots as the plan needs.")
_json = click.option("--json", "as_json_", is_flag=True, help="Print JSON.")


@main.command()
@_file
@_broker
@_local
@_home
@_master
@click.option("--create-topics", is_flag=True, help="Create missing topics of sources and sinks; --local does so too.")
@click.option("--force", is_flag=True, help="Start even if published results depend on a damaged checkpoint.")
def run(
    file: Path, broker: str | None, local: bool, home: Path | None, master: str | None, create_topics: bool, force: bool
) -> None:
    """Run the application in FILE until Ctrl-C."""
    app = load_application(file)
    if local:
        broker, create_topics = local_broker(), True
    settings = RunSettings(file=file, kafka=broker, home=home, master=master, create_topics=create_topics, force=force)
    run_in_terminal(app, settings)


@main.command()
@_file
@_broker
@_home
@_master
@click.option("--why", "output", metavar="OUTPUT", help="Explain one output: reasons, failures and costs.")
@click.option("--graph", type=click.Choice(["mermaid"]), help="Print the graph in this language.")
@_json
def plan(
    file: Path, broker: str | None, home: Path | None, master: str | None, output: str | None, graph: str | None,
    as_json_: bool,
) -> None:  # fmt: skip
    """Show how FILE's application will run: the promise for each output, when results are published, and why.

    Nothing is started. Without a broker, two partitions are assumed for each topic.
    """
    from falkirk.plan.preview import preview

    shown, terminal = preview(load_application(file), kafka=broker, home=home, master=master), Terminal()
    width = terminal.width if terminal.is_terminal else None
    if as_json_:
        click.echo(json.dumps(shown.as_json(), indent=1))
    elif graph is not None:
        click.echo(shown.mermaid(), nl=False)
    else:
        told = shown.why(output, width) if output is not None else shown.renderable(*([width] if width else []))
        terminal.print(told, soft_wrap=True)


@main.command()
@_file
@_home
@_json
def status(file: Path, home: Path | None, as_json_: bool) -> None:
    """Print the current state of the regions of FILE's application. The exit code is 1 if it does not run."""
    app = load_application(file)
    found = read_status((home or app.home) / "status.json") or {"at_s": 0.0, "regions": []}
    age_s = time.time() - found["at_s"]
    runs = age_s < SILENT_S and any(region["state"] != "stopped" for region in found["regions"])
    if as_json_:
        click.echo(json.dumps({"runs": runs, **found}, indent=1))
    elif runs:
        Terminal().print(_line(app, found).replace(" · ", "\n  ").replace(": ", ":\n  ", 1))
    else:
        click.echo(f"{app.name}: does not run")
    for region in () if as_json_ else found["regions"]:
        if region.get("condition"):
            Terminal().print(f"{region['name']} failed for good and stays down. {region['detail']}", soft_wrap=True)
    sys.exit(0 if runs else 1)


#: Conditions under which one sink is not judged, while the others are.
_UNJUDGED = ("NOT_CHECKABLE", "TOPIC_UNSEEN", "ROWS_CHANGED")


@main.command()
@_file
@_broker
@_local
@click.option("--sink", "names", multiple=True, help="Check only this sink; the option may be repeated.")
@memory_option
@_json
def check(file: Path, broker: str | None, local: bool, names: tuple[str, ...], memory: int, as_json_: bool) -> None:
    """Check the published results of FILE's application, using only its input and output.

    Run this command when no input waits. The exit code is 1 if a sink did not keep its promise or could not be judged.
    Outputs that can't be recomputed, such as those of a batch, are named. Use --sink to check the others alone.
    """
    from falkirk.check import Space, render, to_json
    from falkirk.judge import PROMISES, judge_sink
    from falkirk.local.spark import session

    app = load_application(file)
    unknown = sorted(set(names) - set(app.sinks))
    if unknown or not app.sinks:
        raise DefinitionError(
            "SINK_UNKNOWN",
            f"application {app.name!r} has no sink {', '.join(unknown)}."
            if unknown
            else f"application {app.name!r} has no sink.",
            hint=f"Its sinks are {', '.join(app.sinks)}." if app.sinks else "Declare a sink.",
            sinks=unknown,
        )
    connection, good = broker_of(app, local_broker() if local else broker), True
    spark = session(app.name, master="local[2]", shows_log=False)
    for sink in app.sinks.values():
        if names and sink.name not in names:
            continue
        try:
            verdict = judge_sink(app, sink, connection, spark, Space(memory_bytes=memory << 20))
        except FalkirkError as error:
            if error.condition not in _UNJUDGED:
                raise
            good = False
            if as_json_:
                found = {"sink": sink.name, "promise": sink.delivery.value, "guarantee": None, "reason": str(error)}
                click.echo(json.dumps({**found, "condition": error.condition}, indent=1))
            else:
                Terminal().print(f"sink {sink.name}: not judged: {error}", soft_wrap=True)
            continue
        good = good and verdict.satisfies(PROMISES[sink.delivery])
        if as_json_:
            click.echo(json.dumps({"sink": sink.name, "promise": sink.delivery.value, **to_json(verdict)}, indent=1))
        else:
            Terminal().print(f"sink {sink.name}, promised {sink.delivery}:", render(verdict))
    sys.exit(0 if good else 1)


@main.command()
@_file
@_broker
@_local
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    help="How many of the newest records of each source to use.",
)
@_json
def audit(file: Path, broker: str | None, local: bool, rows: int, as_json_: bool) -> None:
    """Run steps that should be deterministic twice, on a sample of FILE's sources, and compare the results.

    The second run partitions and orders the rows differently, as a failure might. The application may run meanwhile;
    this command does not affect it. The exit code is 1 if results differ although Falkirk inferred, or you asserted,
    that they do not.
    """
    from falkirk.audit import Outcome
    from falkirk.audit import audit as run_audit
    from falkirk.audit.told import as_json, findings_table
    from falkirk.local.spark import session

    app = load_application(file)
    connection = broker_of(app, local_broker() if local else broker)
    spark = session(app.name, master="local[2]", state_partitions=app.state_partitions, shows_log=False)
    found = run_audit(app, connection, spark, rows)
    if as_json_:
        click.echo(json.dumps([as_json(finding) for finding in found], indent=1))
    else:
        Terminal().print(findings_table(found))
    sys.exit(1 if any(finding.outcome is Outcome.DIFFERS for finding in found) else 0)


def run_in_terminal(app: App, settings: RunSettings) -> None:
    """Run an application with a status line in the terminal. The exit code is 1 if a processor is down at the end."""
    with private.entered(), _console.status(f"{app.name}: starting Spark") as line:
        coordinator = Coordinator(
            app,
            settings,
            say=lambda text: _console.print(text, soft_wrap=True),
            on_status=lambda s: line.update(_line(app, s)),
        )
        stop_on_signals(coordinator.stop)
        coordinator.run()
    _console.print(f"{app.name}: stopped; the next start resumes from here")
    if coordinator.down:
        _console.print(f"{', '.join(coordinator.down)} had failed for good; the next start tries again", soft_wrap=True)
        sys.exit(1)


def _line(app: App, status: dict[str, Any]) -> str:
    parts = []
    for region in status["regions"]:
        age = region["checkpoint_age_s"]
        aged = f", checkpoint {age:.0f} s ago" if age is not None else ""
        detail = region.get("condition") or region["detail"]  # a whole error is too long for a line
        detail = f" ({detail})" if detail else ""
        dead = f", {region['dead_letters']:,} dead letters" if region["dead_letters"] else ""
        held = f", {region['suppressed']:,} replayed results held back" if region["suppressed"] else ""
        parts.append(f"{region['name']} {region['state']}{aged}{held}{dead}{detail}")
    for other in status.get("foreign", ()):
        parts.append(
            f"{other['topic']} has {other['count']:,} records that this home did not write and ignores (partition "
            f"{other['partition']}, offset {other['offset']}: {other['reason']})"
        )
    return f"{app.name}: " + " · ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
