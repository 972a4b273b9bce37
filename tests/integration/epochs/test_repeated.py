"""Small direct epochs that one job sends: it is planned once, and each result is in the topic once all the same."""

import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors.conditions.spark import RELEASE_FAILED_TARGET
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.epochs import direct, repeated, repeated_job
from falkirk.runtime.spark.epochs.jobs import EpochJobs
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.epochs.repeated_job import RepeatedJob
from falkirk.runtime.spark.epochs.runner import EpochRunner
from falkirk.runtime.spark.sinks import topic
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from falkirk.theory.ids import LogId
from tests.calls import counted
from tests.integration.cutting import Place, cut_off_at
from tests.integration.live import Wire, failed
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 12
#: After as many epochs the job has sent one.
EPOCHS_MAX = 6
#: The topic with the dead letters of the batch.
LETTERS = "repeated-sums.dead-letters"
#: The calls from Python to the JVM for an epoch that the job sends. An epoch with a separate plan makes 80.
CALLS_MAX = 25
#: Where a process ends in an epoch that the job sends.
PLACES: dict[str, Place] = {
    "decided, nothing sent": (RepeatedJob, "run", False),
    "sent, not recorded": (EpochLog, "record", False),
    "recorded": (EpochLog, "record", True),
}


class Sums:
    """Numbers that are sent, and their results.

    Attributes: factor: of the function, which multiplies. planned: the epochs that got separate plans. ran: those
        that the job sent. calls: by epoch, the calls to the JVM. jobs: by epoch, its Spark jobs.
    """

    def __init__(self, broker: Broker, tag: str, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.wire, self.broker, self.factor, self.sent = Wire(bootstrap=broker.bootstrap, tag=tag), broker, 1, 0
        self.numbers, self.sums = self.wire.topic("numbers", partitions=2), self.wire.topic("sums", partitions=3)
        self.home = home
        self.app = fk.App("repeated", home=home)
        self.app.source("numbers", fk.Kafka(self.numbers, schema="n LONG NOT NULL"))
        self.declare()
        self.planned, self.ran = list[int](), list[int]()
        self.calls, self.jobs = dict[int, int](), dict[int, int]()
        self._watch(patch)

    def declare(self) -> None:
        @self.app.stream(fk.Eager())
        def sums(numbers: "DataFrame") -> "DataFrame":
            return numbers.groupBy("n").agg((F.count("*") * self.factor).alias("times"))

        self.app.sink("sums", sums, fk.Kafka(self.sums, key="n"))

    def _watch(self, patch: pytest.MonkeyPatch) -> None:
        compute, job_run, run = EpochJobs.compute, RepeatedJob.run, EpochRunner.run

        def computed(jobs: EpochJobs, epoch: Any, *arguments: Any, **options: Any) -> Any:
            self.planned.append(epoch.number)
            return compute(jobs, epoch, *arguments, **options)

        def repeat(job: RepeatedJob, ranges: str, options: Any) -> Any:
            self.ran.append(int(ranges.split()[0]))
            return job_run(job, ranges, options)

        def ran(runner: EpochRunner, epoch: Any, *arguments: Any) -> None:
            with counted() as calls:
                run(runner, epoch, *arguments)
            self.calls[epoch.number] = calls.total()
            tracker = runner.jobs.session.sparkContext.statusTracker()
            self.jobs[epoch.number] = len(tracker.getJobIdsForGroup(runner.group_of(epoch.number)))

        patch.setattr(EpochJobs, "compute", computed)
        patch.setattr(RepeatedJob, "run", repeat)
        patch.setattr(EpochRunner, "run", ran)

    def start(self) -> Query:
        return run_here(self.app, Connection.of(self.broker.bootstrap), create_topics=True)

    def send(self, rows: int = ROWS) -> None:
        values = [{"n": n} for n in range(self.sent, self.sent + rows)]
        self.wire.send(self.numbers, values, partition=self.sent // ROWS % 2)
        self.sent += rows

    def arrived(self) -> Counter[int]:
        return Counter(int(row["n"]) for row in self.wire.rows(self.sums))

    def await_all(self, query: Query) -> None:
        def there() -> bool:
            assert query.isActive, query.exception()
            return self.wire.count(self.sums) >= self.sent

        wait_until(there, 120, lambda: str(query.status))

    def run_until_repeated(self, query: Query) -> None:
        """Run epochs until the job has sent one."""
        before = len(self.ran)
        for _ in range(EPOCHS_MAX):
            self.send()
            self.await_all(query)
            if len(self.ran) > before:
                return
        raise AssertionError(f"no epoch was repeated: {self.planned}")

    def send_unfit(self, query: Query, topic: str) -> int:
        """Send a record that does not fit, and one that does, once the job sends epochs. Return how many letters are
        there before."""
        self.run_until_repeated(query)
        before = self.wire.count(LETTERS) if self.wire.topics.exists(LETTERS) else 0
        self.wire.send(topic, [b"no number", {"n": self.sent}])
        self.sent += 1
        self.await_all(query)
        return before

    def assert_once(self) -> None:
        assert self.arrived() == Counter(range(self.sent))

    def epochs(self) -> EpochLog:
        with open_home(self.home, "repeated") as opened:
            log = EpochLog(LogId.of_epochs("sums"), "sums", opened.data_of("sums"), opened.store)
            log.epochs()
            return log


class Two(Sums):
    """The numbers of two topics. Each `send` sends to both, before an epoch is cut."""

    def declare(self) -> None:
        self._cutting = threading.Lock()
        self.others = self.wire.topic("others", partitions=1)
        self.app.source("others", fk.Kafka(self.others, schema="n LONG NOT NULL"))

        @self.app.stream(fk.Eager())
        def sums(numbers: "DataFrame", others: "DataFrame") -> "DataFrame":
            return numbers.unionByName(others).groupBy("n").agg(F.count("*").alias("times"))

        self.app.sink("sums", sums, fk.Kafka(self.sums, key="n"))

    def _watch(self, patch: pytest.MonkeyPatch) -> None:
        super()._watch(patch)
        cut = EpochRunner.cut_if_due

        def cut_if_due(runner: EpochRunner, epochs: Any) -> bool:
            with self._cutting:
                return cut(runner, epochs)

        patch.setattr(EpochRunner, "cut_if_due", cut_if_due)

    def send(self, rows: int = ROWS) -> None:
        with self._cutting:
            super().send(rows)
            self.wire.send(self.others, [{"n": self.sent}])
            self.sent += 1


@pytest.fixture
def sums(broker: Broker, tag: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Sums:
    return Sums(broker, tag, home, monkeypatch)


def test_small_epochs_have_one_plan(spark: "SparkSession", sums: Sums) -> None:
    query = sums.start()
    try:
        for _ in range(3):
            sums.run_until_repeated(query)
        sums.factor = 2  # another result, whose program is recorded before it is sent
        sums.run_until_repeated(query)
    finally:
        query.stop()
    sums.assert_once()
    first, other = 1 + repeated.ORDINARY_MIN, 1
    assert len(sums.planned) == first + other, (sums.planned, sums.ran)
    assert all(sums.jobs[number] == 1 for number in sums.ran)
    usual = sorted(sums.calls[number] for number in sums.ran)[:2]
    assert all(calls <= CALLS_MAX for calls in usual), sums.calls
    times = {int(row["n"]): row["times"] for row in sums.wire.rows(sums.sums)}
    assert times[0] == 1
    assert times[sums.sent - 1] == 2
    assert sum(epoch.rows for epoch in sums.epochs().epochs()) == sums.sent


def test_results_are_there_once_wherever_a_repeated_epoch_was_cut_off(
    spark: "SparkSession", sums: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large epochs have another program, and do not change the program of those that the job sends."""
    monkeypatch.setattr(direct, "FEW_RECORDS", ROWS + 1)
    for place in PLACES.values():
        with pytest.MonkeyPatch.context() as patch:
            query = sums.start()
            try:
                sums.run_until_repeated(query)
                before = len(sums.planned)
                sums.send(10 * ROWS)
                sums.await_all(query)
                assert len(sums.planned) > before, "one was large"
                cut_off_at(place, patch)
                sums.send()
                assert failed(query).condition == "CUT_OFF"
            finally:
                query.stop()
    query = sums.start()
    try:
        sums.send()
        sums.await_all(query)
    finally:
        query.stop()
    sums.assert_once()


def test_a_repeated_epoch_that_is_out_in_part_is_completed_once(
    spark: "SparkSession", sums: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of it comes from a separate plan, whose rows have the same places."""
    planned, run = repeated_job.job_of, RepeatedJob.run

    def half(result: "DataFrame", records: "DataFrame", *others: Any) -> RepeatedJob | None:
        return planned(result, records.where("partition = 0"), *others)

    def fail(job: RepeatedJob, ranges: str, options: Any) -> Any:
        run(job, ranges, options)
        monkeypatch.setattr(RepeatedJob, "run", run)
        raise RELEASE_FAILED_TARGET.error(topic=sums.sums, reason="no answer")

    monkeypatch.setattr(topic, "job_of", half)
    monkeypatch.setattr(RepeatedJob, "run", fail)
    query = sums.start()
    try:
        sums.run_until_repeated(query)
        sums.await_all(query)
    finally:
        query.stop()
    assert sums.ran[0] in sums.planned, "it got a separate plan after its failure"
    sums.assert_once()


def test_dead_letters_of_repeated_epochs_are_there_once(spark: "SparkSession", sums: Sums) -> None:
    query = sums.start()
    try:
        before = sums.send_unfit(query, sums.numbers)
        wait_until(lambda: sums.wire.count(LETTERS) > before, 60, "the letter")
        sums.run_until_repeated(query)
    finally:
        query.stop()
    sums.assert_once()
    assert sums.wire.count(LETTERS) == before + 1
    assert sum(epoch.dead for epoch in sums.epochs().epochs()) == 1


def test_an_epoch_without_records_of_one_topic_has_the_same_program(
    spark: "SparkSession", broker: Broker, tag: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The separate plan that writes the dead letters continues what the job of both topics has sent."""
    two = Two(broker, tag, home, monkeypatch)
    query = two.start()
    try:
        before = two.send_unfit(query, two.others)

        def told() -> bool:
            assert query.isActive, query.exception()
            return two.wire.topics.exists(LETTERS) and two.wire.count(LETTERS) > before

        wait_until(told, 60, "the letter")
    finally:
        query.stop()
    assert set(two.ran) & set(two.planned), "the job has sent the epoch before it got a separate plan"
    two.assert_once()
