"""Two coordinators with a lease in PostgreSQL under load: one takes over from the other, and each result is published
once. They share a home, and neither sees processes of the other, as two machines do (apps/machines.py)."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.recovery.decision_store import Lease
from falkirk.recovery.ownership.folder import attach_home
from falkirk.recovery.ownership.guard import EXIT_FATAL
from falkirk.spark_setup.broker import Broker
from tests.chaos.counting import Counting, assert_exactly_once
from tests.chaos.harness import APPS, LIGHT, MOMENTS_MAX, Application, Load
from tests.postgres import Postgres
from tests.proxy import Proxy
from tests.support import PATIENCE, is_alive, wait_until

#: An owner that renews it each second has 8 s for that. On a busy machine, 4 s were too short for one.
LEASE_S = 10.0
IS_SOAK = "FALKIRK_STRIKES" in os.environ
#: The time of one look at the results.
LOOK_S = 0.1
#: A start of Spark and of the region, on idle cores, until the first result.
START_S = 25.0
#: The same with a warm standby.
WARM_S = 5.0


class Pair:
    """Two coordinators of one application: `one` owns it, and `other` waits.

    Args: make: returns a coordinator on the machine with this name, with a standby if it is warm.
    """

    def __init__(self, run: Counting, one: Application, make: Callable[..., Application], store: str) -> None:
        self.run, self.one, self.other, self._make, self._store = run, one, run.application, make, store
        self._reader, self._results = Consumer({"bootstrap.servers": run.bootstrap, "group.id": "pair"}), 0
        self._reader.assign([TopicPartition(run.counts, partition, OFFSET_BEGINNING) for partition in range(2)])
        self._generation = 1

    def wait_as_next(self) -> None:
        """Start a coordinator that waits for the present owner with a standby, on the machine of the former one."""
        self.one, self.other = self.other, self._make(self.one.output_file.removesuffix(".log"), is_warm=True)
        self.run = replace(self.run, application=self.other)
        self.start_waiting(is_warm=True)

    def start_waiting(self, *, is_warm: bool) -> None:
        """Start the coordinator that waits. Args: is_warm: it has a standby."""
        says = "waiting with a warm Spark application" if is_warm else "waiting: "
        before = len(self.other.output()) if (self.other.home / self.other.output_file).exists() else 0
        self.other.start()
        wait_until(lambda: says in self.other.output()[before:], 60, self.other.output)

    def lease(self) -> Lease:
        """Return the present lease."""
        with attach_home(self.other.home, "counts", self._store) as home:
            found = home.store.lease()
        assert found is not None
        return found

    def results(self) -> int:
        """Return how many results a reader of committed records sees."""
        messages = self._reader.consume(10_000, timeout=LOOK_S)
        self._results += sum(1 for message in messages if message.error() is None)
        return self._results

    def _drain(self) -> int:
        """Read the present results, until a look finds no more than are published meanwhile; return their number."""
        connected_s = time.monotonic()
        while self.results() == 0 and time.monotonic() < connected_s + START_S:
            pass
        before = 0
        while self._results > before + LOOK_S * 3 * LIGHT:
            before = self._results
            self.results()
        return self._results

    def await_results_behind_a_commit(self) -> dict[str, int]:
        """Wait until the owner has published results that no checkpoint covers; return its last checkpoint."""
        return self.one.wait_results_behind({"counts": self._drain}, {"counts": 30})

    def suspend_behind_a_commit(self) -> tuple[float, list[psutil.Process]]:
        """Suspend the owner when no checkpoint covers its last results; return the time before, and its processes."""
        for _ in range(MOMENTS_MAX):
            checkpoint = self.await_results_behind_a_commit()
            self.other.forget_status()
            began_s = time.monotonic()
            if processes := self.one.stand_still(checkpoint):
                return began_s, processes
        raise AssertionError(f"{MOMENTS_MAX} times a checkpoint came before the owner stood still\n{self.one.log()}")

    def await_takeover(self, since_s: float) -> float:
        """Wait for the first result of the other coordinator; return the seconds since `since_s`."""
        self._generation += 1
        wait_until(lambda: self.lease().generation == self._generation, LEASE_S + 5, self.other.output)
        taken_s = time.monotonic() - since_s
        self._drain()  # the former owner has ended, or stands still
        before = self._results
        wait_until(lambda: self.results() > before, START_S, lambda: f"{self.other.output()}\n{self.other.log()}")
        took_s = time.monotonic() - since_s
        print(f"seconds from the fault to the takeover {taken_s:.1f}, and to its first result {took_s:.1f}")
        # Its last renewal was a second before, on an idle machine.
        assert taken_s > LEASE_S / 2, "the lease was in force"
        assert took_s < (LEASE_S + START_S) * PATIENCE
        return took_s

    def await_warm_takeover(self, since_s: float) -> None:
        """Wait for the first result of the other coordinator, whose standby must take over."""
        assert self.await_takeover(since_s) < (LEASE_S + WARM_S) * PATIENCE
        assert self.other.status()["start"]["standby"]

    def await_suppressed(self) -> None:
        """Wait until the new owner says that its barrier drops results. One that resumes may have written a status."""
        self.other.wait(lambda: self.other.suppressed().total() > 0, 30, "results that no checkpoint had covered")

    def close(self) -> None:
        """Stop both, the second one even if the first one does not stop."""
        self._reader.close()
        with ExitStack() as stack:
            for application in (self.one, self.other):
                if application.runs():
                    stack.callback(application.stop)


@contextlib.contextmanager
def pair(
    broker: Broker, home: Path, tag: str, store: str, *, owner: Mapping[str, str] | None = None,
    is_warm: bool = False, **env: str,
) -> Iterator[Pair]:  # fmt: skip
    """Run two coordinators until the end of the block.

    Args: owner: further variables of the environment of the first owner alone. is_warm: the one that waits has a
        standby. env: further variables of both.
    """
    events, counts = f"events-{tag}", f"counts-{tag}"
    topics = Topics(Connection.of(broker.bootstrap))
    for topic in (events, counts):
        topics.create(topic, 2, {})

    def coordinator(name: str, *, is_warm: bool = False, **more: str) -> Application:
        names = {"EVENTS": events, "COUNTS": counts, "INTERVAL": "5 seconds", "MACHINE": name, "STORE": store}
        names |= {"STANDBYS_MAX": "1"} if is_warm else {}
        options = ("--wait", "--lease", str(LEASE_S), *(["--standby"] if is_warm else []))
        made = Application(APPS / "machines.py", broker.bootstrap, home, {**names, **env, **more}, *options)
        made.output_file = f"{name}.log"
        return made

    one, other = coordinator("one", **owner or {}), coordinator("other", is_warm=is_warm)
    run = Counting(bootstrap=broker.bootstrap, events=events, counts=counts, counted=("counts",), application=other)
    one.start()
    try:
        one.wait_committed(0)
        both = Pair(run, one, coordinator, store)
        try:
            both.start_waiting(is_warm=is_warm)
            yield both
        finally:
            both.close()
    finally:
        if one.runs():
            one.kill()


def test_each_takes_over_from_the_other(broker: Broker, home: Path, tag: str, postgres: Postgres) -> None:
    """The owner is suspended, and a warm standby takes over before it resumes.

    In the soak, an owner before it is cut from the store, and the next one is killed. A suspended owner is as silent as
    both until it resumes.
    """
    with ExitStack() as stack:
        if IS_SOAK:
            proxy = stack.enter_context(Proxy(postgres))
            owner = cut_off_by(proxy, postgres, INTERVAL="15 seconds")
            both = stack.enter_context(pair(broker, home, tag, postgres.url(), owner=owner))
        else:
            both = stack.enter_context(pair(broker, home, tag, postgres.url(), is_warm=True))
        load = stack.enter_context(Load(broker.bootstrap, both.run.events, rate=LIGHT))
        if IS_SOAK:
            cut_from_the_store(both, proxy)
            both.wait_as_next()
        suspended_and_resumed(both)
        if IS_SOAK:
            both.wait_as_next()
            killed(both)
        load.__exit__()
        assert_exactly_once(both.run, load.sent)


def cut_off_by(proxy: Proxy, postgres: Postgres, **env: str) -> dict[str, str]:
    """Return the environment of an owner whose link to the store a test cuts, and whose outputs are not fenced."""
    return {"STORE": postgres.url(host=str(proxy.folder)), "SINKS_TRANSACTIONAL": "no", **env}


def cut_from_the_store(both: Pair, proxy: Proxy) -> None:
    """The owner ends before another one starts.

    Its outputs are not fenced, so nothing but its end keeps them from being published twice. It ends about ten seconds
    after a checkpoint. The next one comes later, or there would be nothing to suppress.
    """
    both.await_results_behind_a_commit()
    both.other.forget_status()
    processes, cut_s = both.one.processes(), time.monotonic()
    proxy.cut()

    def has_ended() -> bool:
        assert both.lease().generation == 1 or not any(map(is_alive, processes)), both.one.output()
        return not any(map(is_alive, processes))

    wait_until(has_ended, LEASE_S + 5, both.one.output)
    _assert_ended(both.one, processes)
    both.await_takeover(cut_s)
    both.await_suppressed()


def suspended_and_resumed(both: Pair) -> None:
    """A warm standby of the one that waits takes over.

    The owner publishes nothing when it resumes: the broker refuses it, and it ends.
    """
    suspended_s, stopped = both.suspend_behind_a_commit()
    try:
        both.await_warm_takeover(suspended_s)
    finally:
        for process in stopped:
            process.resume()
    _assert_ended(both.one, stopped)
    both.await_suppressed()


def killed(both: Pair) -> None:
    """A warm standby of the one that waits takes over from a killed owner."""
    killed_s, _ = both.suspend_behind_a_commit()
    both.one.kill()
    both.await_warm_takeover(killed_s)
    both.await_suppressed()


def _assert_ended(owner: Application, processes: list[psutil.Process]) -> None:
    """Wait until a former owner has ended with all its processes, and said why."""
    wait_until(lambda: not any(map(is_alive, processes)), 10, owner.output)
    assert owner.ended() in (EXIT_FATAL, 1)
    last = owner.output().strip().splitlines()[-1]
    assert last.split()[0] in ("LEASE_LOST", "HOME_TAKEN_OVER"), owner.output()
