"""Spans from the statuses of hosts, to a collector that speaks OpenTelemetry's protocol, or hangs, or is away."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import falkirk as fk
from falkirk.platform.traced import Recorder, step
from falkirk.runtime.supervision.coordinator import Coordinator
from falkirk.runtime.supervision.settings import RunSettings
from falkirk.runtime.supervision.spans import ENDPOINTS, Spans, exported, exporting, is_recorded, is_wanted
from falkirk.user_tools.commands import run
from tests.collector import Collector, attributes, collecting
from tests.support import wait_until
from tests.unit.home.test_failures_across_hosts import Cluster, Impatient

VARIABLES = (
    *ENDPOINTS, "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_SERVICE_NAME",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_TIMEOUT",
)  # fmt: skip


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the variables of this machine."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that the environment names."""
    with collecting() as server:
        monkeypatch.setenv(ENDPOINTS[1], server.endpoint)
        yield server


def status(at_s: float, *units: dict[str, Any], pid: int = 1, **more: Any) -> dict[str, Any]:
    return {"at_s": at_s, "pid": pid, "regions": list(units), **more}


def unit(state: str = "running", **changed: Any) -> dict[str, Any]:
    return {"name": "sales", "state": state, "restarts": 0, "incarnation": 0, "detail": "", "condition": "", **changed}


def recorded(number: int, name: str = "epoch", error: str = "", steps: Any = (), **noted: Any) -> dict[str, Any]:
    """Return a span as a host publishes it."""
    times = {"began_s": 10.0 + number, "took_s": 0.5}
    return {"number": number, "name": name, **times, "error": error, "attributes": noted, "steps": [*steps]}


def sent(*statuses: dict[str, Any]) -> list[ReadableSpan]:
    """Return the spans after these statuses, in the order of their ends."""
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    said: list[str] = []
    spans = Spans(provider.get_tracer("test"), "shop", said.append)
    for found in statuses:
        spans.update(found)
    assert not said
    return [*kept.get_finished_spans()]


def outages(*statuses: dict[str, Any]) -> list[tuple[float, float, dict[str, Any]]]:
    """Return the begin, the end and the attributes of each outage after these statuses."""
    found = [span for span in sent(*statuses) if span.name == "falkirk.outage"]
    assert all(not span.status.is_ok for span in found)
    return [((s.start_time or 0) / 1e9, (s.end_time or 0) / 1e9, dict(s.attributes or {})) for s in found]


def test_each_span_of_a_host_is_sent_once_whatever_statuses_repeat() -> None:
    first, second = recorded(1, epoch=0), recorded(2, epoch=1)
    found = sent(
        status(20, spans=[first]), status(21, spans=[first, second]), status(22, spans=[second]), {},
        status(30, pid=2, spans=[recorded(1, epoch=2)]),
    )  # fmt: skip
    assert [(s.name, dict(s.attributes or {})["falkirk.epoch"]) for s in found] == [
        ("falkirk.epoch", n) for n in range(3)
    ]
    assert (found[1].start_time, found[1].end_time) == (12_000_000_000, 12_500_000_000)
    assert dict(found[0].attributes or {})["falkirk.application"] == "shop"
    assert all(s.status.is_unset for s in found)


def test_steps_and_the_release_of_an_epoch_belong_to_its_trace() -> None:
    steps = [recorded(0, "compute"), recorded(0, "write", steps=[recorded(0, "part")])]
    epoch, other = {"processor": "rank", "epoch": 4}, {"processor": "rank", "epoch": 5}
    found = sent(
        status(20, spans=[recorded(1, steps=steps, **epoch), recorded(2, **other)]),
        status(21, spans=[recorded(3, "release", **epoch)]),
    )
    by_name = {span.name: span for span in found if dict(span.attributes or {}).get("falkirk.epoch") != 5}
    parents = {
        name: next((n for n, s in by_name.items() if span.parent and s.context.span_id == span.parent.span_id), None)
        for name, span in by_name.items()
    }
    assert parents == {
        "falkirk.epoch": None, "falkirk.compute": "falkirk.epoch", "falkirk.write": "falkirk.epoch",
        "falkirk.part": "falkirk.write", "falkirk.release": "falkirk.epoch",
    }  # fmt: skip
    assert len({span.context.trace_id for span in found}) == 2  # the other epoch has its own


def test_an_error_is_the_status_of_its_span() -> None:
    (failed,) = sent(status(20, spans=[recorded(1, error="FUNCTION_FAILED", epoch=4, outcome="failed")]))
    assert (failed.status.is_ok, failed.status.description) == (False, "FUNCTION_FAILED")
    assert dict(failed.attributes or {})["error.type"] == "FUNCTION_FAILED"


def test_a_start_is_no_outage() -> None:
    assert (
        outages(status(1, unit("starting")), status(9, unit()), status(10, unit()), status(11, unit("stopped"))) == []
    )


def test_a_restart_is_an_outage_from_the_last_report_before_it_without_details() -> None:
    """Details quote records."""
    down = unit("restarting", restarts=1, detail="the value 'secret' is no number", error="CAST_INVALID_INPUT")
    ((began_s, ended_s, found),) = outages(
        status(1, unit()), status(2, unit()), status(3, down), status(4, unit("starting", restarts=1)),
        status(5, unit(restarts=1, incarnation=1)), status(6, unit(restarts=1, incarnation=1)),
    )  # fmt: skip
    assert (began_s, ended_s) == (2.0, 5.0)
    assert (found["falkirk.incarnation"], found["falkirk.replaced_application"]) == (1, False)
    assert found["error.type"] == "CAST_INVALID_INPUT"
    assert "secret" not in str(found)


