"""A real cluster on one machine: links are cut, a machine goes down and executors stop under load. See bed.py."""

import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from falkirk.home.executors import EXIT_S
from tests.chaos.harness import Load, is_alive
from tests.cluster.application import Remote, repeated
from tests.cluster.bed import PATIENCE_S, Bed, assert_exactly_once, running
from tests.cluster.net import refused
from tests.support import suspend, wait_until

pytestmark = pytest.mark.skipif(refused() is not None, reason=str(refused()))
#: How long an executor lives whose driver is dead: ten heartbeats of two seconds, and one in which nothing was noticed.
LIVES_S = 22.0
#: A request of a producer with results is longer, and one for records is not.
RESULTS_BYTES = 500


def test_one_fault_after_another(bed: Bed, tmp_path: Path) -> None:
    """The broker fences the writers of copies from the held log and of epochs, and not the live regions."""
    with running(bed, tmp_path, "passed", "counts", "drawn", "epochs", FENCED="jobs") as run:
        with Load(bed.broker.bootstrap, run.topics["events"], rate=100) as load:
            for fault in (cut_off_a_worker, cut_off_broker_and_database, go_down_unheard):
                run.wait_flowing()
                began_s = time.monotonic()
                fault(bed, run)
                print(f"{fault.__name__}: {time.monotonic() - began_s:.1f} s; incarnations {run.incarnations()}")
            run.wait_flowing()
        assert_exactly_once(run, load.sent)


def cut_off_a_worker(bed: Bed, run: Remote) -> None:
    """The link between the driver and a worker is cut. The executor there writes until it ends itself.

    Spark runs its tasks again elsewhere, or fails the query when the driver's own timeout comes first.
    """
    before = run.incarnations()
    worker = bed.cluster.workers["worker1"]
    executors = worker.executors()
    bed.net.cut(bed.driver, worker.host)
    assert_ended(executors, "an executor that does not hear from its driver")
    bed.net.heal(bed.driver, worker.host)
    run.wait_replaced(before)


def cut_off_broker_and_database(bed: Bed, run: Remote) -> None:
    """The links between a worker and the broker, and between the coordinator and its database, are cut for a while.
    Nothing has to be started again."""
    before, links = (
        run.incarnations(),
        ((bed.cluster.workers["worker2"].host, bed.broker_at), (bed.driver, bed.database_at)),
    )
    for one, other in links:
        bed.net.cut(one, other)
    sent = run.sent()
    wait_until(lambda: run.sent() > sent + 500, PATIENCE_S, "more events")
    for one, other in links:
        bed.net.heal(one, other)
    run.wait_flowing()
    assert run.incarnations() == before


def go_down_unheard(bed: Bed, run: Remote) -> None:
    """The driver's machine goes down, and the cluster gets no message. An executor that runs ends by its own clock.
    One is stopped (SIGSTOP), with its worker, so that it can't; it resumes when others may have begun to write, with
    all before it that arrived meanwhile."""
    before, (stopped, other) = run.incarnations(), bed.cluster.workers.values()
    (asleep,), awake = stopped.executors(), other.executors()
    hosts = (bed.cluster.master, *(worker.host for worker in bed.cluster.workers.values()))
    for host in hosts:
        bed.net.cut(bed.driver, host)
    for process in (stopped.jvm(), asleep):
        suspend(process)
    run.kill_machine()
    run.start()
    assert_ended(awake, "an executor whose driver is gone")
    for host in hosts:
        bed.net.heal(bed.driver, host)
    wait_until(
        lambda: run.refuses() or run.is_replaced(before), PATIENCE_S, lambda: f"a refusal or a start\n{run.log()}"
    )
    for process in (stopped.jvm(), asleep):
        process.resume()
    assert_ended([asleep], "an executor that was stopped")
    run.wait_replaced(before)
    assert run.refuses()


@pytest.mark.soak
@pytest.mark.parametrize("fenced", [False, True])
def test_records_that_are_sent_before_the_fence_and_arrive_after_it(bed: Bed, tmp_path: Path, *, fenced: bool) -> None:
    """The link between a worker and the broker is cut until the region hangs and is replaced.

    The worker has sent records that the broker has not received. They arrive when the link is back, after the fence.
    Without lanes that the broker fences, the executor dies, and its kernel sends them: a consumer of the topic sees
    these results twice. Seen: 203 of 20,114 results, with an executor that died 45 s after the cut and an incarnation
    that began after 91 s. With the kernel's own settings, and 119 s, none came: its next try was due later. With fenced
    lanes the broker refuses them.
    """
    worker = bed.cluster.workers["worker1"]
    bed.net.try_again_for_long(worker.host)  # before the executors make their connections
    with running(bed, tmp_path, "passed", FENCED="yes" if fenced else "no") as run:
        with Load(bed.broker.bootstrap, run.topics["events"], rate=100) as load:
            run.wait_flowing()
            before = run.incarnations()
            (executor,) = worker.executors()
            try:
                # The broker's records still arrive, and the results that they cause do not leave.
                bed.net.cut_way(worker.host, bed.broker_at)
                unsent = partial(bed.net.unsent_bytes, worker.host, bed.broker_at)
                least = 0 if fenced else RESULTS_BYTES  # a transaction begins with a request, and waits for its answer
                wait_until(lambda: unsent() > least, 30, "results on their way")
                bed.net.cut(worker.host, bed.broker_at)
                began_s = time.monotonic()
                if not fenced:
                    wait_until(lambda: not is_alive(executor), PATIENCE_S, lambda: f"the executor to end\n{run.log()}")
                ended_s = time.monotonic()
                run.wait_replaced(before)
                replaced_s = time.monotonic()
                waits = unsent()
            finally:
                bed.net.heal(worker.host, bed.broker_at)  # for the next test, too
            run.wait_flowing()
        run.wait_released(load.sent)
        print(f"replaced {replaced_s - began_s:.0f} s after the cut; {waits} bytes wait")
        if fenced:
            wait_until(lambda: not unsent(), 60, "all that was sent to arrive")
            assert repeated(run, "passed") == {}
            return
        assert waits, "nothing was on its way"
        print(f"the executor ended {ended_s - began_s:.0f} s after the cut")
        wait_until(lambda: repeated(run, "passed"), 60, "records of the dead executor")
        late = repeated(run, "passed")
        print(f"{len(late)} of {load.sent} results came after the fence")
        # Either record may be the first one: the new executor on this machine has waited for the link as well.
        assert {tuple(sorted(sent)) for sent in late.values()} == {(1, 2)}


def assert_ended(executors: list[psutil.Process], which: str) -> None:
    """Wait until executors have ended, for as long as the next start waits for them."""
    assert executors
    began_s = time.monotonic()
    wait_until(lambda: not any(map(is_alive, executors)), LIVES_S + EXIT_S, which)
    print(f"{which} ended after {time.monotonic() - began_s:.1f} s")
