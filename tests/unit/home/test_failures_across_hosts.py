"""A processor whose failure takes the Spark application each time: its host is replaced a few times, and then it stays
down in a host that runs the others. The coordinator is the real one, and its hosts are simulated."""

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors import SparkError
from falkirk.errors.location import SourceLocation
from falkirk.recovery.ownership.guard import EXIT_FATAL
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.runtime.spark.retry import FAILURES_MAX
from falkirk.runtime.spark.status import RegionStatus
from falkirk.runtime.supervision import coordinator as supervise
from falkirk.runtime.supervision import failures as counting
from falkirk.runtime.supervision.coordinator import AWAY_PAUSE_S, FRUITLESS_MAX, Coordinator
from falkirk.runtime.supervision.failures import IDLE_S, Cause, Failures, cause_of, has_progressed
from falkirk.runtime.supervision.process import EXIT_RESTART, write_status
from falkirk.runtime.supervision.settings import HostSettings, RunSettings
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import Offset
from falkirk.theory.times import TopicPartition
from tests.unit.home.stand_ins import host_process

WHERE = SourceLocation(file="shop.py", line=3, text="")
LOST = SparkError("SESSION_LOST", "executors on a cluster may still write.", certainty="maybe")
#: Without an end, there are more hosts than this.
HOSTS_MAX = 2 * FAILURES_MAX + 2


class Cluster:
    """Hosts of an application with the region `good` and some that fail.

    Args: bad: the regions that fail, one after another, one in each host. commits: `good` makes a checkpoint in each
        host. cause: of all failures.

    Attributes: hosts: how many there were. down: the regions that stay down in the last one, with their texts.
    """

    def __init__(self, home: Path, *bad: str, commits: bool, cause: Cause = Cause.OWN, enough: int = HOSTS_MAX) -> None:
        self._home, self._bad, self._commits, self._cause, self._enough = home, bad, commits, cause, enough
        self.hosts, self.down = 0, dict[str, str]()
        self.stop = lambda: None

    def start(self, home: Path) -> Any:
        """Stand for `start_process`."""
        return host_process(self._run)

    def _run(self, settings: HostSettings) -> Iterator[int | None]:
        """Yield the exit code, and None before, while it runs and the coordinator reads the status."""
        self.hosts += 1
        failures, left = Failures(settings.failures), list[str]()
        for name in ("good", *self._bad):
            try:
                failures.begin(name, WHERE)
                left.append(name)
            except SparkError as error:
                self.down[name] = str(error)
        if self._commits:
            failures.forget("good")
        commit = self.hosts if self._commits else -1
        good = RegionStatus(name="good", state="running", last_commit=commit)
        write_status(self._home, (good,), failures=failures)
        yield None
        failing = [name for name in left if name != "good"]
        if not failing or self.hosts == self._enough:
            self.stop()
            yield 0
        failures.add(failing[self.hosts % len(failing)], "no such n", self._cause)
        write_status(self._home, (good,), failures=failures, error=LOST)
        yield EXIT_RESTART


class Impatient(threading.Event):
    """An event for which nobody waits: the hosts here are quick. It notes how long somebody would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_s: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits_s.append(timeout)
        return self.is_set()


def run(cluster: Cluster, home: Path) -> None:
    app = fk.App("shop", kafka="127.0.0.1:1", home=home)
    coordinator = Coordinator(app, RunSettings(file=Path(__file__)), say=lambda text: None, start=cluster.start)
    coordinator._stopping = Impatient()
    cluster.stop = coordinator.stop
    coordinator.run()


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("bad", [("a",), ("a", "b")])
def test_a_region_stays_down_after_a_few_spark_applications(
    bad: tuple[str, ...], commits: bool, tmp_path: Path
) -> None:
    """Before, there was no end if another region made checkpoints. Without any, the whole application ended."""
    cluster = Cluster(tmp_path / "home", *bad, commits=commits)
    run(cluster, tmp_path / "home")
    assert cluster.hosts == FAILURES_MAX * len(bad) + 1
    assert cluster.down.keys() == {*bad}
    assert f"'a' failed {FAILURES_MAX} times without a checkpoint in between: no such n" in cluster.down["a"]


@pytest.mark.parametrize("has_run", [True, False])
def test_a_refusal_of_the_master_ends_only_a_first_start(tmp_path: Path, *, has_run: bool) -> None:
    """A master that restarts may refuse for longer than a few starts take, and the application may have run for weeks.

    Before, the fifth refusal ended it.
    """
    home, hosts = tmp_path / "home", list[HostSettings]()
    enough = FRUITLESS_MAX + 3

    def refused(settings: HostSettings) -> Iterator[int | None]:
        hosts.append(settings)
        if len(hosts) == enough:
            coordinator.stop()
            yield 0
        runs = has_run and len(hosts) == 1
        write_status(home, (RegionStatus(name="good", state="running" if runs else "starting", last_commit=-1),))
        yield None
        write_status(home, (), error=SparkError("MASTER_REFUSED", "the master refuses the connection: closed."))
        yield EXIT_FATAL

    app = fk.App("shop", kafka="127.0.0.1:1", home=home)
    settings = RunSettings(file=Path(__file__))
    coordinator = Coordinator(app, settings, say=lambda text: None, start=lambda home: host_process(refused))
    coordinator._stopping = paused = Impatient()
    with nullcontext() if has_run else pytest.raises(SparkError, match="refuses the connection"):
        coordinator.run()
    assert len(hosts) == (enough if has_run else 1)
    assert paused.waits_s.count(AWAY_PAUSE_S) == len(hosts) - 1, "a pause before each start that follows a refusal"
    assert all(each.died_at_s is None for each in hosts), "the time of an outage is not that of a restart"


def test_without_the_counts_there_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with the mechanism off: the next host learns nothing."""
    monkeypatch.setattr(Failures, "describe", lambda failures: {})
    cluster = Cluster(tmp_path / "home", "a", commits=True)
    run(cluster, tmp_path / "home")
    assert (cluster.hosts, cluster.down) == (HOSTS_MAX, {})
    cluster = Cluster(tmp_path / "other", "a", commits=False)
    with pytest.raises(SparkError) as ended:
        run(cluster, tmp_path / "other")
    assert (ended.value.condition, cluster.hosts) == ("HOST_KEEPS_FAILING", FRUITLESS_MAX)


