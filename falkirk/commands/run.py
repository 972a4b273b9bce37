"""Running: an application in this terminal, from `falkirk run` or from its own file."""

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from falkirk.declare.address import as_metrics_address
from falkirk.declare.application import Application
from falkirk.declare.load import LOADING
from falkirk.errors.conditions.commands import APPLICATION_MISSING_FILE
from falkirk.errors.location import caller
from falkirk.host.coordinator import Coordinator, RunSettings
from falkirk.system import private
from falkirk.system.signals import stop_on_signals
from falkirk.system.terminal import Terminal

if TYPE_CHECKING:
    from falkirk.host.metrics import Metrics

_console = Terminal(stderr=True)
#: Options that need a coordinator, or a session of Falkirk's own.
_OF_THE_COORDINATOR = ("master", "metrics", "standby")


def run_application(app: Application, **options: Any) -> None:
    """Run an application from its own file: `python app.py` or `spark-submit app.py`. See `App.run`."""
    frame = sys._getframe(2)
    if frame.f_globals.get("__name__") == LOADING:
        return  # the file is only being read for its declarations
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from falkirk.host.query import start_application  # needs Spark; the coordinator does not

        # Under spark-submit the session, and so the host, is this process.
        query = start_application(app, **{n: value for n, value in options.items() if n not in _OF_THE_COORDINATOR})
        stop_on_signals(query.stop)
        query.awaitTermination()
        return
    file = frame.f_globals.get("__file__")
    if file is None:
        raise APPLICATION_MISSING_FILE.error(where=caller())
    if options.get("home") is not None:
        options["home"] = Path(options["home"])
    settings = RunSettings(file=Path(file), **options)
    run_in_terminal(app, settings)


def run_in_terminal(app: Application, settings: RunSettings) -> None:
    """Run an application with a status line in the terminal. The exit code is 1 if a processor is down at the end."""
    metrics: Metrics | None = None
    with private.entered(), _console.status(f"{app.name}: starting Spark") as line, contextlib.ExitStack() as stack:

        def on_status(status: dict[str, Any]) -> None:
            line.update(status_line(app, status))
            if metrics is not None:
                metrics.take(status)

        coordinator = Coordinator(app, settings, say=_say, on_status=on_status)
        if settings.metrics is not None:
            metrics = _serve_metrics(coordinator, app.name, settings.metrics, stack)
        stop_on_signals(coordinator.stop)
        coordinator.run()
    _console.print(f"{app.name}: stopped; the next start resumes from here")
    if coordinator.down:
        _console.print(f"{', '.join(coordinator.down)} had failed for good; the next start tries again", soft_wrap=True)
        sys.exit(1)


def _say(text: str) -> None:
    _console.print(text, soft_wrap=True)


def _serve_metrics(coordinator: Coordinator, name: str, text: str, stack: contextlib.ExitStack) -> "Metrics":
    """Serve the metrics of a coordinator until the stack ends.

    Raises: DefinitionError: `ADDRESS_INVALID`. MachineError: `ADDRESS_TAKEN`.
    """
    from falkirk.host.metrics import Metrics  # a start without metrics needs no client of Prometheus
    from falkirk.host.metrics_server import MetricsServer

    metrics = Metrics(name, coordinator.pulse)
    server = stack.enter_context(MetricsServer(metrics, as_metrics_address(str(text))))
    _say(f"metrics are served at {server.url}/metrics")
    if server.is_open:
        _say(f"everybody who can reach {server.url} can read the names of topics and processors, and their counts")
    return metrics


def status_line(app: Application, status: dict[str, Any]) -> str:
    """Return what the regions of an application do, in one line."""
    parts = []
    for region in status["regions"]:
        age = region["checkpoint_age_s"]
        aged = f", checkpoint {age:.0f} s ago" if age is not None else ""
        detail = region.get("condition") or region["detail"]  # a whole error is too long for a line
        detail = f" ({detail})" if detail else ""
        dead = f", {region['dead_letters']:,} dead letters" if region["dead_letters"] else ""
        held = f", {region['suppressed']:,} replayed results dropped" if region["suppressed"] else ""
        parts.append(f"{region['name']} {region['state']}{aged}{held}{dead}{detail}")
    for other in status.get("foreign", ()):
        parts.append(
            f"{other['topic']} has {other['count']:,} records that this home did not write and ignores (partition "
            f"{other['partition']}, offset {other['offset']}: {other['reason']})"
        )
    return f"{app.name}: " + " · ".join(parts)
