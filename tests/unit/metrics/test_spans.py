"""Spans of epochs and recoveries, from the statuses of hosts, to a collector that speaks OpenTelemetry's protocol."""

import gzip
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from falkirk.commands import run
from falkirk.host.spans import ENDPOINTS, Spans, exporting, is_wanted


def status(
    at_s: float, *units: dict[str, Any], pid: int = 1, epochs: tuple[dict[str, Any], ...] = ()
) -> dict[str, Any]:
    figures = [{"name": "rank", "epochs": {"last": list(epochs)}}, {"name": "sales", "epochs": None}]
    return {"at_s": at_s, "pid": pid, "regions": list(units), "figures": figures}


def unit(state: str = "running", **changed: Any) -> dict[str, Any]:
    return {"name": "sales", "state": state, "restarts": 0, "incarnation": 0, "detail": "", "condition": "", **changed}


def epoch(number: int) -> dict[str, Any]:
    return {"number": number, "rows": 3, "dead": 1, "decided_at_s": 10.0 + number, "made_at_s": 10.5 + number}


def spans_of(*statuses: dict[str, Any]) -> list[tuple[str, float, float, dict[str, Any]]]:
    """Return the name, the begin, the end and the attributes of each span after these statuses."""
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    spans = Spans(provider.get_tracer("test"), since_s=10.2)
    for found in statuses:
        spans.take(found)
    return [
        (s.name, (s.start_time or 0) / 1e9, (s.end_time or 0) / 1e9, dict(s.attributes or {}))
        for s in kept.get_finished_spans()
    ]


def test_each_epoch_is_one_span_whatever_statuses_repeat() -> None:
    first, second = status(20, epochs=(epoch(0), epoch(1))), status(21, epochs=(epoch(1), epoch(2)))
    found = spans_of(first, first, second, status(30, pid=2, epochs=(epoch(2),)))
    assert [(name, a["falkirk.epoch"]) for name, _, _, a in found] == [("epoch rank", n) for n in range(3)]
    assert found[1][1:3] == (11.0, 11.5)
    assert (found[1][3]["falkirk.results"], found[1][3]["falkirk.dead_letters"]) == (3, 1)


def test_epochs_of_a_former_coordinator_are_left_out() -> None:
    assert [a["falkirk.epoch"] for *_, a in spans_of(status(20, epochs=(epoch(-1), epoch(0))))] == [0]


def test_a_start_is_no_recovery() -> None:
    assert (
        spans_of(status(1, unit("starting")), status(9, unit()), status(10, unit()), status(11, unit("stopped"))) == []
    )


def test_a_restart_is_a_span_from_the_last_report_before_it() -> None:
    down = unit("restarting", restarts=1, detail="it lost\x1b[31m a task\nand more")
    ((name, began_s, ended_s, attributes),) = spans_of(
        status(1, unit()), status(2, unit()), status(3, down), status(4, unit("starting", restarts=1)),
        status(5, unit(restarts=1, incarnation=1)), status(6, unit(restarts=1, incarnation=1)),
    )  # fmt: skip
    assert (name, began_s, ended_s) == ("recovery sales", 2.0, 5.0)
    assert attributes["falkirk.incarnation"] == 1
    assert not attributes["falkirk.replaced_application"]
    assert "it lost" in attributes["falkirk.reason"]
    assert "\x1b" not in attributes["falkirk.reason"]


def test_a_restart_between_two_reports_is_a_recovery() -> None:
    ((_, began_s, ended_s, _),) = spans_of(status(1, unit()), status(2, unit(restarts=1)), status(3, unit(restarts=1)))
    assert (began_s, ended_s) == (1.0, 2.0)


def test_the_replacement_of_the_application_is_a_recovery_of_each_processor_that_ran() -> None:
    starting, other = unit("starting"), unit("starting", name="never ran")
    ((name, began_s, ended_s, attributes),) = spans_of(
        status(1, unit(restarts=3)), status(8, starting, other, pid=2), status(9, unit(), other, pid=2),
        status(10, unit(), unit(name="never ran"), pid=2), status(11, unit(), pid=2),
    )  # fmt: skip
    assert (name, began_s, ended_s) == ("recovery sales", 1.0, 9.0)
    assert attributes["falkirk.replaced_application"]


class Collector(HTTPServer):
    """A collector that keeps the requests of exporters."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taken)
        self.requests: list[ExportTraceServiceRequest] = []


class Taken(BaseHTTPRequestHandler):
    """Takes in one request."""

    server: Collector

    def do_POST(self) -> None:
        """Keep the spans of a request."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        plain = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        self.server.requests.append(ExportTraceServiceRequest.FromString(plain))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that the environment names."""
    server = Collector()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv(ENDPOINTS[1], f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    server.server_close()


def test_spans_reach_a_collector_before_the_end(collector: Collector) -> None:
    assert is_wanted()
    with exporting("shop") as tracer:
        Spans(tracer, since_s=0.0).take(status(20, epochs=(epoch(4),)))
    (sent,) = [spans for request in collector.requests for spans in request.resource_spans]
    assert {a.key: a.value.string_value for a in sent.resource.attributes}["service.name"] == "shop"
    (span,) = [span for scope in sent.scope_spans for span in scope.spans]
    assert (span.name, span.end_time_unix_nano - span.start_time_unix_nano) == ("epoch rank", 500_000_000)


def test_nothing_is_sent_unless_the_environment_names_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert not is_wanted()
    monkeypatch.setenv(ENDPOINTS[0], "http://127.0.0.1:1")
    assert is_wanted()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not is_wanted()


def test_without_opentelemetry_an_application_runs_and_says_so(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with ExitStack() as stack:
        assert run._export_spans("shop", stack) is None
    assert "falkirk[traces]" in capsys.readouterr().err
    assert collector.requests == []
