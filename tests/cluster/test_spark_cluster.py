"""A real cluster on one machine: links are cut, workers killed and executors stopped under load; the checker judges."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from falkirk.check import Guarantee
from falkirk.coordinator.executors import EXIT_S
from falkirk.local import broker as local_broker
from falkirk.local.broker import Broker
from tests.chaos.harness import Load
from tests.cluster.application import Remote, contradictions, repeated, verdicts
from tests.cluster.net import Host, Net, network, refused
from tests.cluster.spark import SparkCluster, spark_cluster
from tests.postgres import Postgres
from tests.support import wait_until

pytestmark = pytest.mark.skipif(refused() is not None, reason=str(refused()))
PATIENCE_S = 240.0
#: How long an executor lives whose driver is dead: ten heartbeats of two seconds, and one in which nothing was noticed.
LIVES_S = 22.0


@dataclass(frozen=True, kw_only=True)
class Bed:
    """Machines, what runs on them, and the links between them."""

    net: Net
    cluster: SparkCluster
    driver: Host
    broker_at: Host
    database_at: Host
    broker: Broker
    database: Postgres


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A cluster, a broker and a database, with a network between them."""
    folder = tmp_path_factory.mktemp("cluster")
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(network())
        broker_at, database_at, driver = net.here("broker"), net.here("database"), net.host("driver")
        stack.callback(local_broker.stop, folder / "broker")
        broker = local_broker.start(folder / "broker", address=broker_at.address, timeout_s=PATIENCE_S)
        database = Postgres(database_at.address)
        stack.callback(database.close)
        cluster = stack.enter_context(spark_cluster(net, folder / "spark"))
        yield Bed(
            net=net,
            cluster=cluster,
            driver=driver,
            broker_at=broker_at,
            database_at=database_at,
            broker=broker,
            database=database,
        )


@contextlib.contextmanager
def running(bed: Bed, folder: Path, *regions: str) -> Iterator[Remote]:
    """Run an application with these regions until the end of the block."""
    store = bed.database.url(host=bed.database_at.address)
    run = Remote(bed.driver, bed.cluster, bed.broker.bootstrap, folder, regions, STORE=store)
    run.start()
    try:
        yield run
    finally:
        run.stop()


def wait_flowing(run: Remote) -> None:
    """Wait until results of every region arrive, and there are some behind a checkpoint."""
    before = {name: run.released(name) for name in run.regions}
    wait_until(
        lambda: all(run.released(name) > count + 100 for name, count in before.items()),
        PATIENCE_S,
        lambda: f"more results than {before}\n{run.log()}",
    )


def assert_exactly_once(run: Remote, sent: int) -> None:
    """Wait for all results, and let the checker judge what an ordinary consumer sees."""
    run.wait_released(sent)
    assert {name: repeated(run, name) for name in run.regions} == {name: {} for name in run.regions}
    found = verdicts(run)
    assert {name: v.guarantee for name, v in found.items()} == dict.fromkeys(run.regions, Guarantee.EXACTLY_ONCE), found
    assert not contradictions(run)


def test_a_lost_worker(bed: Bed, tmp_path: Path) -> None:
    """kill -9 of a worker's JVM. Spark runs the tasks that were there again and does not count that as a failure."""
    with running(bed, tmp_path, "passed", "drawn") as run:
        with Load(bed.broker.bootstrap, run.topics["events"], rate=100) as load:
            wait_flowing(run)
            before = run.incarnations()
            bed.cluster.kill_worker("worker1")
            bed.cluster.start_worker("worker1")
            wait_flowing(run)
            print("incarnations", before, run.incarnations())
        assert_exactly_once(run, load.sent)


def test_one_fault_after_another(bed: Bed, tmp_path: Path) -> None:
    """Cuts and stopped processes, played on one application under load."""
    with running(bed, tmp_path, "passed", "counts", "drawn") as run:
        with Load(bed.broker.bootstrap, run.topics["events"], rate=100) as load:
            wait_flowing(run)
            go_down_unheard(bed, run)
            wait_flowing(run)
            for one, other in ((bed.cluster.workers["worker2"].host, bed.broker_at), (bed.driver, bed.database_at)):
                sent = load.sent
                bed.net.cut(one, other)
                wait_until(lambda sent=sent: load.sent > sent + 500, PATIENCE_S, "some load")  # type: ignore[misc]
                bed.net.heal(one, other)
                wait_flowing(run)
            stand_still(bed, run)
            wait_flowing(run)
        assert_exactly_once(run, load.sent)


def go_down_unheard(bed: Bed, run: Remote) -> None:
    """The driver's machine goes down, and no executor is told. Each ends by its own clock, before others write."""
    workers = bed.cluster.workers.values()
    executors = [executor for worker in workers for executor in worker.executors()]
    assert len(executors) == len(workers)
    for worker in workers:
        bed.net.cut(bed.driver, worker.host)
    run.kill_machine()
    began_s = time.monotonic()
    run.start()
    psutil.wait_procs(executors, timeout=LIVES_S + EXIT_S)
    print(f"executors without a driver have ended after {time.monotonic() - began_s:.1f} s")
    assert not [e for e in executors if e.is_running() and e.status() != psutil.STATUS_ZOMBIE]
    for worker in workers:
        bed.net.heal(bed.driver, worker.host)


def stand_still(bed: Bed, run: Remote) -> None:
    """A worker and its executor are stopped (SIGSTOP), so that neither can end. Nothing starts until they can."""
    worker = bed.cluster.workers["worker1"]
    (executor,) = worker.executors()
    stopped = (worker.jvm(), executor)
    for process in stopped:
        process.suspend()
    log = run.home / "run.log"
    wait_until(lambda: "still accept connections" in log.read_text(), PATIENCE_S, lambda: f"a refusal\n{run.log()}")
    for process in stopped:
        process.resume()
    psutil.wait_procs([executor], timeout=LIVES_S + EXIT_S)
    assert not executor.is_running()
