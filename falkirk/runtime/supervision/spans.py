"""Spans: sends the work of an application as traces of OpenTelemetry, if its environment names a collector.

A host records spans and publishes them in its status (`falkirk/platform/traced.py`), and the coordinator sends them. It
outlives Spark, so it sends the spans of a host that has died, and knows how long its processors were away. A collector
never delays a host or Spark, and the end of an application only for three seconds.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from falkirk.platform.terminal import one_line

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

#: OpenTelemetry's own variables. One of them names the collector.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
#: The protocols that Falkirk can send: the module of each one's exporter, and the extra with its packages.
_EXPORTERS = {
    "http/protobuf": ("opentelemetry.exporter.otlp.proto.http", "falkirk[traces]"),
    "grpc": ("opentelemetry.exporter.otlp.proto.grpc", "falkirk[traces-grpc]"),
}
_DEFAULT = "http/protobuf"
#: How many epochs are remembered, because their releases belong to their traces.
_EPOCHS_MAX = 500
_TEXT_MAX = 500


def is_wanted() -> bool:
    """Return whether the environment names a collector, and does not forbid OpenTelemetry or traces."""
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    return not is_off and "otlp" in exporters.split(",") and any(os.environ.get(name) for name in ENDPOINTS)


def hindrance() -> str:
    """Return the reason why spans can't be sent, with a remedy; empty if they can. It imports nothing."""
    name, protocol = _protocol()
    if protocol not in _EXPORTERS:
        return f"{name} is {protocol!r}, and Falkirk speaks {' and '.join(map(repr, _EXPORTERS))} alone"
    module, extra = _EXPORTERS[protocol]
    try:
        missing = find_spec("opentelemetry.sdk") is None or find_spec(module) is None
    except ModuleNotFoundError:  # of a package around it
        missing = True
    if missing:
        return f"`pip install '{extra}'` sends them over {protocol}"
    return ""


def _protocol() -> tuple[str, str]:
    """Return the variable that decides the protocol, and the protocol."""
    found = next(((name, value) for name in _PROTOCOLS if (value := os.environ.get(name))), None)
    return found or (_PROTOCOLS[1], _DEFAULT)


def is_recorded() -> bool:
    """Return whether a host should record spans: somebody wants them, and they can be sent."""
    return is_wanted() and not hindrance()


