"""Metrics site: answers Prometheus and probes: `/metrics`, `/health` and `/ready`. It only reads."""

import json
from http import HTTPStatus
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from falkirk.errors.conditions.supervision import ADDRESS_TAKEN_METRICS
from falkirk.runtime.supervision.metrics import Metrics
from falkirk.runtime.supervision.web import Answer, HttpRequest, Site, WebServer, why_not


class MetricsSite(Site):
    """The metrics and probes of one application."""

    public = "the names of topics and processors, and their counts"

    def __init__(self, metrics: Metrics) -> None:
        self._metrics, self._registry = metrics, CollectorRegistry(auto_describe=False)
        self._registry.register(metrics)

    def paths(self) -> tuple[str, ...]:
        """See Site."""
        return "/metrics", "/health", "/ready"

    def look(self) -> None:
        """See Site."""
        self._metrics.look()

    def answer(self, request: HttpRequest) -> Answer | None:
        """Answer with metrics, or with the state of the application."""
        if request.path not in self.paths():
            return None
        if not request.reads:
            return Answer(status=HTTPStatus.METHOD_NOT_ALLOWED, body=b"only GET\n", headers={"Allow": "GET, HEAD"})
        if request.path == "/metrics":
            encode, kind = choose_encoder(request.headers.get("accept", ""))
            return Answer(kind=kind, body=encode(self._registry))
        return _probe(*(self._metrics.health() if request.path == "/health" else self._metrics.ready()))


def _probe(good: bool, content: dict[str, Any]) -> Answer:
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status=status, kind="application/json", body=json.dumps(content).encode() + b"\n")


def metrics_server(metrics: Metrics, address: tuple[str, int], *more: Site) -> WebServer:
    """Return a server of metrics. Args: more: sites that are served at the same address.

    Raises: MachineError: `ADDRESS_TAKEN`.
    """
    try:
        return WebServer([MetricsSite(metrics), *more], address)
    except OSError as error:
        raise ADDRESS_TAKEN_METRICS.error(host=address[0], port=address[1], reason=why_not(error)) from error
