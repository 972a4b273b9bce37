"""An executor of a cluster is killed, and others hang and resume too late: judged by the checker alone."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from falkirk.local.broker import Broker
from tests.chaos.counting import Counting, assert_exactly_once, counting, some_behind_a_commit
from tests.chaos.harness import Load, is_alive
from tests.support import suspend, wait_until

STRIKES_MAX = 3


MASTER = "local-cluster[2,8,1024]"


@pytest.mark.soak
def test_an_executor_of_a_cluster_is_killed(broker: Broker, home: Path, tag: str) -> None:
    with counting(broker, home, tag, "--master", MASTER) as run:

        def kill_one() -> Sequence[psutil.Process]:
            assert len(run.application.executors()) == 2
            killed = run.application.busy_executors(broker)[0]
            killed.kill()
            return [killed]

        with Load(broker.bootstrap, run.events) as load:
            _strike(run, kill_one)
        assert_exactly_once(run, load.sent)


def test_executors_of_a_cluster_hang_and_go_on_too_late(broker: Broker, home: Path, tag: str) -> None:
    """An executor that hangs (SIGSTOP) would resume after its region is restarted: it must be dead by then."""
    with counting(broker, home, tag, "--master", MASTER) as run:

        def stop_all() -> Sequence[psutil.Process]:
            executors = run.application.executors()
            for executor in executors:
                suspend(executor)
            return executors

        with Load(broker.bootstrap, run.events) as load:
            for executor in _strike(run, stop_all):
                with contextlib.suppress(psutil.NoSuchProcess):
                    executor.resume()
                assert not is_alive(executor)
        assert_exactly_once(run, load.sent)


def _strike(run: Counting, strike: Callable[[], Sequence[psutil.Process]]) -> Sequence[psutil.Process]:
    """Strike behind a checkpoint, and wait for the next Spark application, until one has found results released
    already: a strike may follow a checkpoint that no status has reported yet. Return the last target."""
    for _ in range(STRIKES_MAX):
        some_behind_a_commit(run)
        host, struck = run.application.host(), strike()
        wait_until(lambda host=host: not is_alive(host), 180, "the Spark application to be replaced")
        run.application.forget_status()
        run.application.wait_committed(1)
        if run.application.suppressed().total() > 0:
            return struck
    raise AssertionError(f"{STRIKES_MAX} strikes met nothing that had been released")


@pytest.fixture(autouse=True)
def _show_log_on_failure(home: Path) -> Iterator[None]:
    yield
    log = home / "host.log"
    if log.exists():
        print(log.read_text(errors="replace")[-2000:])
