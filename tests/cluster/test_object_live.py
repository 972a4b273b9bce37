"""A live region on a cluster whose home is in an object store: executors write its states there.

Each start is in a new folder, as on another machine. So it has the object store and the database alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import START_S, Application
from tests.chaos.test_object_home import CLUSTER, Machines, assert_each_count_once
from tests.postgres import Postgres
from tests.support import suspend_all

ROWS = 10


@contextmanager
def counting(broker: Broker, postgres: Postgres, tag: str, folder: Path) -> Iterator[Machines]:
    """Machines for the count by key, on a cluster of two executors."""
    machines = Machines("live_objects.py", broker, postgres, tag, folder, *CLUSTER)
    try:
        yield machines
    finally:
        machines.objects.close()


def send_and_wait(machines: Machines, application: Application) -> None:
    """Send records, and wait until all results are there."""
    machines.send(ROWS)
    application.wait(machines.are_all_there, START_S, lambda: f"{machines.sent} results")


def resume(suspended: list[psutil.Process]) -> None:
    """Resume processes. The first of them that sees that another machine is the owner may end the others."""
    for each in suspended:
        with suppress(psutil.NoSuchProcess):
            each.resume()


def test_another_cluster_resumes_after_everything_was_killed(
    broker: Broker, postgres: Postgres, tag: str, tmp_path: Path
) -> None:
    with counting(broker, postgres, tag, tmp_path) as machines:
        with machines.application(1) as application:
            send_and_wait(machines, application)
            application.wait_next_commit()
            machines.send(ROWS)  # the last checkpoint does not cover them
            application.kill()
        assert not list((tmp_path / "machine-1").rglob("*.changelog")), "the states are in the object store alone"
        with machines.application(2) as application:
            send_and_wait(machines, application)
            application.wait_next_commit()
        assert_each_count_once(machines)


@pytest.mark.soak
def test_an_executor_is_killed(broker: Broker, postgres: Postgres, tag: str, tmp_path: Path) -> None:
    with counting(broker, postgres, tag, tmp_path) as machines, machines.application(1) as application:
        send_and_wait(machines, application)
        application.wait_next_commit()
        application.busy_executors(broker)[0].kill()
        for _ in range(2):
            send_and_wait(machines, application)
            application.wait_next_commit()
        assert_each_count_once(machines)


@pytest.mark.soak
def test_a_former_owner_that_resumes_harms_nothing(
    broker: Broker, postgres: Postgres, tag: str, tmp_path: Path
) -> None:
    """It is suspended with its executors. Another machine takes over, and then it writes into its own folder."""
    with counting(broker, postgres, tag, tmp_path) as machines, machines.application(1) as former:
        send_and_wait(machines, former)
        former.wait_next_commit()
        machines.send(ROWS)
        suspended = former.processes()
        suspend_all(suspended)
        try:
            with machines.application(2) as application:
                send_and_wait(machines, application)
                application.wait_next_commit()
                resume(suspended)
                for _ in range(3):
                    send_and_wait(machines, application)
                    application.wait_next_commit()
                application.kill()
        finally:
            resume(suspended)
        with machines.application(3) as application:
            send_and_wait(machines, application)
        assert_each_count_once(machines)
