"""Executors of a cluster on this machine: strangers connect to their ports, one is killed, or all hang and resume late.

The checker alone judges the results of counts, and a model in Python those of states with timers.
"""

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from falkirk.platform.free_ports import free_ports
from falkirk.spark_setup.archive import archive_entry, archive_file
from falkirk.spark_setup.broker import Broker
from falkirk.spark_setup.java import find_java
from tests.chaos.counting import assert_exactly_once, counting, visible
from tests.chaos.harness import LIGHT, Application, Load
from tests.chaos.regions import Clicks, assert_timed, running
from tests.cluster.scraped import published
from tests.support import is_alive, suspend, wait_until

TIMERS = Path(__file__).parent / "apps" / "timers.py"
STRIKES_MAX = 3
#: How many results must follow a checkpoint at a strike: more than a transaction of half a second has.
LEAST = 60
MASTER = "local-cluster[2,8,1024]"


@pytest.mark.soak
def test_an_executor_of_a_cluster_is_killed(broker: Broker, home: Path, tag: str) -> None:
    """Metrics count each result once, beyond the death. They do not count results of the last second of an executor or
    its driver, so the load pauses then."""
    (port,) = free_ports(1)
    options = ("--master", MASTER, "--metrics", str(port))
    # The metrics are seconds old, and the results that they count must still follow the checkpoint at the kill.
    with counting(broker, home, tag, *options, INTERVAL="15 seconds") as run:

        def counts_all() -> bool:
            return published(port, "counts")[0] == len(visible(run))

        def wait_counted() -> None:
            run.application.wait(counts_all, 60, lambda: f"{published(port, 'counts')} of {len(visible(run))} results")

        def kill_one() -> Sequence[psutil.Process]:
            assert len(run.application.executors()) == 2
            load.rate = 0.0
            wait_counted()
            host, killed = run.application.host(), run.application.busy_executors(broker)[0]
            killed.kill()
            wait_until(lambda: not is_alive(host), 180, "the Spark application to be replaced")
            load.rate = LIGHT
            return [killed]

        with Load(broker.bootstrap, run.events, rate=LIGHT) as load:
            _strike(run.application, {"counts": run.released}, kill_one)
        assert_exactly_once(run, load.sent)
        wait_counted()
        counted, measured = published(port, "counts")
        print(f"{counted} results counted, {measured} measured")
        assert counted == load.sent
        # In a replay of many records, samples stand for all.
        assert 0.8 * counted < measured < 1.2 * counted


def test_stray_connections_and_executors_that_hang_and_go_on_too_late(broker: Broker, home: Path, tag: str) -> None:
    """The region is keyed, and calls Python: its states expire, and have timers by event time. A model judges it.

    Stray connections end the query: the region restarts alone, since the broker refuses the records that tasks of
    the former incarnation may still send. Before, each one cost a Spark application, and the fifth one in a row ended
    the coordinator.

    An executor that hangs (SIGSTOP) would resume after its region is restarted: it must be dead by then."""
    names, (port,) = ["reminders"], free_ports(1)
    options = ("--master", MASTER, "--metrics", str(port))
    with running(broker, home, tag, TIMERS, *options, sources=["clicks"], names=names, REGIONS=names[0]) as run:

        def stop_all() -> Sequence[psutil.Process]:
            executors = run.application.executors()
            for executor in executors:
                suspend(executor)
            return executors

        results = {"reminders": lambda: run.count("reminders")}
        with Clicks(broker.bootstrap, run.topics["clicks"], rate=LIGHT):
            run.application.wait_committed(0)
            archived = archive_file(archive_entry(find_java()), "spark")
            found = run.application.executors()
            assert found
            for executor in found if archived.is_file() else ():
                assert str(archived) in Path(f"/proc/{executor.pid}/maps").read_text()
            assert _restarted_alone(run.application) == {run.application.host().pid}, "the same Spark application"
            run.application.wait(lambda: min(published(port, "reminders")) > 0, 60, "the reports of executors")
            before = published(port, "reminders")
            for executor in _strike(run.application, results, stop_all):
                with contextlib.suppress(psutil.NoSuchProcess):
                    executor.resume()
                assert not is_alive(executor)
        assert_timed(run)
        # Of the results before the strike, those of the last second are missing.
        run.application.wait(
            lambda: published(port, "reminders")[0] > before[0], 30, "more results in the metrics than before"
        )
        assert published(port, "reminders")[0] <= run.count("reminders")


def _restarted_alone(application: Application) -> set[int]:
    """Connect to the executors until the region had two more incarnations; return the hosts that ran meanwhile."""
    hosts, incarnations = set[int](), set[int]()

    def disturbed() -> bool:
        for executor in application.executors():
            _ask_everywhere(executor)
        if (status := application.status())["regions"]:
            hosts.add(status["pid"])
            incarnations.add(status["regions"][0]["incarnation"])
        return len(incarnations - {0}) > 2

    application.wait(disturbed, 400, "two more incarnations")
    return hosts


def _ask_everywhere(executor: psutil.Process) -> None:
    """Send an HTTP request to each port of an executor that other machines reach."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for connection in executor.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.ip in ("::", "0.0.0.0"):
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", connection.laddr.port), 5) as stray,
                ):
                    stray.sendall(b"GET / HTTP/1.1\r\nHost: stray\r\n\r\n")


def _strike(
    application: Application, results: Mapping[str, Callable[[], int]], strike: Callable[[], Sequence[psutil.Process]]
) -> Sequence[psutil.Process]:
    """Strike behind a checkpoint, and wait for the next Spark application, until one has found results released
    already: a strike may follow a checkpoint that came meanwhile. Return the last target.

    Args: results: the number of published results of the region.
    """
    for _ in range(STRIKES_MAX):
        application.wait_results_behind(results, dict.fromkeys(results, LEAST))
        host, struck = application.host(), strike()
        wait_until(lambda host=host: not is_alive(host), 180, "the Spark application to be replaced")
        application.forget_status()
        application.wait_committed(1)
        if application.suppressed().total() > 0:
            return struck
    raise AssertionError(f"{STRIKES_MAX} strikes met nothing that had been released")


@pytest.fixture(autouse=True)
def _show_log_on_failure(home: Path) -> Iterator[None]:
    yield
    log = home / "host.log"
    if log.exists():
        print(log.read_text(errors="replace")[-2000:])
