"""A sink's topic loses acknowledged results, as after an unclean leader election: the next start is refused."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

import falkirk as fk
from falkirk.errors import LogError
from falkirk.errors.conditions.kafka_client import RANGE_EXPIRED
from falkirk.kafka_client.ranges import LogRecord
from falkirk.kafka_client.signing import VerifiedHeader
from falkirk.plan.region import BatchLogs
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import RegionRecord, Store
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.recovery.protocol.ports import Checkpoint, Health
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.runtime.spark import outputs
from falkirk.runtime.spark.application import logs as logs_of_application
from falkirk.runtime.spark.application.logs import KafkaLogs
from falkirk.runtime.spark.epochs.at_rest import epoch_log_of
from falkirk.runtime.spark.sinks.release import EpochReleaser
from falkirk.runtime.spark.sinks.topic import TopicTarget
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import EpochNumber, Incarnation, LogId, Offset
from falkirk.theory.times import TopicPartition
from tests.support import wait_until
from tests.unit.epochs.test_backpressure import session
from tests.unit.kafka.test_sink_ages import LOG, SOURCE, Batch, Logs

RELEASED = 3


@dataclass
class Broker:
    """Topics of one partition each, by how many records they have."""

    counts: dict[str, int] = field(default_factory=dict)

    def end_positions(self, topic: str) -> dict[int, int]:
        return {0: self.counts.get(topic, 0)}

    def first_positions(self, topic: str) -> dict[int, int]:
        return {0: 0}


class Topic(TopicTarget):
    """A topic that gets one record per epoch."""

    def deliver(self, epoch: EpochNumber, rows: object, *, few: bool = False) -> None:
        self._place.topics.counts[self.topic] = self._place.topics.counts.get(self.topic, 0) + 1  # type: ignore[attr-defined]


class Application:
    """One region whose results wait for a checkpoint, in a topic (`held`) or as the epochs of a batch."""

    def __init__(self, store: Store, path: Path) -> None:
        self.store, self.path, self.broker = store, path, Broker({"out": 4, "dead": 0})
        data = LocalData(path)
        home = SimpleNamespace(store=store, data_of=lambda name: data, identity="deadbeef", application="a")
        self.place = cast(Any, SimpleNamespace(
            home=home, topics=self.broker, connection=None, verifier=lambda topic: None,
            note_foreign=lambda topic, found: None, oldest=self.broker.first_positions,
        ))  # fmt: skip

    def start(self) -> RecoveryProtocol:
        """Open the home as a new process does."""

    def release(self) -> None:
        """Publish all results, and stop."""


class OfLive(Application):
    def __init__(self, store: Store, path: Path) -> None:
        super().__init__(store, path)
        self.broker.counts["held"] = RELEASED

    def start(self) -> RecoveryProtocol:
        stage = Stage(name="r", inputs=("in",), output="held", deterministic=False)
        layout = Layout({"r": stage}, {"in": 1, "held": 1, "out": 1}, {"held": "out"})

        def copy(held: str, sink: str, first: dict[int, int], last: dict[int, int]) -> None:
            self.broker.counts[sink] += last[0] - first[0]

        def at(topic: str, length: int) -> OffsetFrontier:
            return OffsetFrontier.of({TopicPartition(topic=topic, partition=0): length})

        checkpoints = (
            Checkpoint(number=-1, read=at("in", 0), sent=at("held", 0)),
            Checkpoint(number=1, read=at("in", 9), sent=at("held", RELEASED)),
        )
        region = SimpleNamespace(
            checkpoints=lambda: checkpoints, health=lambda: Health(runs=True), fence=lambda: None,
            rewind=lambda number: None, start=lambda number: None, beyond=lambda number, upto: (),
            keep_only=lambda numbers: None,
        )  # fmt: skip
        logs = KafkaLogs(layout, self.place, self.broker.end_positions, copy)
        logs.delete_below = logs.acknowledge = lambda topic, upto: None  # type: ignore[method-assign]
        recovery = RecoveryProtocol(layout, {"r": cast(Any, region)}, logs, self.store, lambda: 0.0)
        recovery.open()
        return recovery

    def release(self) -> None:
        self.start().turn()
        assert [r.released_exclusive for r in self.store.releases("out")] == [RELEASED]


class OfBatch(Application):
    def __init__(self, store: Store, path: Path) -> None:
        super().__init__(store, path)
        path.mkdir()
        store.create_region("b", RegionRecord(fingerprint={}, start_offsets={SOURCE: {0: 0}}, partitions={}), {})

    def start(self) -> RecoveryProtocol:
        logs = BatchLogs(name="b", log=LOG, topics=(SOURCE,), files=(), sinks=("out",), dead_letters="dead")
        epochs = epoch_log_of(logs, self.place)
        settle = self.broker.end_positions
        out = Topic(self.place, fk.Kafka("out"), settle)
        dead = Topic(self.place, fk.Kafka("dead"), settle, encoded=True)
        self.releaser = EpochReleaser(epochs, {"out": out}, dead, StructType())
        layout = Layout({"b": Stage(name="b", inputs=(SOURCE,), output=LOG)}, {SOURCE: 1, LOG: 1, "s": 1}, {LOG: "s"})
        recovery = RecoveryProtocol(
            layout, {"b": Batch(logs, self.place, epochs)}, Logs({LOG: epochs}, {LOG: self.releaser}, session()),
            self.store, lambda: 0.0,
        )  # fmt: skip
        recovery.open()
        return recovery

    def release(self) -> None:
        recovery, epochs = self.start(), epoch_log_of(
            cast(Any, SimpleNamespace(name="b", log=LOG)), self.place
        )  # fmt: skip
        for _ in range(RELEASED):
            n = epochs.decide({SOURCE: {0: 0}}, {SOURCE: {0: 0}}, {}, 0.0)
            (self.path / f"{n}-aa").mkdir()
            epochs.record(n, folder=f"{n}-aa", rows=1, dead=0, state=None, saved=True)

        def is_out() -> bool:
            recovery.turn()
            return [r.released_exclusive for r in self.store.releases("s")] == [RELEASED]

        wait_until(is_out, 30, "the release")


@pytest.fixture(params=[OfLive, OfBatch])
def released(
    request: pytest.FixtureRequest, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Application:
    """All results are published, and the home has recorded that. No reader finds a record of this home."""
    monkeypatch.setattr(outputs, "read_range", lambda *arguments, **more: iter(()))
    made: Callable[[Store, Path], Application] = request.param
    application = made(store, tmp_path / "epochs")
    application.release()
    assert application.broker.counts["out"] == 4 + RELEASED
    return application


def test_a_sink_that_lost_released_results_is_refused(released: Application) -> None:
    """Taken for complete, its results would be missing silently."""
    released.start()
    released.broker.counts["out"] -= 1
    for _ in range(2):
        with pytest.raises(LogError) as refused:
            released.start()
        assert refused.value.condition == "SINK_TRUNCATED"
        assert refused.value.parameters.items() >= {"topic": "out", "truncated": {0: (7, 6)}}.items()


def test_dead_letters_may_be_deleted(released: Application) -> None:
    released.broker.counts["dead"] = 0
    released.start()


def test_a_sink_that_others_write_to_as_well_is_accepted(released: Application) -> None:
    released.broker.counts["out"] += 5
    released.start()


def test_results_that_are_published_while_a_command_looks_are_no_loss(released: Application) -> None:
    """A command reads where the topic ends. Then the running application publishes more, and records the new end."""
    ends = released.broker.end_positions("out")
    released.broker.counts["out"] += 1
    sink = "out" if released.store.releases("out") else "s"
    (known,) = released.store.releases(sink)
    after = {LogId("out"): {0: Offset(ends[0] + 1)}}
    released.store.record_release(sink, known.topic, known.partition, Offset(known.released_exclusive + 1), ends=after)
    assert list(outputs.last_records(released.place, "out", ends)) == []  # type: ignore[arg-type]
    released.broker.counts["out"] -= 1
    with pytest.raises(LogError, match="Kafka lost records"):
        list(outputs.last_records(released.place, "out", ends))  # type: ignore[arg-type]


def test_a_command_does_not_read_a_held_log_that_the_application_deletes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command takes a running release for an interrupted one. It never publishes omitted results itself."""
    application = OfLive(store, tmp_path)
    record = LogRecord(partition=0, offset=Offset(5), timestamp_ms=0, key=None, value=b"", raw_header=None)

    def read_range(connection: object, topic: str, first: dict[int, int], last: dict[int, int], **more: object) -> Any:
        if topic == "held":
            raise RANGE_EXPIRED.error(where=topic, topic=topic, partition=0)
        return iter([record] if first[0] <= record.offset < last[0] else [])

    for module in (outputs, logs_of_application):
        monkeypatch.setattr(module, "read_range", read_range)
    monkeypatch.setattr(outputs, "has_lanes", lambda place, region: False)
    stamp = VerifiedHeader(incarnation=Incarnation(1), numbers=(0, 0, 2), state="", signed=True)
    application.place.verifier = lambda topic: SimpleNamespace(verify_record=lambda record: stamp)
    application.place.void = lambda topic: SimpleNamespace(has=lambda *place: False)
    application.broker.counts["out"] = 4
    layout = Layout(
        {"r": Stage(name="r", inputs=("in",), output="held")}, {"in": 1, "held": 1, "out": 1}, {"held": "out"}
    )  # fmt: skip
    store.record_decision("sink", "beginning of out", 0, {"0": 4})
    application.broker.counts["out"] = 6
    of_command = KafkaLogs(layout, application.place, application.broker.end_positions)
    assert of_command.copied("held", "out") == OffsetFrontier.of({TopicPartition(topic="held", partition=0): 3})
    of_host = KafkaLogs(layout, application.place, application.broker.end_positions, lambda *copied: None)
    with pytest.raises(LogError, match="were deleted"):
        of_host.copied("held", "out")
