"""Latencies: the latency and the rate of each sink in the last seconds, from the counts in the host's status."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from falkirk.runtime.spark.status import LATENCY_BOUNDS_S

#: Quantiles are of the results of this time.
WINDOW_S = 20.0
#: The time between two values of the series, and their number.
_STEP_S = 2.0
SERIES_MAX = 450

_Counts = tuple[float, object, float, tuple[float, ...]]
"""The time, the host's process, the number of results, and the counts of their latencies by bucket."""


class Latencies:
    """The latencies of all sinks of an application."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[_Counts]] = {}
        #: By sink: times, p50, p99.
        self._series: dict[str, deque[tuple[float, float | None, float | None]]] = {}
        self._stepped_at_s = 0.0

    def update(self, status: Mapping[str, Any]) -> bool:
        """Take in a status of the host; return whether the series have grown."""
        at_s, pid = float(status.get("at_s", 0.0)), status.get("pid")
        for sink, found in _sinks(status):
            counts = found.get("counts") or []
            records = float(found.get("records") or 0)
            seen = self._seen.setdefault(sink, deque())
            if seen and (seen[-1][1] != pid or records < seen[-1][2]):
                seen.clear()  # another host counts from 0
            if not seen or at_s > seen[-1][0]:
                seen.append((at_s, pid, records, tuple(map(float, counts))))
            while len(seen) > 2 and seen[1][0] < at_s - WINDOW_S:
                seen.popleft()
        if at_s - self._stepped_at_s < _STEP_S:
            return False
        self._stepped_at_s = at_s
        for sink in self._seen:
            now = self.now(sink)
            series = self._series.setdefault(sink, deque(maxlen=SERIES_MAX))
            series.append((at_s, now["p50_s"], now["p99_s"]))
        return True

    def now(self, sink: str) -> dict[str, float | None]:
        """Return the quantiles and the rate of a sink; None: no result was measured."""
        seen = self._seen.get(sink, deque())
        nothing: dict[str, float | None] = {"p50_s": None, "p99_s": None, "per_s": None}
        if len(seen) < 2:
            return nothing
        (first_s, _, before, old), (last_s, _, after, new) = seen[0], seen[-1]
        nothing["per_s"] = (after - before) / max(last_s - first_s, 1e-9)
        if len(old) != len(new):
            return nothing
        counts = [b - a for a, b in zip(old, new, strict=True)]
        return {**nothing, "p50_s": quantile(counts, 0.5), "p99_s": quantile(counts, 0.99)}

    def series(self) -> dict[str, list[list[float | None]]]:
        """Return the past of each sink: times, p50 and p99."""
        return {
            sink: [[row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]]
            for sink, rows in self._series.items()
        }


def quantile(counts: Sequence[float], q: float) -> float | None:
    """Return a quantile of a histogram, as Prometheus computes it: linear within a bucket. None: it is empty."""
    total, below = sum(counts), 0.0
    if total <= 0:
        return None
    for (low, high), count in zip(pairwise((0.0, *LATENCY_BOUNDS_S)), counts, strict=False):
        if count > 0 and below + count >= q * total:
            return low + (high - low) * (q * total - below) / count
        below += count
    return LATENCY_BOUNDS_S[-1]


def _sinks(status: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for unit in status.get("figures") or ():
        for sink, found in (unit.get("sinks") or {}).items():
            if isinstance(found, Mapping) and "records" in found:
                yield f"{unit.get('name')}/{sink}", found
