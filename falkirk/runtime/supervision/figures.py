"""Figures of a host: the numbers in its status about the input, the sinks and the epochs of each processor.

Counters begin at 0 with each host, except those that are positions. The coordinator adds up the counts of its hosts
(metrics.py).
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from falkirk.declare.endpoints import Kafka
from falkirk.declare.parts import ROUNDS
from falkirk.platform.parallel import Looks
from falkirk.runtime.spark import lanes
from falkirk.runtime.spark.epochs.log import Epoch
from falkirk.runtime.spark.epochs.region import BatchRegion
from falkirk.runtime.spark.figures import HeldAge, Histogram
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.runtime.spark.status import EPOCH_BOUNDS_S, LATENCY_BOUNDS_S
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import LogId, Offsets, Positions

Published = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""The counts of records that the lanes of this home have published: see `falkirk.runtime.spark.figures.published`."""


class LiveFigures:
    """The figures of one live region."""

    def __init__(self, live: LiveRegion) -> None:
        self._live, self._held = live, HeldAge()
        self._sources: dict[str, dict[str, int | None]] = {}
        self._state: dict[str, int] = {}
        self._pauses = Histogram(LATENCY_BOUNDS_S)
        #: The query and its batch of the newest pause.
        self._paused: tuple[str, int] | None = None

    def update(self, progress: Mapping[str, Any] | None, unread: Mapping[LogId, int] | None = None) -> None:
        """Take in the findings of the last `observe`.

        Args: progress: Spark's report about its last micro-batch. unread: as of `SourceLag.update`.
        """
        checkpoints, starts = self._live.checkpoints(), self._live.starts
        for number, (source, start) in enumerate(starts.items()):
            read = sum(int(checkpoints[-1].read.length_of(source, p)) - o for p, o in start.items())
            lag = (unread or {}).get(source)
            self._sources[source] = {
                "records": read,
                "lag": _behind(progress, len(start), number) if lag is None else lag,
            }
        self._state = _state_of(progress)
        self._count_pause(progress)

    def _count_pause(self, progress: Mapping[str, Any] | None) -> None:
        """Count the pause at a checkpoint: the time of a batch of Spark in which no record could be read.

        Tasks read for the whole interval. Before it Spark plans the batch, and after it Spark saves the checkpoint. The
        first batch of a query also starts it, and does not count.
        """
        try:
            batch = str((progress or {})["runId"]), int((progress or {})["batchId"])
            took_s = int((progress or {})["durationMs"]["triggerExecution"]) / 1000
        except (KeyError, TypeError, ValueError):
            return
        if batch != self._paused:
            if self._paused is not None and self._paused[0] == batch[0]:
                self._pauses.observe(max(0.0, took_s - self._live.region.interval_s))
            self._paused = batch

    def describe(self, published: Published, released: OffsetFrontier) -> dict[str, Any]:
        """Return the figures as plain values. Args: released: of its held log, if it has one."""
        region = self._live.region
        own, sinks = published.get(region.name, {}), dict[str, dict[str, Any]]()
        sinks[region.output.topic] = dict(own.get(region.output.topic, {}))
        if region.released_to is not None:
            topic, log = region.released_to.topic, region.output.log
            ends, upto = self._live.ends.get(log, {}), {}
            for partition in ends:
                upto[partition] = released.length_of(log, partition)
            held = sum(max(0, int(end - upto[p])) for p, end in ends.items())
            copied = {"records": None, **published.get(lanes.of_jobs(topic), {}).get(topic, {})}
            sinks[topic] = {**copied, "held": held, "held_age_s": self._held.age_s(ends, upto)}
        return {
            "name": region.name,
            "sources": self._sources or {log: {"records": 0, "lag": None} for log in self._live.logs.sources},
            "sinks": sinks,
            "state": self._state,
            "pauses": self._pauses.describe(),
        }


def _behind(progress: Mapping[str, Any] | None, partitions: int, number: int) -> int | None:
    """Return how many records a source had beyond the last batch at its end, if Spark says so."""
    try:
        average = float((progress or {})["sources"][number]["metrics"]["avgOffsetsBehindLatest"])
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return round(average * partitions)


