"""The command-line interface of Falkirk."""

import json
import sys
import time
from pathlib import Path

import click

from falkirk.commands.group import LazyGroup
from falkirk.commands.options import broker_option, file_argument, home_option, json_option, local_option, master_option
from falkirk.commands.run import run_in_terminal, status_line
from falkirk.declare.load import load_application
from falkirk.host.coordinator import SILENT_S, RunSettings, read_status
from falkirk.system import private
from falkirk.system.terminal import Terminal

#: The modules of commands. `falkirk run` starts sooner without them: they import Spark, Arrow and the store.
_ELSEWHERE = {
    **dict.fromkeys(("doctor", "jars", "kafka", "setup"), "falkirk.commands.machine"),
    **dict.fromkeys(("history", "rollback"), "falkirk.commands.rollback"),
    **dict.fromkeys(("disown", "gc", "stop"), "falkirk.commands.running"),
    "redrive": "falkirk.commands.redrive",
    "verify": "falkirk.commands.verify",
}


@click.group(cls=LazyGroup, elsewhere=_ELSEWHERE, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="falkirk")
@click.pass_context
def main(context: click.Context) -> None:
    """Run Spark pipelines that publish every result exactly once, also after a failure, and with low latency."""
    context.with_resource(private.entered())


@main.command()
@file_argument
@broker_option
@local_option
@home_option
@master_option
@click.option("--create-topics", is_flag=True, help="Create missing topics of sources and sinks; --local does so too.")
@click.option("--force", is_flag=True, help="Start even if published results depend on a damaged checkpoint.")
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Serve /metrics for Prometheus, /health and /ready; by default on loopback.",
)
@click.option(
    "--standby/--no-standby", default=None,
    help="Keep a second Spark application ready; by default if the machine has memory and a processor to spare.",
)  # fmt: skip
def run(
    file: Path, broker: str | None, local: bool, home: Path | None, master: str | None, create_topics: bool,
    force: bool, metrics: str | None, standby: bool | None,
) -> None:  # fmt: skip
    """Run the application in FILE until Ctrl-C."""
    app = load_application(file)
    if local:
        from falkirk.commands.running import local_broker

        broker, create_topics = local_broker(), True
    settings = RunSettings(
        file=file,
        kafka=broker,
        home=home,
        master=master,
        create_topics=create_topics,
        force=force,
        metrics=metrics,
        standby=standby,
    )
    run_in_terminal(app, settings)


@main.command()
@file_argument
@broker_option
@home_option
@master_option
@click.option("--why", "output", metavar="OUTPUT", help="Explain one output: reasons, failures and costs.")
@click.option("--graph", type=click.Choice(["mermaid"]), help="Print the plan as a graph in this language.")
@json_option
def plan(
    file: Path, broker: str | None, home: Path | None, master: str | None, output: str | None, graph: str | None,
    as_json_: bool,
) -> None:  # fmt: skip
    """Show how FILE's application will run.

    It shows the promise for each output, when results are published, and why. Spark analyses the steps, but no query
    starts. Without a broker, two partitions are assumed for each topic.
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
@file_argument
@home_option
@json_option
def status(file: Path, home: Path | None, as_json_: bool) -> None:
    """Print the current state of the regions of FILE's application. The exit code is 1 if it does not run."""
    app = load_application(file)
    found = read_status((home or app.home) / "status.json") or {"at_s": 0.0, "regions": []}
    age_s = time.time() - found["at_s"]
    runs = age_s < SILENT_S and any(region["state"] != "stopped" for region in found["regions"])
    if as_json_:
        click.echo(json.dumps({"runs": runs, **found}, indent=1))
    elif runs:
        Terminal().print(status_line(app, found).replace(" · ", "\n  ").replace(": ", ":\n  ", 1))
    else:
        click.echo(f"{app.name}: does not run")
    for region in () if as_json_ else found["regions"]:
        if region.get("condition"):
            Terminal().print(f"{region['name']} failed for good and stays down. {region['detail']}", soft_wrap=True)
    sys.exit(0 if runs else 1)


if __name__ == "__main__":
    sys.exit(main())
