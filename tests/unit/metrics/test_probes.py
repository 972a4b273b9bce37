"""`/health` and `/ready` in each state, and the server that answers them."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from falkirk.declare.address import as_metrics_address
from falkirk.errors import DefinitionError, MachineError
from falkirk.runtime.spark.status import RegionStatus
from falkirk.runtime.supervision import web
from falkirk.runtime.supervision.metrics import Metrics
from falkirk.runtime.supervision.metrics_server import metrics_server
from falkirk.runtime.supervision.pulse import TURN_S, Pulse
from falkirk.runtime.supervision.web import WebServer
from tests.support import wait_until
from tests.unit.metrics.statuses import Clock, full, metrics_of, status


def work_on(metrics: Metrics, clock: Clock, seconds: float) -> None:
    """Let time pass in which the server of the probes runs."""
    for _ in range(int(seconds / 5)):
        clock.now_s += 5
        metrics.look()
    clock.now_s += seconds % 5


def test_healthy_while_the_loop_turns_and_the_host_reports() -> None:
    clock = Clock()
    pulse = Pulse(180.0, clock)
    metrics = Metrics("shop", pulse, clock)
    pulse.begin()
    assert metrics.health() == (True, {"status": "ok"})
    for _ in range(17):  # Spark starts
        clock.now_s += 10
        pulse.turn()
        assert metrics.health()[0]
    work_on(metrics, clock, 11)
    pulse.turn()
    assert metrics.health() == (False, {"status": "failing", "reason": "the host has been silent for 181 s"})
    pulse.note_report(40.0)
    assert metrics.health()[0]
    work_on(metrics, clock, 41)
    assert metrics.health() == (False, {"status": "failing", "reason": "the host has been silent for 41 s"})
    pulse.begin()  # the coordinator replaces it
    assert metrics.health()[0]


def test_not_healthy_if_the_loop_stands_still() -> None:
    clock = Clock()
    metrics = metrics_of(full(), clock=clock)
    work_on(metrics, clock, TURN_S + 1)
    reason = f"the coordinator has not looked at its host for {TURN_S + 1:.0f} s"
    assert metrics.health() == (False, {"status": "failing", "reason": reason})
    assert metrics.ready()[1]["reason"] == reason


def test_a_machine_that_stood_still_leaves_the_application_healthy() -> None:
    """`docker pause` stops all processes for minutes. Then a probe comes before the coordinator's loop continues."""
    clock = Clock()
    metrics = metrics_of(full(), clock=clock)
    clock.now_s += 600
    assert metrics.health() == (True, {"status": "ok"})
    assert metrics.ready()[0]
    work_on(metrics, clock, 25)
    assert metrics.health()[0]
    work_on(metrics, clock, 10)  # of the pause, the first seconds count
    assert metrics.health() == (False, {"status": "failing", "reason": "the host has been silent for 45 s"})


def test_ready_if_every_processor_runs() -> None:
    assert metrics_of(full()).ready() == (True, {"status": "ready"})


@pytest.mark.parametrize("state", ["starting", "restarting", "waiting", "failed", "stopped"])
def test_not_ready_if_one_does_not(state: str) -> None:
    other = RegionStatus(name="other", state=state, condition="REGION_KEEPS_FAILING", detail="value 4711 of jane@x.org")
    ready, told = metrics_of(status(RegionStatus(name="sales", state="running"), other)).ready()
    assert not ready
    assert told == {
        "status": "not ready",
        "reason": "1 of 2 processors do not run",
        "processors": [{"name": "other", "state": state, "condition": "REGION_KEEPS_FAILING"}],
    }


def test_not_ready_before_a_host_reports() -> None:
    assert metrics_of().ready() == (
        False, {"status": "not ready", "reason": "the host has not reported yet", "processors": []},
    )  # fmt: skip


def test_not_ready_while_a_host_is_replaced() -> None:
    """The last status is of the dead host."""
    metrics = metrics_of(full())
    metrics._pulse.begin()
    ready, told = metrics.ready()
    assert not ready
    assert [(p["name"], p["state"]) for p in told["processors"]] == [("sales", "starting"), ("rank", "starting")]


@pytest.mark.parametrize(
    ("detail", "is_ready"),
    [
        ("waiting for the broker: it does not answer", False),
        ("waiting for the store: it does not answer", False),
        ("waiting for the first epoch of rank", True),
        ("", True),
    ],
)
def test_a_batch_is_ready_unless_the_broker_or_the_store_is_away(detail: str, is_ready: bool) -> None:
    metrics = metrics_of(status(RegionStatus(name="answers", state="running", detail=detail)))
    assert metrics.ready()[0] is is_ready


# -- the server -------------------------------------------------------------------------------------------------------


