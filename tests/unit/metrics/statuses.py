"""Statuses as hosts publish them, made up, and the samples that Prometheus reads."""

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from falkirk.runtime.spark.status import EPOCH_BOUNDS_S, LATENCY_BOUNDS_S, RegionStatus
from falkirk.runtime.supervision.metrics import Metrics
from falkirk.runtime.supervision.pulse import Pulse

Sample = tuple[str, tuple[tuple[str, str], ...]]


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def metrics_of(*statuses: dict[str, Any], clock: Clock | None = None, limit_s: float = 180.0) -> Metrics:
    """Return the metrics after these statuses. A status with another pid is of the next host."""
    clock = clock or Clock()
    pulse = Pulse(limit_s, clock)
    metrics, host = Metrics("shop", pulse, clock), None
    for status in statuses:
        if status.get("pid") != host:
            host = status.get("pid")
            pulse.begin()
        pulse.turn()
        pulse.note_report(40.0)
        metrics.update(status)
    return metrics


def histogram(bounds: tuple[float, ...], counts: dict[int, int], total: float) -> dict[str, Any]:
    """Return a histogram as a host describes it. Args: counts: by the place of the bucket."""
    return {"counts": [counts.get(place, 0) for place in range(len(bounds) + 1)], "sum": total}


def live(name: str = "sales", **changed: Any) -> dict[str, Any]:
    """Return the figures of a live region that reads `orders` and writes `sales`."""
    latency = histogram(LATENCY_BOUNDS_S, {1: 3, 4: 1}, 0.021)
    sink = {"records": 4, **latency, "held": 0, "held_age_s": 0.0, **changed.pop("sink", {})}
    return {
        "name": name, "sources": {"orders": {"records": 70, "lag": 2}}, "sinks": {"sales": sink},
        "state": {"rows": 44, "bytes": 5000}, "pauses": histogram(LATENCY_BOUNDS_S, {8: 2}, 0.7), **changed,
    }  # fmt: skip


def batch(name: str = "rank", **changed: Any) -> dict[str, Any]:
    """Return the figures of an iteration that reads `links` and writes a table."""
    epochs = {"rounds": 31, "backlog": 2, "duration": histogram(EPOCH_BOUNDS_S, {3: 2, 13: 1}, 4000.5)}
    sinks = {"ranks": {"records": 12, "held": 5, "held_age_s": 7.5}}
    return {
        "name": name, "sources": {"links": {"records": 9, "lag": None}}, "sinks": sinks,
        "state": {"saved_bytes": 640}, "epochs": {**epochs, **changed.pop("epochs", {})}, **changed,
    }  # fmt: skip


def status(*units: RegionStatus, pid: int = 1, at_s: float = 1000.0, **more: Any) -> dict[str, Any]:
    """Return the status of a host."""
    return {"at_s": at_s, "pid": pid, "regions": [vars(unit) for unit in units], **more}


def full(pid: int = 1, at_s: float = 1000.0) -> dict[str, Any]:
    """Return a status with all that there is."""
    sales = RegionStatus(
        name="sales", state="running", incarnation=3, restarts=1, suppressed=17, dead_letters=2, last_commit=41,
        checkpoint_age_s=1.5,
    )  # fmt: skip
    rank = RegionStatus(name="rank", state="running", dead_letters=0, last_commit=5, checkpoint_age_s=20.0)
    foreign = [{"topic": "sales", "count": 6, "partition": 0, "offset": 3, "reason": "no header"}]
    return status(sales, rank, pid=pid, at_s=at_s, figures=[live(), batch()], foreign=foreign)


def samples(metrics: Metrics) -> dict[Sample, float]:
    """Return the samples that Prometheus reads: each sample once, by its name and labels."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    found = [*_parsed(generate_latest(registry).decode())]
    assert len(found) == len({sample for sample, _ in found}), "each sample comes once"
    return dict(found)


def _parsed(text: str) -> Iterator[tuple[Sample, float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield (sample.name, tuple(sorted(sample.labels.items()))), sample.value


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return the value of one sample, if there is one."""
    return samples(metrics).get((name, tuple(sorted(labels.items()))))
