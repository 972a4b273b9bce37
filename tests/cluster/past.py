"""A home at rest, without Spark: two live regions with checkpoints, one of which writes a held log, and a batch."""

import json
from dataclasses import dataclass, field

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.internal import KEEP, internal_topic
from falkirk.plan.region import BatchLogs, RegionLogs
from falkirk.plan.shape import Shape
from falkirk.recovery.decision_store import RegionRecord, TailRecord
from falkirk.recovery.ownership.folder import Home
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.runtime.spark import lanes
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.epochs.at_rest import epoch_log_of
from falkirk.theory.ids import BatchId, CheckpointNumber, Incarnation, LogId, Offset
from falkirk.user_tools.commands.history.application import OfflineApplication
from tests.integration.live import Wire
from tests.support import on_disk

#: The checkpoints of each region.
BATCHES = 3


@dataclass
class Past:
    """An application that has run, with fenced outputs.

    Attributes: events, counts, snaps, totals: its topics. held: its held log. dead: its dead letters, by region and
    batch.
    """

    wire: Wire
    home: Home
    events: LogId = field(init=False)
    counts: LogId = field(init=False)
    snaps: LogId = field(init=False)
    totals: LogId = field(init=False)
    held: LogId = field(init=False)

    def __post_init__(self) -> None:
        self.app = fk.App(self.home.application)
        topics = (LogId(self.wire.topic(name, 1)) for name in ("events", "counts", "snaps", "totals"))
        self.events, self.counts, self.snaps, self.totals = topics
        self.held = held = internal_topic(self.home.application, self.home.identity, "held")
        self.wire.topics.create(held, 1, KEEP)
        self.dead = {name: LogId(self.wire.topic(f"{name}-dead", 1)) for name in ("plain", "held", "batch")}
        outputs = {"plain": self.counts, "held": held}
        self.wire.send(self.events, [b"{}"] * BATCHES)
        place = Storage(home=self.home, connection=Connection.of(self.wire.bootstrap))
        for name, output in outputs.items():
            self._run(place, name, output)
        batch = self._run_batch(place)
        for log, sink in ((held, self.snaps), (batch.log, self.totals), (None, self.dead["batch"])):
            lanes.record(place, lanes.of_jobs(sink), Incarnation(1), 1)
            if log is not None:
                self.home.store.record_release(sink, log, 0, Offset(1))
            self.home.store.record_decision("sink", f"beginning of {sink}", 0, {"0": 0})
            self.wire.send(sink, [b"{}"])
        place.hold((self.events, self.counts, self.snaps, self.totals, held))
        stages = {
            name: Stage(name=name, inputs=(self.events,), output=output, deterministic=name == "plain")
            for name, output in outputs.items()
        }
        stages["batch"] = Stage(name="batch", inputs=(self.events,), output=batch.log)
        logs = (self.events, self.snaps, self.totals, batch.log, *outputs.values())
        regions = [
            RegionLogs(name=name, source=self.events, output=output, dead_letters=self.dead[name], repeats=False)
            for name, output in outputs.items()
        ]
        Shape(
            layout=Layout(
                stages=stages, partitions=dict.fromkeys(logs, 1), held={held: self.snaps, batch.log: self.totals}
            ),
            regions=tuple(regions),
            batches=(batch,),
            processors={name: (name,) for name in stages},
        ).write(self.home.path)

    def _run(self, place: Storage, name: str, output: LogId) -> None:
        """Record the data that a run of a region leaves: decisions, checkpoints, and results."""
        store, logs = self.home.store, (output, self.dead[name])
        first = {log: {0: Offset(0)} for log in logs}
        partitions = dict.fromkeys((self.events, *logs), 1)
        store.create_region(
            name,
            RegionRecord(fingerprint={}, start_offsets={self.events: {0: Offset(0)}}, partitions=partitions),
            first,
        )
        incarnation = store.open_incarnation(name, CheckpointNumber(-1))
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

    def _run_batch(self, place: Storage) -> BatchLogs:
        """Record the data that a run of a batch leaves: decisions, and epochs that it can go back to."""

        def batch(events: fk.Stream) -> fk.Stream:
            return events

        self.app.source("events", fk.Kafka(self.events, schema="word STRING"))
        self.app.sink("totals", self.app.batch(every="1 second")(batch), fk.Kafka(self.totals))
        logs = BatchLogs(
            name="batch",
            log=LogId.of_epochs("batch"),
            topics=(self.events,),
            sinks=("totals",),
            dead_letters=self.dead["batch"],
        )
        start = {self.events: {0: Offset(0)}}
        self.home.store.create_region(
            "batch", RegionRecord(fingerprint={}, start_offsets=start, partitions={self.events: 1}), {}
        )
        epochs = epoch_log_of(logs, place)
        for number in range(BATCHES):
            first, last = ({self.events: {0: Offset(number + more)}} for more in (0, 1))
            epoch = epochs.decide(first, last, {}, 0.0)
            folder = epochs.new_folder(epoch)
            on_disk(epochs.path(folder)).mkdir(parents=True)
            epochs.record(epoch, folder=folder, rows=1, dead=0, state=None, saved=True)
        return logs

    def visit(self, connection: Connection, *, runs: bool = False) -> OfflineApplication:
        """Return a visit as the commands make it."""
        return OfflineApplication(self.app, self.home, connection, runs=runs)
