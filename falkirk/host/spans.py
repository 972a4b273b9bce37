"""Spans: epochs and recoveries as traces of OpenTelemetry, if it is installed and its environment says where to send.

The coordinator sends them, from the status that its hosts publish. It outlives Spark, so it knows when a recovery
began, and sends the spans of a host that has died. A collector never delays the host or Spark.
"""

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from falkirk.system.terminal import one_line

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

#: OpenTelemetry's own variables. One of them names the collector.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
#: The packages that send spans.
EXTRA = "falkirk[traces]"
_TEXT_MAX = 500


def is_wanted() -> bool:
    """Return whether the environment names a collector, and does not forbid OpenTelemetry."""
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not is_off and any(os.environ.get(name) for name in ENDPOINTS)


@contextlib.contextmanager
def exporting(application: str) -> "Iterator[Tracer]":
    """Send spans to the collector that the environment names; at the end, send those that are left.

    Raises: ModuleNotFoundError: `EXTRA` is not installed.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # A collector that is away is reported by its own monitoring, not in each line of this terminal.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": application}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield provider.get_tracer("falkirk", version("falkirk"))
    finally:
        provider.shutdown()


class Spans:
    """The spans of one application.

    An epoch is a span from its decision until it is complete. A recovery is one from the last report of a running
    processor until the next one: its restart, or the replacement of the Spark application.

    Args: since_s: epochs that were complete before this time are left out. A former coordinator has sent them.
    """

    def __init__(self, tracer: "Tracer", since_s: float | None = None) -> None:
        self._tracer, self._since_s = tracer, time.time() if since_s is None else since_s
        #: By processor: the greatest number of an epoch that was sent.
        self._sent: dict[str, int] = {}
        #: By processor: when a host last reported that it runs, and its restarts then.
        self._ran: dict[str, tuple[float, int]] = {}
        #: The processors that ran and have to recover, with the reason, as far as a host has reported it.
        self._away: dict[str, str] = {}
        #: Those of them whose Spark application was replaced.
        self._replaced: set[str] = set()
        self._pid: object = None

    def take(self, status: Mapping[str, Any]) -> None:
        """Take in a status that a host has published."""
        if status.get("pid") != self._pid:
            self._pid = status.get("pid")
            self._replaced |= set(self._ran)
            self._away = {name: self._away.get(name, "") for name in self._ran}
        for unit in status.get("regions", ()):
            self._take_unit(unit["name"], unit, float(status["at_s"]))
        for figures in status.get("figures", ()):
            for epoch in (figures.get("epochs") or {}).get("last", ()):
                self._take_epoch(figures["name"], epoch)

    def _take_unit(self, name: str, unit: Mapping[str, Any], at_s: float) -> None:
        ran_at_s, restarts = self._ran.get(name, (at_s, 0))
        is_running, now = unit.get("state") == "running", int(unit.get("restarts", 0))
        if name in self._ran and (not is_running or (name not in self._replaced and now > restarts)):
            told = one_line(str(unit.get("condition") or unit.get("detail") or ""))[:_TEXT_MAX]
            self._away[name] = told or self._away.get(name, "")
        if not is_running:
            return
        if name in self._away:
            self._send(
                "recovery", ran_at_s, at_s,
                processor=name, reason=self._away.pop(name), incarnation=int(unit.get("incarnation", 0)),
                replaced_application=name in self._replaced,
            )  # fmt: skip
        self._replaced.discard(name)
        self._ran[name] = at_s, now

    def _take_epoch(self, processor: str, epoch: Mapping[str, Any]) -> None:
        if epoch["made_at_s"] >= self._since_s and epoch["number"] > self._sent.get(processor, -1):
            self._sent[processor] = epoch["number"]
            self._send(
                "epoch", epoch["decided_at_s"], epoch["made_at_s"],
                processor=processor, epoch=epoch["number"], results=epoch["rows"], dead_letters=epoch["dead"],
            )  # fmt: skip

    def _send(self, name: str, began_s: float, ended_s: float, **attributes: Any) -> None:
        named = {f"falkirk.{key}": value for key, value in attributes.items()}
        span = self._tracer.start_span(f"{name} {attributes['processor']}", start_time=_ns(began_s), attributes=named)
        span.end(_ns(max(began_s, ended_s)))


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
