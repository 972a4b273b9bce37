"""Rigs: one region between two logs, simulated or on real Spark, with the same interface."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import read_range
from falkirk.plan.planner import plan_application
from falkirk.plan.shape import planned_shape
from falkirk.plan.topics import prepare_topics
from falkirk.recovery.decision_store import Store
from falkirk.recovery.ownership.folder import open_home
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.recovery.protocol.ports import LogsPort, RegionPort
from falkirk.runtime.spark.application.logs import KafkaLogs
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.runtime.spark.sinks import copying, writing
from falkirk.spark_setup.broker import Broker
from falkirk.theory.times import TopicPartition
from tests.integration.live import Wire
from tests.simulation.elements import Element, compute
from tests.simulation.world import World
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Place = tuple[int, int]
"""(partition, offset)"""


class Rig(Protocol):
    """A region that does not run yet, and its topics: `source`, `output` and `sink`."""

    source: str
    output: str
    sink: str
    layout: Layout
    region: RegionPort
    logs: LogsPort
    store: Store

    def feed(self, number: int) -> None:
        """Append this many records to the input, and wait until the running region has sent their results."""

    def save(self) -> int:
        """Let the region make a checkpoint of all its input; return the checkpoint's number."""

    def causes(self, topic: str) -> dict[Place, Place]:
        """Return the records of a topic: for the place of each one, the (partition, offset) in its stamp."""


class SimulatedRig:
    source, output, sink = "in", "out", "outside"

    def __init__(self, folder: Path) -> None:
        stages = {"region": Stage(name="region", inputs=("in",), output="out")}
        self.layout = Layout(stages=stages, partitions={"in": 2, "out": 2, "outside": 2}, held={"out": "outside"})
        self.world = World(self.layout, random.Random(1), lag=0.0)
        self.store = self.world.store = Store(folder / "contract.db")
        self._region = self.world.regions["region"]
        self.region: RegionPort = self._region
        self.logs: LogsPort = self.world
        self._fed = 0

    def feed(self, number: int) -> None:
        while number:
            element = Element(key=f"k{self._fed % 5}", path=f"p{self._fed}", digest="")
            self._fed += 1
            if not self._answers(element):
                continue
            partition = self._fed % 2
            self.world.logs[TopicPartition(topic="in", partition=partition)].elements.append(element)
            number -= 1
        self._work()

    def _work(self) -> None:
        if who := self._region.running:
            while self._region.step(who):
                pass
            self._region.deliver(who, len(who.outbox))

    def _answers(self, element: Element) -> bool:
        """Return whether the element gives exactly one record, as in the real region."""
        return len(compute(self._region.stage, "", element, 0)[1]) == 1

    def save(self) -> int:
        assert self._region.running is not None
        self._work()
        self._region.checkpoint(self._region.running)
        return max(self._region.saved)

    def causes(self, topic: str) -> dict[Place, Place]:
        return {
            (e.partition, log.first + i): (x.stamp[1], x.stamp[2])
            for e, log in self.world.partitions(topic)
            for i, x in enumerate(log.elements[log.first :])
        }


class LiveRig:
    def __init__(self, context: Context, wire: Wire, app: fk.App) -> None:
        plan = plan_application(app, context.session, context.home.identity)
        prepare_topics(plan, context.topics, create_missing=True)
        self._live, self._context, self._wire = LiveRegion(plan.regions[0], context), context, wire
        self._live.prepare()
        self.region: RegionPort = self._live
        self.store = context.home.store
        self.source, self.output = plan.regions[0].source.topic.topic, plan.regions[0].output.topic
        self.sink = wire.topic("outside")
        shape = planned_shape(plan, context.topics)
        self.layout = Layout(
            stages=shape.layout.stages,
            partitions={**shape.layout.partitions, self.sink: 2},
            held={self.output: self.sink},
        )

        settle = partial(writing.settle, context)
        self.logs: LogsPort = KafkaLogs(self.layout, context, settle, partial(copying.copy, context))
        self._fed = 0

    def feed(self, number: int) -> None:
        before = self._wire.count(self.output)
        for _ in range(number):
            self._wire.send(self.source, [{"word": f"k{self._fed % 5}", "n": self._fed}], partition=self._fed % 2)
            self._fed += 1
        if self._live.health().runs:
            self._await(lambda: self._wire.count(self.output) >= before + number, "results")

    def save(self) -> int:
        ends = self._context.topics.end_positions(self.source)

        def saved() -> bool:
            self._live.observe()
            newest = self._live.checkpoints()[-1]
            return all(newest.read.length(TopicPartition(topic=self.source, partition=p)) >= o for p, o in ends.items())

        self._await(saved, "a checkpoint of everything")
        return self._live.checkpoints()[-1].number

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        def met() -> bool:
            assert self._live.failure() is None, self._live.failure()
            return condition()

        wait_until(met, 120, what)

    def causes(self, topic: str) -> dict[Place, Place]:
        topics = self._context.topics
        first, ends = topics.first_positions(topic), topics.end_positions(topic)
        found = {}
        for record in read_range(self._context.connection, topic, first, ends):
            assert record.header is not None
            found[record.partition, record.offset] = (record.header.stamp.partition, record.header.stamp.offset)
        return found


@contextmanager
def live_rig(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> Iterator[LiveRig]:
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    app = fk.App("contract", home=home)
    app.source("events", fk.Kafka(wire.topic("in"), schema="word STRING NOT NULL, n INT"))
    app.add_processor(
        "passed", lambda events: events.select("word", "n"), reads=("events",), policy=fk.Lazy("1 second")
    )
    app.sink("out", "passed", fk.Kafka(wire.topic("out"), key="word"))
    with open_home(home, app.name) as held:
        context = Context(session=spark, connection=Connection.of(broker.bootstrap), home=held, state_partitions=2)
        rig = LiveRig(context, wire, app)
        try:
            yield rig
        finally:
            rig._live.end("stopped")
