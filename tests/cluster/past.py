"""A home at rest, without Spark: two live regions with checkpoints, one of which writes a log that is held back."""

import json
from dataclasses import dataclass, field

import falkirk as fk
from falkirk.commands.offline import OfflineApplication
from falkirk.home.folder import Home
from falkirk.kafka.connection import Connection
from falkirk.kafka.internal import KEEP, internal_topic
from falkirk.plan.region import RegionLogs
from falkirk.plan.shape import Shape
from falkirk.protocol.layout import Layout, Stage
from falkirk.runtime import lanes
from falkirk.runtime.context import Place
from falkirk.store import RegionRecord, TailRecord
from falkirk.theory.ids import BatchId, Incarnation, LogId, Offset, PointNumber
from tests.integration.live import Wire

#: The checkpoints of each region.
BATCHES = 3


@dataclass
class Past:
    """An application that has run, with fenced outputs.

    Attributes: events, counts, snaps: its topics. held: its held log. dead: its dead letters, by region.
    """

    wire: Wire
    home: Home
    events: LogId = field(init=False)
    counts: LogId = field(init=False)
    snaps: LogId = field(init=False)
    held: LogId = field(init=False)

    def __post_init__(self) -> None:
        self.app = fk.App(self.home.application)
        self.events, self.counts, self.snaps = (LogId(self.wire.topic(n, 1)) for n in ("events", "counts", "snaps"))
        self.held = held = internal_topic(self.home.application, self.home.identity, "held")
        self.wire.topics.create(held, 1, KEEP)
        self.dead = {name: LogId(self.wire.topic(f"{name}-dead", 1)) for name in ("plain", "held")}
        outputs = {"plain": self.counts, "held": held}
        self.wire.send(self.events, [b"{}"] * BATCHES)
        place = Place(home=self.home, connection=Connection.of(self.wire.bootstrap))
        for name, output in outputs.items():
            self._run(place, name, output)
        lanes.record(place, lanes.of_jobs(self.snaps), Incarnation(1), 1)
        self.home.store.record_release(self.snaps, held, 0, Offset(1))
        self.home.store.record_decision("sink", f"beginning of {self.snaps}", 0, {"0": 0})
        self.wire.send(self.snaps, [b"{}"])
        place.hold((self.events, self.counts, self.snaps, held))
        stages = {
            name: Stage(name=name, inputs=(self.events,), output=output, deterministic=name == "plain")
            for name, output in outputs.items()
        }
        topics = (self.events, self.snaps, *outputs.values())
        regions = [
            RegionLogs(name=name, source=self.events, output=output, dead_letters=self.dead[name], repeats=False)
            for name, output in outputs.items()
        ]
        Shape(
            layout=Layout(stages=stages, partitions=dict.fromkeys(topics, 1), held={held: self.snaps}),
            regions=tuple(regions),
            batches=(),
            processors={name: (name,) for name in outputs},
        ).write(self.home.path)

    def _run(self, place: Place, name: str, output: LogId) -> None:
        """Record what a run of a region leaves behind: decisions, checkpoints, and results."""
        store, logs = self.home.store, (output, self.dead[name])
        first = {log: {0: Offset(0)} for log in logs}
        partitions = dict.fromkeys((self.events, *logs), 1)
        store.create_region(
            name,
            RegionRecord(fingerprint={}, start_offsets={self.events: {0: Offset(0)}}, partitions=partitions),
            first,
        )
        incarnation = store.open_incarnation(name, PointNumber(-1))
        lanes.record(place, name, incarnation, 1)
        folder = self.home.checkpoint(name)
        for kind in ("commits", "offsets"):
            (folder / kind).mkdir(parents=True)
        for batch in range(BATCHES):
            (folder / "commits" / str(batch)).write_text("v1\n{}")
            (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps({self.events: {'0': batch + 1}})}")
            for log in logs:
                self.wire.send(log, [b"{}"])
            ends = {log: {0: Offset(batch + 1)} for log in logs}
            store.observe_tail(
                name, TailRecord(valid_from_commit=BatchId(batch), incarnation=incarnation, positions=ends)
            )

    def visit(self, connection: Connection, *, runs: bool = False) -> OfflineApplication:
        """Return a visit as the commands make it."""
        return OfflineApplication(self.app, self.home, connection, runs=runs)
