"""The commands `falkirk verify`: check published results, or whether steps are deterministic."""

import json
import sys
from pathlib import Path

import click

from falkirk.checker.command import check_run, memory_option
from falkirk.declare.load import broker_of, load_application
from falkirk.errors import DefinitionError, FalkirkError
from falkirk.platform.terminal import Terminal
from falkirk.user_tools.commands.options import broker_option, file_argument, home_option, json_option, local_option
from falkirk.user_tools.commands.running import local_broker


@click.group()
def verify() -> None:
    """Check published results, or whether steps are deterministic."""


verify.add_command(check_run)

#: Conditions under which one sink is not judged, while the others are.
_UNJUDGED = (
    "NOT_CHECKABLE", "TOPIC_UNSEEN", "ROWS_CHANGED", "NEVER_RAN", "APPLICATION_CHANGED", "STATE_DAMAGED",
    "ROWS_UNREADABLE",
)  # fmt: skip


@verify.command()
@file_argument
@broker_option
@local_option
@home_option
@click.option("--sink", "names", multiple=True, help="Check only this sink; the option may be repeated.")
@click.option(
    "--partial", is_flag=True, help="Exit with 0 also if only a part of a sink could be checked and that part is right."
)
@memory_option
@json_option
def outputs(
    file: Path, broker: str | None, local: bool, home: Path | None, names: tuple[str, ...], partial: bool, memory: int,
    as_json_: bool,
) -> None:  # fmt: skip
    """Recompute the results of FILE's application, and compare.

    The results are recomputed from the input and compared with the published ones. Run the command when the
    application has processed all its input: results that are not published yet count as lost. The exit code is 1 if a
    sink did not keep its promise or could not be checked.

    The results and dead letters of live queries are recomputed from all records of their topics. The results of batches
    are checked epoch by epoch, from the inputs that the home has recorded. The command names the epochs that it can't
    recompute.
    """
    from falkirk.user_tools.commands.judge_outputs import OutputsJudge

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
    with OutputsJudge(app, connection, home=home, memory_bytes=memory << 20, partial=partial) as judge:
        for what in judge.outputs(names):
            try:
                found = judge.judge(what)
            except FalkirkError as error:
                if error.condition not in _UNJUDGED:
                    raise
                good = False
                if as_json_:
                    said = {**what.as_dict(), "guarantee": None, "reason": str(error), "condition": error.condition}
                    click.echo(json.dumps(said, indent=1))
                else:
                    Terminal().print(f"{what.title}: not checked: {error}", soft_wrap=True)
                continue
            good = good and found.is_kept
            if as_json_:
                click.echo(json.dumps({**what.as_dict(), **found.as_dict}, indent=1))
            else:
                Terminal().print(f"{what.title}, promised {what.promise}:", found.shown)
    sys.exit(0 if good else 1)


@verify.command()
@file_argument
@broker_option
@local_option
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    help="How many of the newest records of each source to use.",
)
@json_option
def determinism(file: Path, broker: str | None, local: bool, rows: int, as_json_: bool) -> None:
    """Rerun steps that should be deterministic, and compare.

    These are the steps that Falkirk treats as deterministic. They run twice on a sample of FILE's sources. The
    second run partitions and orders the rows differently, as a failure might. The application may run meanwhile; this
    command does not affect it. The exit code is 1 if results differ although Falkirk inferred, or you declared, that
    they do not.
    """
    from falkirk.spark_setup.spark import spark_session
    from falkirk.user_tools.determinism_check import AuditOutcome
    from falkirk.user_tools.determinism_check import audit as run_audit
    from falkirk.user_tools.determinism_check.shown import finding_values, findings_table

    app = load_application(file)
    connection = broker_of(app, local_broker() if local else broker)
    spark = spark_session(app.name, master="local[2]", state_partitions=app.state_partitions, shows_log=False)
    found = run_audit(app, connection, spark, rows)
    if as_json_:
        click.echo(json.dumps([finding_values(finding) for finding in found], indent=1))
    else:
        Terminal().print(findings_table(found))
    sys.exit(1 if any(finding.outcome is AuditOutcome.DIFFERS for finding in found) else 0)
