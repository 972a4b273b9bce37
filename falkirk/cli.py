"""The command-line interface of Falkirk."""

import json
import sys
from pathlib import Path

import click

from falkirk.declare.load import load_application
from falkirk.platform import private
from falkirk.platform.terminal import Terminal
from falkirk.recovery.ownership.lease import LASTS_S, lease_s
from falkirk.runtime.supervision.settings import RunSettings
from falkirk.spark_setup.secure import secure_option_value
from falkirk.spark_setup.submitted import add_py_files, spark_conf
from falkirk.user_tools.commands.group import LazyGroup, RunCommand
from falkirk.user_tools.commands.options import (
    broker_option,
    file_argument,
    home_option,
    json_option,
    local_option,
    master_option,
    running_broker_option,
    secure_option,
)
from falkirk.user_tools.commands.run import run_in_terminal

#: The modules of commands. `falkirk run` starts sooner without them: they import Spark, Arrow and the store.
_ELSEWHERE = {
    **dict.fromkeys(("doctor", "jars", "kafka", "setup"), "falkirk.user_tools.commands.machine"),
    **dict.fromkeys(("history", "rollback"), "falkirk.user_tools.commands.rollback"),
    **dict.fromkeys(("disown", "gc", "stop"), "falkirk.user_tools.commands.running"),
    "dashboard": "falkirk.user_tools.commands.dashboard_command",
    "init": "falkirk.user_tools.commands.init",
    "list": "falkirk.user_tools.commands.homes:homes",
    "logs": "falkirk.user_tools.commands.logs",
    "peek": "falkirk.user_tools.commands.peek",
    "redrive": "falkirk.user_tools.commands.redrive",
    "state": "falkirk.user_tools.commands.state",
    "status": "falkirk.user_tools.commands.status",
    "verify": "falkirk.user_tools.commands.verify",
    "why": "falkirk.user_tools.commands.why",
}


@click.group(cls=LazyGroup, elsewhere=_ELSEWHERE, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="falkirk")
@click.pass_context
def main(context: click.Context) -> None:
    """Run Spark pipelines that publish every result exactly once and within milliseconds, even after a failure.

    FILE is a Python file with an application. `falkirk init shop` makes a first one. Most commands have an option
    --local: they then use a broker on this machine, which `falkirk run FILE --local` starts.
    """
    context.with_resource(private.entered())


@main.command(cls=RunCommand)
@file_argument
@broker_option
@local_option
@home_option
@master_option
@secure_option
@click.option("--create-topics", is_flag=True, help="Create missing topics of sources and sinks; --local does so too.")
@click.option(
    "--force",
    is_flag=True,
    help="Start although a checkpoint is damaged and published results depend on it. Later results may then not fit "
    "the published ones.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Process the input that is in the sources now, publish and save everything, and end. After an interruption, "
    "start it again: it then processes the rest of the same input.",
)
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Serve /metrics for Prometheus, /health and /ready; by default only for this machine.",
)
@click.option(
    "--dashboard",
    metavar="[[HOST:]PORT]",
    is_flag=False,
    flag_value="",
    help="Serve a page that shows the application live; by default at 127.0.0.1:8350.",
)
@click.option(
    "--standby/--no-standby", default=None,
    help="Keep a second Spark application ready; by default if the machine has memory and a CPU core to spare.",
)  # fmt: skip
@click.option(
    "--wait", is_flag=True,
    help="While another process runs the application, wait, and take over when that process dies or ends.",
)  # fmt: skip
@click.option(
    "--lease", type=float, default=LASTS_S, show_default=True, metavar="SECONDS",
    help="With --wait: another process takes over after this time without a sign of life of this one.",
)  # fmt: skip
@click.option("--conf", "settings", multiple=True, metavar="NAME=VALUE", help="A Spark setting; may be repeated.")
@click.option("--jars", metavar="JAR,…", help="Jars for Spark's class path.")
@click.option(
    "--packages", metavar="GROUP:ARTIFACT:VERSION,…", help="Packages that Spark downloads, with their dependencies."
)
@click.option("--py-files", metavar="FILE,…", help="Python files (.py, .zip) that the application imports.")
def run(
    file: Path, broker: str | None, local: bool, home: Path | None, master: str | None, secure: str | None,
    create_topics: bool, force: bool, once: bool, metrics: str | None, dashboard: str | None, standby: bool | None,
    wait: bool, lease: float, settings: tuple[str, ...], jars: str | None, packages: str | None, py_files: str | None,
) -> None:  # fmt: skip
    """Run the application in FILE.

    It runs until Ctrl-C, or with --once until its input is processed. Each start resumes from the last checkpoint. If
    Spark dies or hangs, this command starts it again.
    """
    conf = spark_conf(settings, jars=jars, packages=packages, py_files=py_files)
    secure = secure_option_value(secure, master, conf)
    add_py_files(conf)
    app = load_application(file)
    if local:
        from falkirk.user_tools.commands.running import local_broker

        broker, create_topics = local_broker(), True
        click.echo(f"the broker is at {broker}", err=True)
    run_settings = RunSettings(
        file=file,
        kafka=broker,
        home=home,
        master=master,
        create_topics=create_topics,
        force=force,
        metrics=metrics,
        dashboard=dashboard,
        standby=standby,
        conf=conf,
        once=once,
        lease_s=lease_s(wait=wait, lease=lease),
        secure=secure,
    )
    run_in_terminal(app, run_settings)


@main.command()
@file_argument
@broker_option
@running_broker_option
@home_option
@master_option
@secure_option
@click.option("--why", "output", metavar="SINK", help="Explain the results of one sink: reasons, failures and costs.")
@click.option("--graph", type=click.Choice(["mermaid"]), help="Print the plan as a graph in this language.")
@click.option("--wait", is_flag=True, help="Plan for `falkirk run --wait`, where sinks are transactional by default.")
@json_option
def plan(
    file: Path, broker: str | None, local: bool, home: Path | None, master: str | None, secure: str | None,
    output: str | None, graph: str | None, wait: bool, as_json_: bool,
) -> None:  # fmt: skip
    """Show how FILE's application will run.

    It shows what Falkirk promises for each sink, when results are published, and why. Spark analyses the steps, but
    starts no query. Without a broker, the plan assumes two partitions for each topic, and a note says so.
    """
    from falkirk.plan.explain.preview import preview
    from falkirk.plan.explain.screen import WIDTH_MAX

    secure = secure_option_value(secure, master)
    app = load_application(file, leased=wait)
    if local:
        from falkirk.user_tools.commands.running import local_broker

        broker = local_broker()
    shown, terminal = preview(app, kafka=broker, home=home, master=master, secure=secure), Terminal()
    width = min(terminal.width, WIDTH_MAX) if terminal.is_terminal else WIDTH_MAX
    if as_json_:
        click.echo(json.dumps(shown.as_json(), indent=1))
    elif graph is not None:
        click.echo(shown.mermaid(), nl=False)
    else:
        details = shown.why(output, width) if output is not None else shown.renderable(width)
        terminal.print(details, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
