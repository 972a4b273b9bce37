"""A release fails because an executor of a cluster can't be reached, whose task still writes. Played without Spark."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

import falkirk as fk
from falkirk.errors import SparkError
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark import fence, lanes
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.sinks import release, writing
from falkirk.runtime.spark.sinks.release import EpochReleaser
from falkirk.runtime.spark.sinks.target import release_failed
from falkirk.runtime.spark.sinks.topic import TopicTarget
from tests.support import wait_until
from tests.unit.epochs.test_backpressure import session

ROWS = list(range(6))
#: So many rows are in the topic when the executor is cut off. It sends the others once it is back.
SENT = 2


class Cluster:
    """The topic, and the executors that write to it. Args: cut_off: how many jobs lose their executor."""

    def __init__(self, *, cut_off: int) -> None:
        self.topic, self.late, self.jobs, self.left = list[int](), list[list[int]](), 0, cut_off

    def run(self, rows: list[int]) -> None:
        """Write rows as a job of Spark."""
        self.jobs += 1
        if not self.left:
            self.topic += rows
            return
        self.left -= 1
        self.topic += rows[:SENT]
        self.late.append(rows[SENT:])
        raise RuntimeError("ExecutorLostFailure")

    def end_executors(self) -> None:
        """Let the executors send their records, and end."""
        for rows in self.late:
            self.topic += rows
        self.late.clear()


class Topic(TopicTarget):
    """A topic with one partition. A retry leaves out the rows that it finds there."""

    def __init__(self, context: Any, cluster: Cluster) -> None:
        super().__init__(context, fk.Kafka("out"), lambda name: writing.settle(context, name))
        self._cluster = cluster

    def deliver(self, epoch: int, rows: object, *, few: bool = False) -> None:
        self._found()
        self._last = None  # until the job has finished, only the topic has the position
        left = [row for row in ROWS if row not in self._cluster.topic]
        try:
            writing.write(self._context, self._topic, cast(Any, _Rows(self._cluster, left)), 1_000)
        except RuntimeError as error:
            raise release_failed(self._topic, error) from error


class _Rows:
    """Rows, and Spark's writer of them."""

    def __init__(self, cluster: Cluster, rows: list[int]) -> None:
        self.write = self
        self.format = self.options = self.option = self.mode = lambda *arguments, **more: self
        self.save = lambda: cluster.run(rows)


@pytest.fixture
def epochs(tmp_path: Path) -> Iterator[EpochLog]:
    """One complete epoch, which is not released."""
    store = Store(tmp_path / "decisions.db")
    log = EpochLog("epochs of b", "b", LocalData(tmp_path), store)
    log.decide({"t": {0: 0}}, {"t": {0: 1}}, {}, 0.0)
    log.record(0, folder="0", rows=1, dead=0, state=None, saved=True)
    yield log
    store.close()


def releaser(
    epochs: EpochLog, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *, transactional: bool
) -> EpochReleaser:
    """Return the release of a new Spark application."""
    for name in ("refuse_before", "close_lanes", "fence", "record"):
        monkeypatch.setattr(lanes, name, lambda *arguments: None)
    monkeypatch.setattr(lanes, "are_used", lambda *arguments: False)
    # The broker refuses the tasks of former jobs.
    monkeypatch.setattr(lanes, "fence_for", lambda *arguments: cluster.late.clear() or "token")
    monkeypatch.setattr(lanes, "has_lanes", lambda *arguments: transactional)
    monkeypatch.setattr(lanes, "job_options", lambda *arguments: {})
    monkeypatch.setattr(fence, "producer_options", lambda *arguments: {})
    monkeypatch.setattr(writing, "settled_ends", lambda place, names, where, transactional: {"out": {0: 0}})
    monkeypatch.setattr("falkirk.runtime.spark.sinks.topic.last_records", lambda place, topic, ends: iter(()))
    monkeypatch.setattr(release, "pause_s", lambda tries: 0.0)
    topics = SimpleNamespace(facts=lambda topic: SimpleNamespace(partitions=1))
    context = SimpleNamespace(
        topics=topics,
        session=None,
        transactional=transactional,
        writers={},
        failed_writers=set(),
        home=SimpleNamespace(identity="h"),
    )
    monkeypatch.setattr(Topic, "_context", property(lambda self: context))
    return EpochReleaser(epochs, {"out": Topic(context, cluster)}, None, StructType())


def run(made: EpochReleaser) -> SparkError | None:
    """Release the epoch as a host does; return the error that ends the host."""
    try:
        wait_until(lambda: made.release(session(), 0, 1) == 1, 30, lambda: f"the release: {made.detail}")
    except SparkError as error:
        return error
    return None


def test_on_a_cluster_another_spark_application_tries_again(epochs: EpochLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the same one did, and the topic had the rows of the lost executor twice."""
    monkeypatch.setattr(writing, "writes_elsewhere", lambda session: True)
    cluster = Cluster(cut_off=1)
    first = releaser(epochs, cluster, monkeypatch, transactional=False)
    ended = run(first)
    assert ended is not None
    assert (ended.condition, ended.certainty, ended.parameters["topic"]) == ("SESSION_LOST", "maybe", "out")
    assert (cluster.jobs, first.released()) == (1, 0)
    with pytest.raises(SparkError, match="executors on a cluster may still write"):
        first.visible()  # a recovery asks, and must not use a wrong answer either
    cluster.end_executors()  # the next host waits for that: tests/unit/home/test_executors.py
    assert run(releaser(epochs, cluster, monkeypatch, transactional=False)) is None
    assert cluster.topic == ROWS


@pytest.mark.parametrize(("transactional", "elsewhere"), [(True, True), (True, False), (False, False)])
def test_where_nothing_can_write_any_more_the_same_one_tries_again(
    epochs: EpochLog, monkeypatch: pytest.MonkeyPatch, *, transactional: bool, elsewhere: bool
) -> None:
    """On one machine, Falkirk has waited for the tasks. If the output is fenced, the broker refuses them."""
    monkeypatch.setattr(writing, "writes_elsewhere", lambda session: elsewhere)
    cluster = Cluster(cut_off=2)
    if not elsewhere:
        monkeypatch.setattr(cluster, "end_executors", cluster.late.clear)  # no executor holds anything
    made = releaser(epochs, cluster, monkeypatch, transactional=transactional)
    assert run(made) is None
    assert cluster.jobs == 3
    cluster.end_executors()
    assert cluster.topic == ROWS


def test_with_the_mechanism_off_results_come_twice(epochs: EpochLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "writes_elsewhere", lambda session: False)
    cluster = Cluster(cut_off=1)
    assert run(releaser(epochs, cluster, monkeypatch, transactional=False)) is None
    cluster.end_executors()
    assert cluster.topic == [*ROWS, *ROWS[SENT:]]