def test_stray_connections_never_end_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the fifth one in a row without a checkpoint did."""
    cluster = Cluster(tmp_path / "home", "a", commits=False, cause=Cause.STRAY)
    run(cluster, tmp_path / "home")
    assert (cluster.hosts, cluster.down) == (HOSTS_MAX, {})
    monkeypatch.setattr(supervise, "are_more", lambda after, before: False)
    with pytest.raises(SparkError) as ended:
        run(Cluster(tmp_path / "other", "a", commits=False, cause=Cause.STRAY), tmp_path / "other")
    assert ended.value.condition == "HOST_KEEPS_FAILING"


def test_lost_executors_are_no_failures_of_a_query(tmp_path: Path) -> None:
    """A query that fails with its executor is not counted itself, because the executor's machine may be the cause.

    The end of the Spark application is counted, for each region without progress: see test_lost_executors.py. (Before,
    this test covered regions and both counts: an end of the Spark application was never counted.)
    """
    cluster = Cluster(tmp_path / "home", "a", commits=True, cause=Cause.LOSS)
    run(cluster, tmp_path / "home")
    assert (cluster.hosts, cluster.down) == (HOSTS_MAX, {})
    with pytest.raises(SparkError) as ended:
        run(Cluster(tmp_path / "other", "a", commits=False, cause=Cause.LOSS), tmp_path / "other")
    assert ended.value.condition == "HOST_KEEPS_FAILING"
    assert cause_of(RuntimeError("ExecutorLostFailure"), was_lost=True) is Cause.LOSS


@pytest.mark.parametrize(
    ("numbers", "read", "ran_s", "further"),
    [
        ([4, 5], [7, 7], 9.0, False),  # a batch that ended before its tasks began
        ([4, 5], [7, 8], 9.0, True),
        ([3, 4, 5, 6], [6, 7, 7, 7], 9.0, False),
        ([4, 5, 6, 7], [7, 7, 7, 7], IDLE_S + 1, True),  # there is no input
        ([5, 6], [7, 8], 9.0, True),  # the checkpoint from which it resumed is deleted
        ([4], [7], IDLE_S + 1, False),
        ([], [], IDLE_S + 1, False),
    ],
)
def test_a_checkpoint_without_input_is_no_progress(
    numbers: list[int], read: list[int], ran_s: float, further: bool
) -> None:
    partition = TopicPartition(topic="events", partition=0)
    checkpoints = [
        Checkpoint(number=number, read=OffsetFrontier.of({partition: upto}), sent=OffsetFrontier.of({}))
        for number, upto in zip(numbers, read, strict=True)
    ]
    assert has_progressed(checkpoints, 4, {}, ran_s) is further


#: The input of a region that failed: partition 1 had none behind the checkpoint.
DUE = {TopicPartition(topic="events", partition=p): Offset(o) for p, o in ((0, 7), (2, 30))}


@pytest.mark.parametrize(
    ("read", "ran_s", "further"),
    [
        ((7, 20, 31), 9.0, False),  # the value on which it failed may be in partition 0
        ((8, 20, 30), 9.0, False),
        ((8, 20, 31), 9.0, True),
        ((7, 25, 30), 9.0, False),
        ((7, 20, 31), IDLE_S + 1, True),
    ],
)
def test_progress_of_some_partitions_does_not_clear_the_count(
    read: tuple[int, ...], ran_s: float, further: bool
) -> None:
    """Before, a region with several partitions was hardly ever counted: any partition's progress cleared it."""
    checkpoints = [
        Checkpoint(
            number=number,
            read=OffsetFrontier.of({TopicPartition(topic="events", partition=p): o for p, o in enumerate(upto)}),
            sent=OffsetFrontier.of({}),
        )
        for number, upto in ((4, (7, 20, 30)), (5, read))
    ]
    assert has_progressed(checkpoints, 4, DUE, ran_s) is further


def test_a_checkpoint_and_a_rollback_give_all_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "FAILURES_MAX", 2)
    failures = Failures({"a": {"failures": 2, "strays": 0, "reason": "no such n"}})
    with pytest.raises(SparkError):
        failures.begin("a", WHERE)  # as the host starts
    assert failures.is_exhausted("a"), "the next host must know it too"
    failures.begin("a", WHERE)  # a recovery moves it
    assert not failures.is_exhausted("a")
    asked = Failures({"a": {"failures": 2, "strays": 0, "reason": "no such n"}})
    asked.forget_all()
    asked.begin("a", WHERE)
    failures.add("a", "no such n")
    failures.forget("a")
    assert failures.describe() == {}
