"""A cluster of machines with a network between them, for applications that meet faults there.

An application takes one fault after another, since a start costs more than most faults. It is judged once, from its
topics alone: by the checker, and by the records that an ordinary consumer sees. The test that plays a fault asserts its
other effects (that Spark ran tasks again, that a process ended).
"""

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from falkirk.checker import Guarantee
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.broker import Broker
from tests.cluster.application import Remote, contradictions, repeated, verdicts
from tests.cluster.net import Host, Net, network
from tests.cluster.spark import SparkCluster, archived, assert_secret_is_unseen, protected, spark_cluster
from tests.postgres import Postgres
from tests.support import wait_until

PATIENCE_S = 240.0
#: Settings of a user who wants lost executors to be noticed within half of the time of Falkirk's own settings.
SOON = {
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "12s",
    "spark.network.timeoutInterval": "2s",
}
_SECOND = re.compile(r"Running task \d+\.[1-9]\d* in stage")
_BEGUN = re.compile(r"Running task .* \(TID (\d+)\)")
#: A task that has ended, or was told to end. An executor says so before it reports that to the driver.
_ENDED = re.compile(r"(?:Finished|Exception in|kill|killed) task .* \(TID (\d+)\)")


@dataclass(frozen=True, kw_only=True)
class Bed:
    """Machines, their processes, and the links between them. secret: the file that the driver's user has."""

    net: Net
    cluster: SparkCluster
    driver: Host
    broker_at: Host
    database_at: Host
    broker: Broker
    database: Postgres
    secret: Path

    def executors(self) -> list[psutil.Process]:
        """Return the executors of the application, one on each worker."""
        return [executor for worker in self.cluster.workers.values() for executor in worker.executors()]

    def wait_for_executors(self) -> None:
        """Wait until there is one on each worker."""
        workers = self.cluster.workers.values()
        wait_until(lambda: all(len(w.executors()) == 1 for w in workers), PATIENCE_S, "an executor on each worker")

    def worker_of(self, pid: int) -> str:
        """Return the name of the worker that has started a process."""
        ancestors = psutil.Process(pid).parents()
        return next(name for name, worker in self.cluster.workers.items() if worker.jvm() in ancestors)

    def tasks_run_again(self, name: str) -> int:
        """Return how many second attempts of tasks began on a worker."""
        return len(_SECOND.findall(self.cluster.executor_logs(name)))


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Print how long the block took, for docs/test-times.md: pytest shows it with -rP."""
    began_s = time.monotonic()
    yield
    print(f"{name}: {time.monotonic() - began_s:.1f} s")


@contextlib.contextmanager
def machines(folder: Path) -> Iterator[Bed]:
    """Run a cluster that authenticates and encrypts, a broker and a database, with a network between them."""
    with contextlib.ExitStack() as stack:
        protection = stack.enter_context(protected(folder / "conf", archived()))
        net = stack.enter_context(network())
        broker_at, database_at, driver = net.here("broker"), net.here("database"), net.host("driver")
        stack.callback(local_broker.stop, folder / "broker")
        with phase("start of the broker"):
            broker = local_broker.start(
                folder / "broker",
                address=broker_at.address,
                timeout_s=PATIENCE_S,
                java_options=local_broker.SHORT_RUN,
            )
        with phase("start of the database"):
            database = Postgres(database_at.address)
        stack.callback(database.close)
        with phase("start of the cluster"):
            cluster = stack.enter_context(spark_cluster(net, folder / "spark", protection.machines))
        yield Bed(
            net=net,
            cluster=cluster,
            driver=driver,
            broker_at=broker_at,
            database_at=database_at,
            broker=broker,
            database=database,
            secret=protection.secret,
        )


@contextlib.contextmanager
def running(bed: Bed, folder: Path, *regions: str, **env: str) -> Iterator[Remote]:
    """Run an application with these regions until the end of the block. Args: env: for its process."""
    store = bed.database.url(host=bed.database_at.address)
    options = ["--secure", str(bed.secret)]
    options += [word for name, value in SOON.items() for word in ("--conf", f"{name}={value}")]
    run = Remote(bed.driver, bed.cluster, bed.broker.bootstrap, folder, regions, *options, STORE=store, **env)
    run.start()
    try:
        yield run
        assert run.status()["exposed"] == [], "a start warns of open ports"
        assert_secret_is_unseen(psutil.process_iter(), folder, bed.cluster.folder)
    finally:
        with phase("stop"):
            run.stop()


def tasks_of(executor: psutil.Process) -> set[str]:
    """Return the ids of the tasks that an executor runs, from its log. Call it while the executor stands still."""
    log = (Path(executor.cwd()) / "stderr").read_text(errors="replace")
    return {*_BEGUN.findall(log)} - {*_ENDED.findall(log)}


def pythons(executor: psutil.Process) -> list[psutil.Process]:
    """Return the Python processes of an executor that answer live regions: a fork server, and its workers."""
    found = []
    for process in executor.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(word.endswith(".zip") for word in process.cmdline()):
                found.append(process)
    return found


def assert_exactly_once(run: Remote, sent: int) -> None:
    """Wait for all results, and let the checker judge the records that a reader of committed records sees."""
    with phase("all results"):
        run.wait_released(sent)
    assert {name: repeated(run, name) for name in run.regions} == {name: {} for name in run.regions}
    found = verdicts(run)
    assert {name: v.guarantee for name, v in found.items()} == dict.fromkeys(run.regions, Guarantee.EXACTLY_ONCE), found
    assert not contradictions(run)