def _state_of(progress: Mapping[str, Any] | None) -> dict[str, int]:
    """Return the size of the state after the last batch, if Spark tells it."""
    try:
        operators = (progress or {})["stateOperators"]
        return {
            "rows": sum(int(operator["numRowsTotal"]) for operator in operators),
            "bytes": sum(int(operator["memoryUsedBytes"]) for operator in operators),
        }
    except (KeyError, TypeError, ValueError):
        return {}


class BatchFigures:
    """The figures of one batch. Args: now_s: the time at which the host began."""

    def __init__(self, batch: BatchRegion, now_s: float) -> None:
        self._region, self._began_s = batch, now_s
        self._duration = Histogram(EPOCH_BOUNDS_S)
        self._complete: tuple[Epoch, ...] = ()
        #: The newest epoch that was counted, and the one up to which results were counted as published.
        self._counted = -1
        self._out: int | None = None
        self._rounds = self._results = 0
        self._start: Positions = {}
        #: The newest saved state that was measured, and its size in bytes. The object store may not answer for long.
        self._measured = Looks[tuple[str, int] | None](None)
        self._state: tuple[str, int] | None = None

    def update(self, epochs: Sequence[Epoch]) -> None:
        """Take in the epochs of the batch, as they are now."""
        self._complete = tuple(takewhile(lambda e: e.is_complete, epochs))
        for epoch in self._complete:
            made_at_s = epoch.made_at_s or 0.0
            if epoch.number > self._counted and made_at_s >= self._began_s:
                self._rounds += epoch.marks.get(ROUNDS, 0)
                self._duration.observe(max(0.0, made_at_s - epoch.decided_at_s))
        self._counted = max([self._counted, *(e.number for e in self._complete[-1:])])
        self._measure_state()

    def _measure_state(self) -> None:
        newest = next((e for e in reversed(self._complete) if e.state is not None), None)
        self._state = None if newest is None else self._measured.found
        if newest is not None and (self._state is None or self._state[0] != newest.state):
            self._measured.begin(partial(self._size_of, newest))

    def _size_of(self, epoch: Epoch) -> tuple[str, int] | None:
        """Runs in a thread. Raises: StoreError: the next turn measures it."""
        size = self._region.jobs.states.size_bytes(epoch)
        return None if size is None else (str(epoch.state), size)

    def describe(self, released: OffsetFrontier) -> dict[str, Any]:
        """Return the figures as plain values. Args: released: of its log of epochs."""
        batch, releaser = self._region.batch, self._region.releaser
        upto = int(released.length_of(batch.log))
        before, self._out = upto if self._out is None else self._out, upto
        self._results += sum(e.rows for e in self._complete if before <= e.number < upto)
        waiting = [e for e in self._complete if e.number >= upto and (e.rows or e.dead)]
        held_age_s = max(0.0, time.time() - (waiting[0].made_at_s or 0.0)) if waiting else 0.0
        held = sum(e.rows for e in waiting)
        names = [sink.to.topic if isinstance(sink.to, Kafka) else sink.name for sink in batch.sinks]
        return {
            "name": batch.name,
            "sources": self._sources(),
            "sinks": {n: {"records": self._results, "held": held, "held_age_s": held_age_s} for n in names},
            "state": {} if self._state is None else {"saved_bytes": self._state[1]},
            "epochs": {
                "rounds": self._rounds,
                "duration": self._duration.describe(),
                "backlog": 0 if releaser is None else releaser.backlog(),
            },
        }

    def _sources(self) -> dict[str, dict[str, Any]]:
        """Return the input that complete epochs have read. Views are left out: each epoch reads one epoch of a view."""
        jobs, found = self._region.jobs, dict[str, dict[str, Any]]()
        self._start = start = self._start or jobs.first_of_next(())
        then = self._complete[-1].then if self._complete else start
        for given in self._region.batch.inputs:
            if not given.view:
                name = given.name if given.topic is None else given.topic.topic
                read, ends = _count(then, given.log), _count(jobs.seen_ends, given.log)
                lag = max(0, ends - read) if given.log in jobs.seen_ends else None
                found[name] = {"records": max(0, read - _count(start, given.log)), "lag": lag}
        return found


def _count(positions: Mapping[LogId, Offsets], log: LogId) -> int:
    return sum(positions.get(log, {}).values())
