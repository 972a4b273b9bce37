"""Metrics: the answer to Prometheus about an application, from the status that its hosts publish.

Counts begin at 0 with each host, so the coordinator adds them up: no counter falls. Counts that are positions in a log
continue by themselves, as the number of dead letters does, and only the greatest one counts. Until a host has counted
the dead letters from before its start, it reports none, and a new coordinator shows none.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from falkirk.platform.terminal import one_line
from falkirk.runtime.spark.status import AWAY_DETAIL, EPOCH_BOUNDS_S, LATENCY_BOUNDS_S
from falkirk.runtime.supervision.pulse import Pulse

#: The states of a processor.
STATES = ("starting", "running", "restarting", "waiting", "failed", "stopped")
#: Labels that several metrics have.
PROCESSOR, SOURCE, SINK = ("processor",), ("processor", "source"), ("processor", "sink")
#: The metrics by name, each with its kind, its labels and its help. Counters end in `_total` when they are served.
FAMILIES: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "falkirk_info": ("gauge", ("application", "version"), "Always 1."),
    "falkirk_coordinator_start_time_seconds": ("gauge", (), "When the coordinator started, as Unix time."),
    "falkirk_host_start_time_seconds": ("gauge", (), "When the present host first reported, as Unix time."),
    "falkirk_host_restarts": ("counter", (), "Hosts that the coordinator has started after the first one."),
    "falkirk_host_status_age_seconds": ("gauge", (), "Time since the last report of the host."),
    "falkirk_processor_state": ("gauge", (*PROCESSOR, "state"), "1 for the present state, 0 for the others."),
    "falkirk_processor_incarnation": ("gauge", PROCESSOR, "Incarnation of a live region."),
    "falkirk_processor_restarts": ("counter", PROCESSOR, "Restarts of a live region within its host."),
    "falkirk_checkpoint_number": ("gauge", PROCESSOR, "Last checkpoint or complete epoch; -1: none."),
    "falkirk_checkpoint_age_seconds": ("gauge", PROCESSOR, "Time since the last checkpoint or complete epoch."),
    "falkirk_checkpoint_pause_seconds": ("histogram", PROCESSOR, "Time at a checkpoint in which nothing is read."),
    "falkirk_suppressed_results": ("counter", PROCESSOR, "Published results that a replay must not publish again."),
    "falkirk_dead_letters": (
        "counter",
        PROCESSOR,
        "Dead letters that this application has written since its home was made.",
    ),
    "falkirk_source_records": ("counter", SOURCE, "Records that checkpoints or epochs cover, since the home was made."),
    "falkirk_source_lag_records": ("gauge", SOURCE, "Records that were there and not read, at the last look."),
    "falkirk_sink_records": ("counter", SINK, "Published results."),
    "falkirk_sink_latency_seconds": ("histogram", SINK, "From the timestamp of the record read to its result."),
    "falkirk_held_results": ("gauge", SINK, "Results that wait for their release."),
    "falkirk_held_oldest_age_seconds": ("gauge", SINK, "Age of the oldest result that waits; 0: none waits."),
    "falkirk_epoch_duration_seconds": ("histogram", PROCESSOR, "From the decision of an epoch until it is complete."),
    "falkirk_epochs_waiting": ("gauge", PROCESSOR, "Complete epochs that wait for their sinks."),
    "falkirk_loop_rounds": ("counter", PROCESSOR, "Rounds of the loops of an iteration."),
    "falkirk_state_rows": ("gauge", PROCESSOR, "Rows in the state of a live region."),
    "falkirk_state_memory_bytes": ("gauge", PROCESSOR, "Memory that the state of a live region uses."),
    "falkirk_state_saved_bytes": ("gauge", PROCESSOR, "Size of the files of the newest saved state of a batch."),
    "falkirk_foreign_records": ("gauge", ("topic",), "Records that others have written; they are ignored."),
}
_LABEL_LENGTH_MAX = 200
Labels = tuple[str, ...]
_Key = tuple[str, Labels, int]
"""A count: the metric, its labels, and the place among several counts of a histogram."""


class Sums:
    """Counts over all hosts of a coordinator."""

    def __init__(self) -> None:
        self._host: object = None
        self._before: dict[_Key, float] = {}
        self._now: dict[_Key, float] = {}

    def begin(self, host: object) -> None:
        """Begin with the counts of a host. If it is the present one, nothing happens."""
        if host != self._host:
            self._host = host
            for key in [*self._now]:
                self._carry(key)

    def _carry(self, key: _Key) -> None:
        self._before[key] = self._before.get(key, 0.0) + self._now.pop(key, 0.0)

    def update(self, key: _Key, count: float) -> None:
        """Take in a count of the present host. A smaller one than before has begun at 0 again."""
        if count < self._now.get(key, 0.0):
            self._carry(key)
        self._now[key] = count

    def take_position(self, key: _Key, count: float) -> None:
        """Take in a count that continues over hosts. It may be unknown to a new host at first, and then it is 0."""
        self._before[key] = max(self._before.get(key, 0.0), count)

    def items(self) -> Iterator[tuple[_Key, float]]:
        """Return the sums, in order."""
        for key in sorted({*self._before, *self._now}):
            yield key, self._before.get(key, 0.0) + self._now.get(key, 0.0)


class Metrics(Collector):
    """The metrics of one application.

    Args: application: its name. pulse: of the coordinator. clock: the time as Unix time.
    """

    def __init__(self, application: str, pulse: Pulse, clock: Callable[[], float] = time.time) -> None:
        self._application, self._pulse, self._clock = application, pulse, clock
        self._lock = threading.Lock()
        self._began_at_s = clock()
        self._host_began_at_s: float | None = None
        self._host: object = None
        self._status: Mapping[str, Any] = {}
        self._sums = Sums()

    def update(self, status: Mapping[str, Any]) -> None:
        """Take in a status that a host has published. A part of another form than this version's is left out."""
        with self._lock:
            if status.get("pid") != self._host:
                self._host, self._host_began_at_s = status.get("pid"), _number(status.get("at_s"))
            self._status = status
            self._sums.begin(self._host)
            for unit in _maps(status.get("regions")):
                labels = (_label(unit.get("name")),)
                self._count("falkirk_processor_restarts", labels, unit.get("restarts"))
                self._count("falkirk_suppressed_results", labels, unit.get("suppressed"))
                self._position("falkirk_dead_letters", labels, unit.get("dead_letters"))
            for figures in _maps(status.get("figures")):
                self._take_figures(figures)

    def _take_figures(self, figures: Mapping[str, Any]) -> None:
        name = _label(figures.get("name"))
        for source, found in _named(figures.get("sources")):
            self._position("falkirk_source_records", (name, source), found.get("records"))
        for sink, found in _named(figures.get("sinks")):
            self._count("falkirk_sink_records", (name, sink), found.get("records"))
            self._histogram("falkirk_sink_latency_seconds", (name, sink), found, LATENCY_BOUNDS_S)
        self._histogram("falkirk_checkpoint_pause_seconds", (name,), figures.get("pauses"), LATENCY_BOUNDS_S)
        epochs = figures.get("epochs")
        if isinstance(epochs, Mapping):
            self._count("falkirk_loop_rounds", (name,), epochs.get("rounds"))
            self._histogram("falkirk_epoch_duration_seconds", (name,), epochs.get("duration"), EPOCH_BOUNDS_S)

    def _count(self, metric: str, labels: Labels, count: object, place: int = 0) -> None:
        if (number := _number(count)) is not None and number >= 0:
            self._sums.update((metric, labels, place), number)

    def _position(self, metric: str, labels: Labels, count: object) -> None:
        if (number := _number(count)) is not None and number >= 0:
            self._sums.take_position((metric, labels, 0), number)

    def _histogram(self, metric: str, labels: Labels, found: object, bounds: Sequence[float]) -> None:
        counts = found.get("counts") if isinstance(found, Mapping) else None
        if isinstance(found, Mapping) and isinstance(counts, list) and len(counts) == len(bounds) + 1:
            for place, count in enumerate((*counts, found.get("sum"))):
                self._count(metric, labels, count, place)

    # -- for Prometheus -----------------------------------------------------------------------------------------------

    def collect(self) -> Iterable[Metric]:
        """Return all metrics, as they are now."""
        with self._lock:
            samples: dict[str, dict[Labels, Any]] = {name: {} for name in FAMILIES}
            for (name, labels, place), count in self._sums.items():
                if FAMILIES[name][0] == "histogram":
                    samples[name].setdefault(labels, {})[place] = count
                else:
                    samples[name][labels] = count
            for name, labels, value in self._gauges():
                if (number := _number(value)) is not None:
                    samples[name][labels] = number
        return [_family(name, found) for name, found in samples.items()]

    def _gauges(self) -> Iterator[tuple[str, Labels, object]]:
        status, pulse = self._status, self._pulse
        yield "falkirk_info", (_label(self._application), version("falkirk")), 1
        yield "falkirk_coordinator_start_time_seconds", (), self._began_at_s
        yield "falkirk_host_start_time_seconds", (), self._host_began_at_s
        yield "falkirk_host_restarts", (), max(0, pulse.hosts - 1)
        yield "falkirk_host_status_age_seconds", (), pulse.silent_s
        late_s = max(0.0, self._clock() - (_number(status.get("at_s")) or self._clock()))
        for unit in _maps(status.get("regions")):
            labels = (_label(unit.get("name")),)
            for state in STATES:
                yield "falkirk_processor_state", (*labels, state), int(self._state(unit) == state)
            yield "falkirk_processor_incarnation", labels, unit.get("incarnation")
            yield "falkirk_checkpoint_number", labels, unit.get("last_commit")
            if (age_s := _number(unit.get("checkpoint_age_s"))) is not None:
                yield "falkirk_checkpoint_age_seconds", labels, age_s + late_s
        for figures in _maps(status.get("figures")):
            name = _label(figures.get("name"))
            for source, found in _named(figures.get("sources")):
                yield "falkirk_source_lag_records", (name, source), found.get("lag")
            for sink, found in _named(figures.get("sinks")):
                yield "falkirk_held_results", (name, sink), found.get("held")
                yield "falkirk_held_oldest_age_seconds", (name, sink), found.get("held_age_s")
            if isinstance(size := figures.get("state"), Mapping):
                yield "falkirk_state_rows", (name,), size.get("rows")
                yield "falkirk_state_memory_bytes", (name,), size.get("bytes")
                yield "falkirk_state_saved_bytes", (name,), size.get("saved_bytes")
            if isinstance(epochs := figures.get("epochs"), Mapping):
                yield "falkirk_epochs_waiting", (name,), epochs.get("backlog")
        for foreign in _maps(status.get("foreign")):
            yield "falkirk_foreign_records", (_label(foreign.get("topic")),), foreign.get("count")

    def _state(self, unit: Mapping[str, Any]) -> str:
        """Return the state of a processor. Until a new host reports, all processors are starting."""
        if not self._pulse.has_reported:
            return "starting"
        if unit.get("state") == "running" and _is_away(unit):
            return "waiting"
        return str(unit.get("state"))

    # -- for probes ---------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """See `Pulse.look`."""
        self._pulse.look()

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the coordinator works and its host reports, and the answer to a probe."""
        reason = self._pulse.failing()
        return not reason, {"status": "failing", "reason": reason} if reason else {"status": "ok"}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Return whether every processor runs, and the answer to a probe.

        The answer names processors and conditions. It has no details, because these may quote records.
        """
        reason = self._pulse.failing()
        with self._lock:
            units = [*_maps(self._status.get("regions"))]
            waiting = [unit for unit in units if self._state(unit) != "running"]
            shown = [
                {"name": _label(u.get("name")), "state": self._state(u), "condition": _label(u.get("condition") or "")}
                for u in waiting
            ]
        if not reason and not units:
            reason = "the host has not reported yet"
        if not reason and waiting:
            reason = f"{len(waiting)} of {len(units)} processors do not run"
        return not reason, {"status": "not ready", "reason": reason, "processors": shown} if reason else {
            "status": "ready"
        }


