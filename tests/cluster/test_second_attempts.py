"""Tasks that Spark runs twice on a cluster: in live regions, and in releases of epochs. See bed.py."""

import os
import re
import time
from pathlib import Path

import pytest

from falkirk.check import Guarantee
from tests.chaos.harness import Load
from tests.cluster.application import repeated, verdicts
from tests.cluster.bed import PATIENCE_S, Bed, assert_exactly_once, running
from tests.cluster.net import refused
from tests.support import suspend, wait_until

pytestmark = pytest.mark.skipif(refused() is not None, reason=str(refused()))
#: The interval of the regions in apps/several.py.
INTERVAL_S = 3.0
#: The errors by which the broker refuses a producer whose id another one has taken.
_REFUSED = re.compile(r"ProducerFenced|InvalidProducerEpoch")


def test_a_lost_worker(bed: Bed, tmp_path: Path) -> None:
    """kill -9 of a worker's JVM, and its executor goes with it. Spark runs the tasks that were there again, and does
    not count that as a failure. The executor that is left stands still until their batch is over, so that these second
    attempts read nothing. Without a keyed region nothing else ends the application."""
    with running(bed, tmp_path, "passed", "drawn") as run:
        with Load(bed.broker.bootstrap, run.topics["events"], rate=100) as load:
            run.wait_flowing()
            before, again = run.incarnations(), bed.tasks_run_again("worker2")
            run.wait_within_a_batch("passed")
            (left,) = bed.cluster.workers["worker2"].executors()
            suspend(left)
            bed.cluster.kill_worker("worker1")
            killed_s = time.monotonic()
            wait_until(lambda: time.monotonic() > killed_s + INTERVAL_S + 1, PATIENCE_S, "the batch to be over")
            left.resume()
            wait_until(lambda: bed.tasks_run_again("worker2") > again, PATIENCE_S, lambda: f"an attempt\n{run.log()}")
            bed.cluster.start_worker("worker1")
            run.wait_replaced(before)
            run.wait_flowing()
        assert_exactly_once(run, load.sent)


@pytest.mark.parametrize("fenced", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_release_on_an_executor_that_nobody_can_reach(bed: Bed, tmp_path: Path, *, fenced: bool) -> None:
    """A task that releases an epoch stands still, with its executor, and Spark gives the executor up. Fenced, the same
    Spark application releases the epoch from the other worker. Then the task resumes, and nothing but the broker can
    stop it. Not fenced, the next Spark application waits until the executor has ended, and finds what it has sent.
    (When the same one tried again, 104 of 9,460 results came twice.)"""
    gate = tmp_path / "gate"
    gate.mkdir()
    os.mkfifo(gate / "resume")
    with running(bed, tmp_path, "epochs", GATE=str(gate), FENCED="jobs" if fenced else "no") as run:
        with Load(bed.broker.bootstrap, run.topics["events"], rate=50) as load:
            run.wait_for((gate / "stands still").exists, lambda: "a task")
            host, name = run.status()["pid"], bed.worker_of(int((gate / "stands still").read_text()))
            worker = bed.cluster.workers[name]
            (executor,) = worker.executors()
            suspend(executor)
            pipe, others = os.open(gate / "resume", os.O_RDWR), (bed.driver, bed.cluster.master)
            for other in others:  # an order to end would wait for the executor
                bed.net.cut(other, worker.host)
            try:
                if fenced:
                    run.wait_results("epochs", 1)
                else:
                    run.wait_for(lambda: "executors of the former run" in run.log(), lambda: "a new Spark application")
                os.write(pipe, b"\n")
                executor.resume()
                if fenced:
                    wait_until(lambda: _REFUSED.search(bed.cluster.executor_logs(name)), PATIENCE_S, "its error")
                else:
                    run.wait_results("epochs", 1)
            finally:
                os.close(pipe)
                executor.kill()
                for other in others:
                    bed.net.heal(other, worker.host)
        run.wait_results("epochs", load.sent)
        assert repeated(run, "epochs") == {}
        assert (run.status()["pid"] == host) == fenced, "the same Spark application"
        assert verdicts(run)["epochs"].guarantee is Guarantee.EXACTLY_ONCE


@pytest.mark.soak
def test_without_the_refusal_a_second_attempt_repeats_results(bed: Bed, tmp_path: Path) -> None:
    """The mechanism off: the executor of a task is lost, and the second attempt of the task reads the same input within
    the same batch. Nothing else refuses it before the next batch begins. Seen: 1,350 of 24,640 results twice."""
    with running(bed, tmp_path, "passed", ATTEMPTS="any") as run:
        with Load(bed.broker.bootstrap, run.topics["events"], rate=100) as load:
            run.wait_flowing()
            before, again = run.incarnations(), bed.tasks_run_again("worker2")
            run.wait_within_a_batch("passed")
            (executor,) = bed.cluster.workers["worker1"].executors()
            bed.cluster.kill_worker("worker1")
            executor.kill()
            wait_until(lambda: bed.tasks_run_again("worker2") > again, PATIENCE_S, lambda: f"an attempt\n{run.log()}")
            bed.cluster.start_worker("worker1")
            run.wait_replaced(before)
        run.wait_released(load.sent)
        twice = repeated(run, "passed")
        print(f"{len(twice)} of {load.sent} results are there twice; incarnations {set(map(tuple, twice.values()))}")
        assert any(incarnations.count(1) > 1 for incarnations in twice.values())
