"""Executors that die again and again: a processor whose input kills them stays down, and the others run on.

The coordinator and the counts are the real ones. The hosts are simulated: in each tick, a region may read a value that
kills its executor, and at its interval it makes a checkpoint. A lost executor ends the Spark application.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import falkirk as fk
from falkirk.errors import FalkirkError, LogError, SparkError
from falkirk.errors.location import SourceLocation
from falkirk.recovery.ownership.guard import EXIT_FATAL
from falkirk.runtime.spark.status import RegionStatus
from falkirk.runtime.supervision.coordinator import Coordinator
from falkirk.runtime.supervision.counts import KeptCounts
from falkirk.runtime.supervision.failures import LOSSES_MAX, Failures
from falkirk.runtime.supervision.host import Host
from falkirk.runtime.supervision.process import EXIT_RESTART, write_status
from falkirk.runtime.supervision.settings import COUNTS_FILE, RunSettings
from tests.unit.home.stand_ins import host_process
from tests.unit.home.test_failures_across_hosts import Impatient

WHERE = SourceLocation(file="shop.py", line=3, text="")
LOST = SparkError("SESSION_LOST", "executors on a cluster may still write.", certainty="maybe")
#: Without an end, there are more hosts than this.
HOSTS_MAX = 40
#: A host that has run for this number of ticks loses no executor any more.
TICKS = 60
SEEDS = 300


@dataclass(frozen=True, kw_only=True)
class Region:
    """A region. Args: interval: ticks between checkpoints. kills_at: ticks after its start; None: its input kills
    nothing. has_input: it is not idle."""

    name: str
    interval: int = 1
    kills_at: int | None = None
    has_input: bool = True


class Cluster:
    """Hosts of an application. Args: lost_at: for a host, the tick in which a machine of the cluster is switched off.

    Attributes: hosts: how many there were. down: the regions that stay down in the last one, with their errors.
        commits: the number of checkpoints of each region.
    """

    def __init__(
        self, home: Path, regions: Sequence[Region], lost_at: Callable[[int], int | None] = lambda host: None
    ) -> None:
        self._home, self._regions, self._lost_at = home, {r.name: r for r in regions}, lost_at
        self.hosts, self.down = 0, dict[str, FalkirkError]()
        self.commits = dict.fromkeys(self._regions, 0)
        self.stop = lambda: None

    def start(self, home: Path) -> Any:
        """Stand for `start_process`."""
        return host_process(lambda settings: self._run(Failures(settings.failures)))

    def _run(self, failures: Failures) -> Iterator[int | None]:
        """Yield the exit code, and None before, while it runs and the coordinator reads the status."""
        error = self.run_host(failures)
        write_status(self._home, self._statuses(), failures=failures)
        yield None
        write_status(self._home, self._statuses(), failures=failures, error=error)
        if error is None or self.hosts >= HOSTS_MAX:
            self.stop()
            yield 0
        yield EXIT_RESTART if cast(FalkirkError, error).condition == "SESSION_LOST" else EXIT_FATAL

    def run_host(self, failures: Failures) -> FalkirkError | None:
        """Run one host; return the error that ended it."""
        self.hosts += 1
        self.down, began = {}, dict[str, int]()
        failures.line_up([*self._regions])
        for tick in range(TICKS):
            if tick == 0:
                todo = [name for name in self._regions if not failures.waits(name)]
            else:
                todo = [] if (name := failures.next_trial(self.down)) is None else [name]
            for name in todo:
                try:
                    failures.begin(name, WHERE)
                    began[name] = tick
                except SparkError as error:
                    self.down[name] = error
            if self.down.keys() == self._regions.keys():
                return self.down.popitem()[1]
            kills = [r for r in self._regions.values() if r.name in began and tick - began[r.name] == r.kills_at]
            if kills or self._lost_at(self.hosts) == tick:
                self._note_end(failures)
                return LOST
            for name, since in began.items():
                region = self._regions[name]
                if tick > since and (tick - since) % region.interval == 0 and region.has_input:
                    self.commits[name] += 1
                    failures.forget(name)
        return None

    def _note_end(self, failures: Failures) -> None:
        units = {
            r.name: SimpleNamespace(has_input=lambda r=r: r.has_input, status=RegionStatus(name=r.name, detail="died"))
            for r in self._regions.values()
        }
        host = SimpleNamespace(_units=units, _failures=failures, down=self.down, _have_executors_died=lambda: True)
        Host.note_end(cast(Any, host), LOST)

    def _statuses(self) -> tuple[RegionStatus, ...]:
        found = (
            RegionStatus(name=name, state="running", last_commit=commits - 1) for name, commits in self.commits.items()
        )
        return tuple(s if (error := self.down.get(s.name)) is None else s.failed(error) for s in found)


def run_alone(cluster: Cluster) -> None:
    """Run hosts that pass their counts on, until one loses no executor. It needs no coordinator, and no disk."""
    counts: dict[str, dict[str, Any]] = {}
    while cluster.hosts < HOSTS_MAX:
        failures = Failures(counts)
        if cluster.run_host(failures) is None:
            return
        counts = failures.describe()


def run(cluster: Cluster, home: Path) -> Coordinator:
    """Run the application until it is stopped: after a host that lost no executor, or after too many hosts."""
    app = fk.App("shop", kafka="127.0.0.1:1", home=home)
    coordinator = Coordinator(app, RunSettings(file=Path(__file__)), say=lambda text: None, start=cluster.start)
    coordinator._stopping = Impatient()
    cluster.stop = coordinator.stop
    coordinator.run()
    return coordinator


QUICK, SLOW = Region(name="quick", kills_at=None), Region(name="slow", interval=7)
KILLER = Region(name="killer", interval=3, kills_at=2)


@pytest.mark.parametrize("others", [(QUICK,), (SLOW,), (QUICK, SLOW)])
def test_the_region_that_kills_stays_down_and_is_named(others: tuple[Region, ...], tmp_path: Path) -> None:
    """Before, there was no end beside `quick`, and beside `slow` alone the whole application ended."""
    cluster = Cluster(tmp_path / "home", (*others, KILLER))
    coordinator = run(cluster, tmp_path / "home")
    assert cluster.down.keys() == {"killer"}
    assert cluster.hosts == LOSSES_MAX + 1
    assert f"'killer' has input and made no progress in {LOSSES_MAX} Spark applications" in coordinator.down["killer"]
    assert all(cluster.commits[region.name] > 1 for region in others)


def test_any_regions_of_which_some_kill() -> None:
    """With any order and any intervals, exactly those that kill stay down."""
    beside = 0
    for seed in range(SEEDS):
        draw = random.Random(seed)
        killers = draw.choice([1, 1, 2])
        regions = [Region(name=f"r{n}", interval=draw.randint(1, 8), has_input=draw.random() < 0.8) for n in range(5)]
        regions[:killers] = [
            replace(r, has_input=True, kills_at=draw.randint(0, r.interval)) for r in regions[:killers]
        ]
        wrong = {region.name for region in regions if region.kills_at is not None}
        draw.shuffle(regions)
        cluster = Cluster(Path(), regions)
        run_alone(cluster)
        assert cluster.down.keys() == wrong, f"seed {seed}: {regions}"
        assert cluster.hosts <= LOSSES_MAX + 3 * killers, f"seed {seed}"
        beside += sum(not region.has_input for region in regions)
    assert beside > SEEDS / 2, "hardly a region was idle"


def test_machines_that_are_switched_off_take_no_region_down() -> None:
    """Executors are lost in a dozen Spark applications in a row. Each region makes progress in one of four."""
    ended = 0
    for seed in range(SEEDS):
        draw = random.Random(seed)
        regions = [Region(name=f"r{n}", interval=draw.randint(1, 8)) for n in range(4)]
        lost = {host: 9 if host % 4 == 0 else draw.randint(0, 9) for host in range(1, 13)}
        cluster = Cluster(Path(), regions, lost.get)
        run_alone(cluster)
        ended += cluster.hosts == 13
        assert not cluster.down, f"seed {seed}: {regions} {lost}"
    assert ended == SEEDS


def test_after_losses_without_any_progress_all_regions_run_again(tmp_path: Path) -> None:
    """The cluster recovers before the last count. Each region starts once the one before it has made progress."""
    cluster = Cluster(tmp_path / "home", (QUICK, SLOW), dict.fromkeys(range(1, LOSSES_MAX), 0).get)
    run(cluster, tmp_path / "home")
    assert (cluster.hosts, cluster.down) == (LOSSES_MAX, {})
    assert all(cluster.commits.values())


def test_a_cluster_that_never_runs_ends_the_application(tmp_path: Path) -> None:
    idle = replace(QUICK, has_input=False)
    for regions, hosts, condition in (
        ((QUICK, SLOW), LOSSES_MAX + 2, "REGION_KEEPS_FAILING"),
        ((idle,), LOSSES_MAX, "HOST_KEEPS_FAILING"),
    ):
        home = tmp_path / condition
        cluster = Cluster(home, regions, lambda host: 0)
        with pytest.raises(SparkError) as ended:
            run(cluster, home)
        assert (ended.value.condition, cluster.hosts) == (condition, hosts)


def test_without_the_counts_there_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Failures, "add_loss", lambda failures, name, reason: None)
    cluster = Cluster(tmp_path / "home", (QUICK, KILLER))
    run(cluster, tmp_path / "home")
    assert (cluster.hosts, cluster.down) == (HOSTS_MAX, {})


def test_without_trials_the_others_stay_down_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Failures, "line_up", lambda failures, names: "")
    cluster = Cluster(tmp_path / "home", (QUICK, SLOW, KILLER))
    run(cluster, tmp_path / "home")
    assert cluster.down.keys() == {"slow", "killer"}


def test_the_file_of_a_home_counts_without_a_coordinator(tmp_path: Path) -> None:
    """As under spark-submit, whose supervisor submits the application again. Before, nobody counted."""
    cluster, ends = Cluster(tmp_path, (QUICK, SLOW, KILLER)), list[FalkirkError | None]()
    for _ in range(LOSSES_MAX + 1):
        counts = KeptCounts(tmp_path)
        ends.append(cluster.run_host(counts.failures))
        if ends[-1] is not None:
            counts.end(ends[-1])
    assert ends == [LOST] * LOSSES_MAX + [None]
    assert cluster.down.keys() == {"killer"}
    counts.write()
    counts.end(None)  # the user stops it
    assert not (tmp_path / COUNTS_FILE).exists()


@pytest.mark.parametrize(
    ("error", "keeps"),
    [
        (LOST, True),
        (ConnectionError("the JVM is gone"), True),
        (LogError("BROKER_AWAY", "the broker does not answer", certainty="maybe"), True),
        (SparkError("REGION_KEEPS_FAILING", "nothing is left that can make progress"), False),
        (None, False),
    ],
)
def test_an_end_that_a_new_spark_application_does_not_mend_clears_the_file(
    error: Exception | None, keeps: bool, tmp_path: Path
) -> None:
    counts = KeptCounts(tmp_path)
    counts.failures.add("killer", "no such n")
    counts.write()
    counts.failures.add("killer", "no such n")
    counts.end(error)
    after = KeptCounts(tmp_path).failures.describe()
    kept = {"failures": 2, "strays": 0, "reason": "no such n", "losses": 0, "connections": 0}
    assert after == ({"killer": kept} if keeps else {})


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 3}', '{"a": {"losses": 1, "more": 2}}', '{"a": null}'])
def test_a_damaged_file_counts_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / COUNTS_FILE).write_text(text)
    assert KeptCounts(tmp_path).failures.describe() == {}


def test_only_ends_that_lost_executors_count() -> None:
    """A network that is away says nothing, neither does an error of another kind."""

    def counted(error: BaseException, *, died: bool, is_away: bool = False) -> int:
        def has_input() -> bool:
            if is_away:
                raise LogError("BROKER_AWAY", "the broker does not answer", certainty="maybe")
            return True

        failures = Failures()
        failures.begin("a", WHERE)
        unit = SimpleNamespace(has_input=has_input, status=RegionStatus(name="a"))
        host = SimpleNamespace(_units={"a": unit}, _failures=failures, down={}, _have_executors_died=lambda: died)
        Host.note_end(cast(Any, host), error)
        return failures.of("a").losses

    assert counted(LOST, died=True) == 1
    assert counted(ConnectionError("Answer from Java side is empty"), died=True) == 1
    assert counted(LOST, died=False) == 0
    assert counted(LOST, died=True, is_away=True) == 0
    assert counted(SparkError("REGION_KEEPS_FAILING", "a failed"), died=True) == 0
    assert counted(KeyboardInterrupt(), died=True) == 0
