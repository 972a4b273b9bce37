"""Running: an application in this terminal, from `falkirk run` or from its own file."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from falkirk.declare.address import as_dashboard_address, as_metrics_address
from falkirk.declare.application import Application
from falkirk.declare.load import LOADING, broker_of
from falkirk.declare.place import local_home
from falkirk.errors.conditions.commands import APPLICATION_MISSING_FILE
from falkirk.errors.conditions.supervision import WAIT_UNSUITABLE
from falkirk.errors.location import caller
from falkirk.platform import private
from falkirk.platform.signals import stop_on_signals
from falkirk.platform.terminal import Terminal
from falkirk.recovery.ownership.lease import LASTS_S, lease_s
from falkirk.runtime.supervision.coordinator import Coordinator
from falkirk.runtime.supervision.settings import RunSettings
from falkirk.runtime.supervision.spans import Spans, exported
from falkirk.spark_setup.secure import secure_option_value
from falkirk.spark_setup.submitted import refuse_secrets
from falkirk.user_tools.commands.announced import Announced

if TYPE_CHECKING:
    from falkirk.runtime.supervision.metrics import Metrics
    from falkirk.runtime.supervision.web import Site
    from falkirk.user_tools.commands.dashboard.watch import DashboardWatch

_console = Terminal(stderr=True)
#: Options that need a coordinator, or a session of Falkirk's own.
_OF_THE_COORDINATOR = ("dashboard", "master", "metrics", "standby", "conf", "lease_s")


def run_application(app: Application, **options: Any) -> None:
    """Run an application from its own file: `python app.py` or `spark-submit app.py`. See `App.run`."""
    wait, lease = options.pop("wait", False), options.pop("lease", LASTS_S)
    frame = sys._getframe(2)
    if frame.f_globals.get("__name__") == LOADING:
        return  # the file is only being read for its declarations
    options["lease_s"] = lease_s(wait=wait, lease=lease)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        if wait:
            raise WAIT_UNSUITABLE.error(where=caller())
        from falkirk.runtime.supervision.query import start_application  # needs Spark; the coordinator does not

        # Under spark-submit the session, and so the host, is this process.
        query = start_application(app, **{n: value for n, value in options.items() if n not in _OF_THE_COORDINATOR})
        stop_on_signals(query.stop)
        query.awaitTermination()
        return
    file = frame.f_globals.get("__file__")
    if file is None:
        raise APPLICATION_MISSING_FILE.error(where=caller())
    if options.get("home") is not None:
        options["home"] = local_home(options["home"])
    refuse_secrets(options.get("conf") or ())
    options["secure"] = secure_option_value(options.get("secure"), options.get("master"), options.get("conf"))
    settings = RunSettings(file=Path(file), **options)
    run_in_terminal(app, settings)


def run_in_terminal(app: Application, settings: RunSettings) -> None:
    """Run an application with a status line in the terminal.

    The exit code is 1 if a processor is down at the end, or if input is left at the end of a run with `--once`.
    """
    metrics: Metrics | None = None
    watch: DashboardWatch | None = None
    spans: Spans | None = None

    announced = Announced(app.name)

    def on_status(status: dict[str, Any]) -> None:
        line.update(status_line(app, status))
        if (news := announced.line(status)) is not None:
            say(news)
        if metrics is not None:
            metrics.update(status)
        on_end(status)

    def on_end(status: dict[str, Any]) -> None:
        if spans is not None:
            spans.update(status)

    def say(text: str) -> None:
        _say(text)
        if watch is not None:
            watch.note(text)

    with private.entered(), _console.status(f"{app.name}: starting Spark") as line, contextlib.ExitStack() as stack:
        coordinator = Coordinator(app, settings, say=say, on_status=on_status, on_end=on_end)
        sites: list[Site] = []
        if settings.metrics is not None:
            metrics, sites = _serve_metrics(coordinator, app.name, settings, stack)
        spans = exported(app.name, stack, _say, quiet=True)
        if settings.dashboard is not None:
            watch = _serve_dashboard(app, settings, stack, sites)
        stop_on_signals(coordinator.stop)
        coordinator.run()
    if not _tell_end(app.name, coordinator, is_once=settings.once):
        sys.exit(1)


def _tell_end(name: str, coordinator: Coordinator, *, is_once: bool) -> bool:
    """Say how a run has ended; return whether it succeeded."""
    tell = partial(_console.print, soft_wrap=True)
    over, down = coordinator.over, coordinator.down
    stuck = {} if over is None else over.get("stuck", {})
    is_done = not down and not stuck and (over is not None or not is_once)
    if is_once and is_done:
        tell(f"{name}: all input from before the start is processed; the next start resumes from here")
    else:
        tell(f"{name}: stopped; the next start resumes from here")
    if is_once and over is None:
        tell("input from before the start is left; `falkirk run --once` continues with it")
    for reader, view in stuck.items():
        tell(f"{reader} has not processed its input: it reads the view {view}, which has no input and so no epoch")
    if down:
        tell(f"{', '.join(down)} had failed for good; the next start tries again")
    return is_done


def _say(text: str) -> None:
    _console.print(text, soft_wrap=True)


def _serve_metrics(
    coordinator: Coordinator, name: str, settings: RunSettings, stack: contextlib.ExitStack
) -> "tuple[Metrics, list[Site]]":
    """Serve the metrics of a coordinator until the stack ends; return them.

    If the dashboard has the same address, it serves them: the second value has their site.

    Raises: DefinitionError: `ADDRESS_INVALID`. MachineError: `ADDRESS_TAKEN`.
    """
    from falkirk.runtime.supervision.metrics import Metrics  # a start without metrics needs no client of Prometheus
    from falkirk.runtime.supervision.metrics_server import MetricsSite, metrics_server

    metrics, address = Metrics(name, coordinator.pulse), as_metrics_address(str(settings.metrics))
    if settings.dashboard and as_dashboard_address(str(settings.dashboard)) == address and address[1]:
        _say("metrics are served beside the dashboard, at /metrics")
        return metrics, [MetricsSite(metrics)]
    server = stack.enter_context(metrics_server(metrics, address))
    _say(f"metrics are served at {server.url}/metrics")
    if server.is_open:
        _say(f"everybody who can reach {server.url} can read {MetricsSite.public}")
    return metrics, []


def _serve_dashboard(
    app: Application, settings: RunSettings, stack: contextlib.ExitStack, sites: "list[Site]"
) -> "DashboardWatch":
    """Serve the dashboard until the stack ends. Raises: as `serve_dashboard`."""
    from falkirk.user_tools.commands.dashboard.serve import serve_dashboard  # it imports Spark

    return serve_dashboard(
        app, broker_of(app, settings.kafka), settings.home or app.home, str(settings.dashboard), stack,
        file=settings.file, say=_say, sites=sites,
    )  # fmt: skip


def status_line(app: Application, status: dict[str, Any]) -> str:
    """Return the state of an application's regions, in one line."""
    parts = []
    for region in status["regions"]:
        age = region["checkpoint_age_s"]
        aged = f", checkpoint {age:.0f} s ago" if age is not None else ""
        detail = region.get("condition") or region["detail"]  # a whole error is too long for a line
        detail = f" ({detail})" if detail else ""
        dead = f", {count_text(region['dead_letters'], 'dead letter')}" if region["dead_letters"] else ""
        held = f", {count_text(region['suppressed'], 'replayed result')} dropped" if region["suppressed"] else ""
        parts.append(f"{region['name']} {region['state']}{aged}{held}{dead}{detail}")
    parts += foreign_records(status)
    if (once := status.get("once")) is not None:
        parts.append(f"{count_text(once['left'], 'record')} left")
    return f"{app.name}: " + " · ".join(parts)


def foreign_records(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield a text for each topic with records of others, from the status of an application."""
    for other in status.get("foreign") or ():
        yield (
            f"{other['topic']} has {count_text(other['count'], 'record')} that this application did not write and "
            f"ignores (first: partition {other['partition']}, offset {other['offset']}, {other['reason']})"
        )


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural if need be."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
