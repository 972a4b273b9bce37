"""kill -9 of everything, of Python alone, of an executor: judged by the checker alone."""

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from falkirk.check import Guarantee, read_topic
from falkirk.local.broker import Broker
from tests.chaos.harness import (
    Counting,
    Load,
    assert_exactly_once,
    counting,
    judge_counts,
    some_behind_a_commit,
)
from tests.support import wait_until


def test_three_kills_of_everything_and_one_of_python_alone(broker: Broker, home: Path, tag: str) -> None:
    suppressed = 0
    with counting(broker, home, tag) as run:
        with Load(broker.bootstrap, run.events) as load:
            for _ in range(3):
                some_behind_a_commit(run)
                run.application.kill_everything()
                run.application.wait_committed(0)
                suppressed += run.application.suppressed()
            some_behind_a_commit(run)
            suppressed += _kill_python_alone(run)
        assert_exactly_once(run, load.sent)
    print(f"suppressed over all kills: {suppressed}")
    assert suppressed > 0


def _kill_python_alone(run: Counting) -> int:
    """Kill the host's Python, whose JVM goes on writing, and wait until its successor has saved; return how many
    results that one suppressed."""
    jvm, old = run.application.jvm(), run.application.host()
    old.kill()
    wait_until(lambda: not _alive(jvm), 60, "the JVM of the killed host to be gone")
    run.application.forget_status()
    run.application.wait_committed(1)
    assert run.application.host().pid != old.pid
    suppressed = run.application.suppressed()
    assert suppressed > 0
    return suppressed


def test_an_executor_of_a_cluster_is_killed_and_another_hangs_and_goes_on_too_late(
    broker: Broker, home: Path, tag: str
) -> None:
    """One that hangs (SIGSTOP) would go on once its region is restarted: it must be gone by then."""
    with counting(broker, home, tag, "--master", "local-cluster[2,8,1024]") as run:
        with Load(broker.bootstrap, run.events) as load:
            some_behind_a_commit(run)
            assert len(run.application.executors()) == 2
            host = run.application.host()
            run.application.busy_executors(broker)[0].kill()
            _await_successor(run, host)
            some_behind_a_commit(run)
            executors, host = run.application.executors(), run.application.host()
            for executor in executors:
                executor.suspend()
            _await_successor(run, host)
            for executor in executors:
                with contextlib.suppress(psutil.NoSuchProcess):
                    executor.resume()
                assert not _alive(executor)
        assert_exactly_once(run, load.sent)


def _await_successor(run: Counting, host: psutil.Process) -> None:
    wait_until(lambda: not _alive(host), 180, "the Spark application to be replaced")
    run.application.forget_status()
    run.application.wait_committed(1)
    assert run.application.suppressed() > 0


def test_repeated_delivery_repeats_and_keeps_its_state(broker: Broker, home: Path, tag: str) -> None:
    """The barrier switched off: the same kill must now show, as exact state with repeated delivery."""
    with counting(broker, home, tag, DELIVERY="repeated") as run:
        with Load(broker.bootstrap, run.events) as load:
            some_behind_a_commit(run)
            run.application.kill_everything()
            run.application.wait_committed(1)
        wait_until(lambda: _counted(run) >= load.sent, 180, f"{load.sent} events counted\n{run.application.log()}")
        run.application.wait_next_commit()
        verdict = judge_counts(run.bootstrap, run.events, run.counts)
    print(verdict.counts)
    assert verdict.guarantee is Guarantee.REPEATED_DELIVERY, verdict.anomalies


def _counted(run: Counting) -> int:
    """Return how many events are counted, in whatever number of results."""
    newest: dict[str, int] = defaultdict(int)
    for record in read_topic({"bootstrap.servers": run.bootstrap}, run.counts):
        row = json.loads(record.value or b"{}")
        newest[row["word"]] = max(newest[row["word"]], row["version"])
    return sum(newest.values())


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.fixture(autouse=True)
def _show_log_on_failure(home: Path) -> Iterator[None]:
    yield
    log = home / "host.log"
    if log.exists():
        print(log.read_text(errors="replace")[-2000:])