class Client:
    """Asks a server. Attributes: clock: of its metrics. url: of the server."""

    def __init__(self, server: WebServer, clock: Clock) -> None:
        self.clock, self.url = clock, server.url
        self._host, _, port = server.url.removeprefix("http://").rpartition(":")
        self._port = int(port)

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, http.client.HTTPMessage, str]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=30)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection((self._host, self._port), timeout=30)


@pytest.fixture
def client() -> Iterator[Client]:
    clock = Clock()
    with metrics_server(metrics_of(full(), clock=clock), ("127.0.0.1", 0)) as server:
        assert not server.is_open
        yield Client(server, clock)


def test_prometheus_reads_the_metrics(client: Client) -> None:
    code, headers, text = client.ask("/metrics?a=b")
    assert (code, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    assert {f.name for f in text_string_to_metric_families(text)} >= {"falkirk_info", "falkirk_sink_records"}
    assert client.ask("/metrics", Accept="application/openmetrics-text; version=1.0.0")[2].endswith("# EOF\n")


def test_probes_have_their_codes(client: Client) -> None:
    code, headers, text = client.ask("/health")
    assert (code, headers["Content-Type"], json.loads(text)) == (200, "application/json", {"status": "ok"})
    assert client.ask("/ready")[0] == 200
    for _ in range(10):  # the server looks after each connection, and while nobody connects
        client.clock.now_s += 5
        assert client.ask("/metrics")[0] == 200
    assert (client.ask("/health")[0], client.ask("/ready")[0]) == (503, 503)
    assert json.loads(client.ask("/health")[2])["reason"] == "the host has been silent for 50 s"


def test_it_only_reads_and_says_little(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        code, headers, _ = client.ask("/metrics", method)
        assert (code, headers["Allow"]) == (405, "GET, HEAD")
    assert client.ask("/metrics", "TRACE")[0] == 501
    assert client.ask("/<b>")[::2] == (404, "/metrics\n/health\n/ready\n")
    code, headers, text = client.ask("/metrics", "HEAD")
    assert (code, text) == (200, "")
    assert headers["Server"] == "falkirk"
    assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
    assert "Access-Control-Allow-Origin" not in headers
    with client.connect() as broken:
        broken.sendall(b"\x16\x03\x01 no HTTP <script>\r\n\r\n")
        assert b"<script>" not in broken.makefile("rb").read()
    assert capfd.readouterr() == ("", "")


def test_slow_clients_block_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "REQUESTS_MAX", 2)
    monkeypatch.setattr(web, "REQUEST_S", 0.5)
    with metrics_server(metrics_of(full()), ("127.0.0.1", 0)) as server:
        client = Client(server, Clock())
        slow = [client.connect() for _ in range(4)]
        for each in slow:
            each.sendall(b"GET /metrics HT")

        def answers() -> bool:
            try:
                return client.ask("/metrics")[0] == 200
            except (OSError, http.client.HTTPException):
                return False

        wait_until(answers, 30, "an answer, once the slow clients are cut off")
        for each in slow:
            each.close()


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(MachineError) as refused:
        metrics_server(metrics_of(), ("127.0.0.1", other.getsockname()[1]))
    error = refused.value
    assert (error.condition, error.parameters["reason"]) == ("ADDRESS_TAKEN", "it is in use")
    assert "--metrics" in error.hint


def test_an_unknown_host_is_refused() -> None:
    with pytest.raises(MachineError) as refused:
        metrics_server(metrics_of(), ("no-such-host.invalid", 9100))
    assert refused.value.condition == "ADDRESS_TAKEN"


def test_every_interface_only_if_asked() -> None:
    with metrics_server(metrics_of(), ("0.0.0.0", 0)) as server:
        assert server.is_open


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9100", ("127.0.0.1", 9100)), ("0", ("127.0.0.1", 0)), ("0.0.0.0:9100", ("0.0.0.0", 9100)),
        ("[::1]:80", ("::1", 80)), ("host-1.x:65535", ("host-1.x", 65535)),
    ],
)  # fmt: skip
def test_an_address_needs_no_host(text: str, address: tuple[str, int]) -> None:
    assert as_metrics_address(text) == address


@pytest.mark.parametrize("text", ["", "x", ":9100", "65536", "a:b", "-1", "²", "http://a:1", "a:1/x", "1 ", "a b:1"])
def test_any_other_address_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        as_metrics_address(text)
    assert (refused.value.condition, refused.value.parameters) == ("ADDRESS_INVALID", {"address": text})


def test_a_status_that_is_written_while_it_is_read(client: Client) -> None:
    """Scrapes come from other threads than statuses."""
    told: list[Any] = [client.ask(path)[0] for path in ("/metrics", "/health", "/ready") for _ in range(5)]
    assert told == [200] * 15