def _is_away(unit: Mapping[str, Any]) -> bool:
    """Return whether a processor waits for the broker, for another cluster, or for the store."""
    return str(unit.get("detail")).startswith(
        tuple(f"{AWAY_DETAIL}{what}" for what in ("broker: ", "cluster ", "store: "))
    )


def _family(name: str, samples: Mapping[Labels, Any]) -> Metric:
    kind, labels, text = FAMILIES[name]
    if kind == "histogram":
        histogram = HistogramMetricFamily(name, text, labels=labels)
        bounds = EPOCH_BOUNDS_S if name == "falkirk_epoch_duration_seconds" else LATENCY_BOUNDS_S
        for values, found in samples.items():
            below = accumulate(found.get(place, 0.0) for place in range(len(bounds) + 1))
            buckets = list(zip((*map(str, bounds), "+Inf"), below, strict=True))
            histogram.add_metric(values, buckets, found.get(len(bounds) + 1, 0.0))
        return histogram
    family = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(name, text, labels=labels)
    for values, number in samples.items():
        family.add_metric(values, number)
    return family


def _label(text: object) -> str:
    """Return a text as the value of a label: on one line, without control characters, and not long."""
    return one_line(str(text))[:_LABEL_LENGTH_MAX]


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]
    except OverflowError:
        return None


def _maps(values: object) -> Iterator[Mapping[str, Any]]:
    yield from (v for v in (values if isinstance(values, list | tuple) else ()) if isinstance(v, Mapping))


def _named(values: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, found in values.items() if isinstance(values, Mapping) else ():
        if isinstance(found, Mapping):
            yield _label(name), found