@contextlib.contextmanager
def exporting(application: str, close_s: float = 3.0) -> "Iterator[Tracer]":
    """Send spans to the collector that the environment names; at the end, send those that are left, within `close_s`.

    Raises: ImportError: the extra of the protocol is not installed. ValueError: OpenTelemetry does not accept its
        variables.
    """
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()
    if not _names_a_service():
        resource = resource.merge(Resource({"service.name": application}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # its own shutdown may take half a minute
    module, _ = _EXPORTERS[_protocol()[1]]
    exporter = import_module(f"{module}.trace_exporter").OTLPSpanExporter()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer("falkirk", version("falkirk"))
    finally:
        closing = threading.Thread(target=provider.shutdown, name="falkirk-spans", daemon=True)
        closing.start()
        closing.join(close_s)
        if closing.is_alive():
            # Otherwise its thread would send the spans again until OTEL_EXPORTER_OTLP_TIMEOUT.
            exporter.shutdown()


def _names_a_service() -> bool:
    attributes = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    return bool(os.environ.get("OTEL_SERVICE_NAME")) or any(a.strip().startswith("service.name=") for a in attributes)


def exported(
    application: str, stack: contextlib.ExitStack, say: Callable[[str], None], *, quiet: bool = False
) -> "Spans | None":
    """Send spans until the stack ends, if the environment names a collector and OpenTelemetry can send them.

    Args: say: receives the reason why none are sent. quiet: keep OpenTelemetry's messages off this process's log. The
        monitoring of a collector reports that it is away.
    """
    if not is_wanted():
        return None
    reason = hindrance()
    if not reason:
        if quiet:
            logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        try:
            return Spans(stack.enter_context(exporting(application)), application, say)
        except Exception as error:  # of OpenTelemetry: the application is worth more than its spans
            reason = f"{type(error).__name__}: {error}"
    say(f"no spans are sent, although the environment names a collector: {reason}")
    return None


class Spans:
    """Sends the spans of one application.

    Most spans come from its hosts. The coordinator adds outages of processors. An outage begins at the last report
    before a failure. It ends at the next report that the processor runs, perhaps in a new Spark application.

    Args: say: receives the reason if no further spans are sent.
    """

    def __init__(self, tracer: "Tracer", application: str, say: Callable[[str], None] = lambda text: None) -> None:
        self._tracer, self._application, self._say = tracer, application, say
        self._is_broken = False
        self._pid: object = None
        #: The number of the last span of the present host that was sent.
        self._sent = 0
        #: By processor and number: the contexts of the epochs that were sent last.
        self._epochs: dict[tuple[object, object], Context] = {}
        #: By processor: when a host last reported that it runs, and its restarts then.
        self._ran: dict[str, tuple[float, int]] = {}
        #: The processors that ran and are away, each with the condition of the error, as far as a host has reported it.
        self._away: dict[str, str] = {}
        #: Those of them whose Spark application was replaced.
        self._replaced: set[str] = set()
        #: The condition that ended the last host.
        self._ended_by = ""

    def update(self, status: Mapping[str, Any]) -> None:
        """Take in a status that a host has published. An error ends the spans, and not the application."""
        if status and not self._is_broken:
            try:
                self._take(status)
            except Exception as error:
                self._is_broken = True
                self._say(f"no further spans are sent: {type(error).__name__}: {error}")

    def _take(self, status: Mapping[str, Any]) -> None:
        if status.get("pid") != self._pid:
            self._pid, self._sent = status.get("pid"), 0
            self._replaced |= set(self._ran)
            self._away = {name: self._away.get(name) or self._ended_by for name in self._ran}
        self._ended_by = str((status.get("error") or {}).get("condition", ""))
        for unit in status.get("regions", ()):
            self._take_unit(unit["name"], unit, float(status["at_s"]))
        for span in status.get("spans", ()):
            if span["number"] > self._sent:
                self._sent = span["number"]
                self._send_recorded(span)

    def _take_unit(self, name: str, unit: Mapping[str, Any], at_s: float) -> None:
        ran_at_s, restarts = self._ran.get(name, (at_s, 0))
        is_running, now = unit.get("state") == "running", int(unit.get("restarts", 0))
        if unit.get("state") == "stopped":
            return
        if name in self._ran and (not is_running or (name not in self._replaced and now > restarts)):
            self._away[name] = str(unit.get("condition") or unit.get("error") or "") or self._away.get(name, "")
        if not is_running:
            return
        if name in self._away:
            attributes = {
                "processor": name, "incarnation": int(unit.get("incarnation", 0)),
                "replaced_application": name in self._replaced,
            }  # fmt: skip
            self._send("outage", ran_at_s, at_s, attributes, error=self._away.pop(name))
        self._replaced.discard(name)
        self._ran[name] = at_s, now

    def _send_recorded(self, span: Mapping[str, Any], parent: "Context | None" = None) -> None:
        name, attributes = str(span["name"]), span["attributes"]
        epoch = attributes.get("processor"), attributes.get("epoch")
        if name == "release":
            parent = self._epochs.get(epoch)
        began_s, ended_s = float(span["began_s"]), float(span["began_s"]) + float(span["took_s"])
        context = self._send(name, began_s, ended_s, attributes, error=span["error"] or None, parent=parent)
        for each in span["steps"]:
            self._send_recorded(each, context)
        if name == "epoch":
            self._epochs[epoch] = context
            if len(self._epochs) > _EPOCHS_MAX:
                del self._epochs[next(iter(self._epochs))]

    def _send(
        self, name: str, began_s: float, ended_s: float, attributes: Mapping[str, Any], *, error: str | None,
        parent: "Context | None" = None,
    ) -> "Context":  # fmt: skip
        """Send a span; return the context of its steps. Args: error: None: it succeeded. Empty: an unknown error."""
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        named = {f"falkirk.{k}": one_line(v)[:_TEXT_MAX] if isinstance(v, str) else v for k, v in attributes.items()}
        named["falkirk.application"] = self._application
        if error:
            named["error.type"] = error
        span = self._tracer.start_span(f"falkirk.{name}", parent, start_time=_ns(began_s), attributes=named)
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, error or None))
        span.end(_ns(max(began_s, ended_s)))
        return set_span_in_context(span)


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