def test_a_restart_between_two_reports_is_an_outage() -> None:
    ((began_s, ended_s, _),) = outages(status(1, unit()), status(2, unit(restarts=1)), status(3, unit(restarts=1)))
    assert (began_s, ended_s) == (1.0, 2.0)


def test_the_replacement_of_the_application_is_an_outage_of_each_processor_that_ran() -> None:
    starting, other = unit("starting"), unit("starting", name="never ran")
    ((began_s, ended_s, found),) = outages(
        status(1, unit(restarts=3)), status(2, error={"condition": "SESSION_LOST", "text": "…"}),
        status(8, starting, other, pid=2), status(9, unit(), other, pid=2),
        status(10, unit(), unit(name="never ran"), pid=2), status(11, unit(), pid=2),
    )  # fmt: skip
    assert (began_s, ended_s) == (1.0, 9.0)
    assert found["falkirk.replaced_application"]
    assert found["error.type"] == "SESSION_LOST"


def test_the_last_status_of_a_host_that_has_ended_has_its_spans(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "home", "a", commits=True)
    app, ends = fk.App("shop", kafka="127.0.0.1:1", home=tmp_path / "home"), list[dict[str, Any]]()
    settings = RunSettings(file=Path(__file__))
    coordinator = Coordinator(app, settings, say=lambda text: None, on_end=ends.append, start=cluster.start)
    coordinator._stopping = Impatient()
    cluster.stop = coordinator.stop
    coordinator.run()
    assert len(ends) == cluster.hosts > 3
    assert [(end.get("error") or {}).get("condition") for end in ends[:-1]] == ["SESSION_LOST"] * (len(ends) - 1)


def test_spans_reach_a_collector_before_the_end(collector: Collector) -> None:
    recorder = Recorder()
    with recorder.span("epoch", epoch=4), step("compute"):
        pass
    with ExitStack() as stack:
        spans = exported("shop", stack, pytest.fail)
        assert spans is not None
        spans.update(status(20, spans=recorder.recent()))
    (epoch,) = collector.spans("falkirk.epoch")
    assert collector.steps(epoch) == ["compute"]
    assert collector.services() == {"shop"}
    assert attributes(epoch) == {"epoch": 4, "application": "shop"}


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_SERVICE_NAME", "till"), ("OTEL_RESOURCE_ATTRIBUTES", "a=b,service.name=till")]
)
def test_the_environment_names_the_service(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with exporting("shop") as tracer:
        Spans(tracer, "shop").update(status(20, spans=[recorded(1)]))
    assert collector.services() == {"till"}


@pytest.mark.parametrize("kind", ["hangs", "is away", "refuses"])
def test_no_collector_delays_statuses_or_the_end(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a collector that hangs delayed the end by ten seconds, and longer with a longer timeout."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    with collecting(hangs=kind == "hangs", code=503 if kind == "refuses" else 200) as server:
        monkeypatch.setenv(ENDPOINTS[0], "http://127.0.0.1:1/v1/traces" if kind == "is away" else server.endpoint)
        began_s = time.monotonic()
        with exporting("shop", 0.3) as tracer:
            spans = Spans(tracer, "shop", pytest.fail)
            for number in range(1, 5001):  # more than the queue has places
                spans.update(status(20 + number, spans=[recorded(number)]))
            taken_s = time.monotonic() - began_s
            if kind == "hangs":
                wait_until(lambda: server.requests, 5, "a request that hangs")
            began_end_s = time.monotonic()
        ended_s = time.monotonic() - began_end_s
    assert taken_s < 30.0, "a request of a collector that hangs lasts twice as long"
    assert ended_s < 8.0
    assert all(thread.daemon for thread in senders()), "the process could not end"
    wait_until(lambda: not senders(), 30, lambda: f"the end of {senders()}")


def senders() -> list[threading.Thread]:
    """Return the threads that send spans, or wait before they send them again."""
    return [t for t in threading.enumerate() if t.name in ("falkirk-spans", "OtelBatchSpanRecordProcessor")]


def test_nothing_is_sent_unless_the_environment_names_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_wanted()
    monkeypatch.setenv(ENDPOINTS[0], "http://127.0.0.1:1")
    assert is_wanted()
    assert is_recorded()
    for name, value in {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "none"}.items():
        monkeypatch.setenv(name, value)
        assert not is_recorded()
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp,console")
    assert is_recorded()


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "'http/json'"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "falkirk[traces-grpc]"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1", "ValueError"),
        ("", "", "falkirk[traces]"),
    ],
)
def test_an_application_runs_without_spans_and_says_so(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str,
    value: str, reason: str,
) -> None:  # fmt: skip
    if value == "grpc":
        monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc", None)
    if variable:
        monkeypatch.setenv(variable, value)
    else:
        monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with ExitStack() as stack:
        assert exported("shop", stack, run._say) is None
    assert reason in capsys.readouterr().err
    assert collector.requests == []


def test_a_status_of_another_form_ends_the_spans_and_not_the_application(collector: Collector) -> None:
    said: list[str] = []
    with exporting("shop") as tracer:
        spans = Spans(tracer, "shop", said.append)
        spans.update(status(20, spans=[{"number": 1}]))
        spans.update(status(21, spans=[recorded(2)]))
    assert said == ["no further spans are sent: KeyError: 'name'"]
    assert collector.requests == []
