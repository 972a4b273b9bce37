"""Spans over gRPC: a collector gets them, and one that hangs does not delay an end. It needs `falkirk[traces-grpc]`."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import pytest

from falkirk.runtime.supervision.spans import exported, exporting, hindrance

grpc: Any = pytest.importorskip("grpc")
pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")


class GrpcCollector:
    """A collector. Attributes: requests: of exporters. hangs: it answers none until the end."""

    def __init__(self) -> None:
        service: Any = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc")
        self._answer = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
        self.requests: list[Any] = []
        self.hangs, self.ended = False, threading.Event()
        self.server = grpc.server(ThreadPoolExecutor(2))
        service.add_TraceServiceServicer_to_server(self, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    def Export(self, request: Any, context: Any) -> Any:
        """Keep the spans of a request. gRPC calls this method by its name."""
        self.requests.append(request)
        if self.hangs:
            self.ended.wait(60)
        return self._answer.ExportTraceServiceResponse()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[GrpcCollector]:
    found = GrpcCollector()
    found.server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{found.port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    yield found
    found.ended.set()
    found.server.stop(0).wait()


def test_a_collector_gets_spans_over_grpc(collector: GrpcCollector) -> None:
    assert hindrance() == ""
    with exporting("shop") as tracer, tracer.start_as_current_span("falkirk.epoch"):
        pass
    [request] = collector.requests
    [group] = request.resource_spans
    assert "shop" in {attribute.value.string_value for attribute in group.resource.attributes}
    assert [span.name for scope in group.scope_spans for span in scope.spans] == ["falkirk.epoch"]


def test_a_collector_that_hangs_delays_an_end_for_three_seconds_at_most(
    collector: GrpcCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")  # an end that waits for an exporter takes so long
    collector.hangs = True
    said: list[str] = []
    with ExitStack() as stack:
        assert exported("shop", stack, said.append) is not None
        tracer = stack.enter_context(exporting("shop"))
        tracer.start_span("falkirk.epoch").end()
        began = time.monotonic()
    assert time.monotonic() - began < 30, "both exporters end, 3 s each at most on an idle machine"
    assert said == []
