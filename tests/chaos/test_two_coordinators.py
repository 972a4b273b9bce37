"""Two coordinators with a lease in PostgreSQL under load: one takes over from the other, and each result is published
once. They share a home, and neither sees processes of the other, as two machines do (apps/machines.py)."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from falkirk.home.folder import attach_home
from falkirk.home.guard import EXIT_FATAL
from falkirk.kafka.connection import Connection
from falkirk.kafka.topics import Topics
from falkirk.local.broker import Broker
from falkirk.store import Lease
from tests.chaos.counting import Counting, assert_exactly_once
from tests.chaos.harness import APPS, LIGHT, Application, Load, is_alive
from tests.postgres import Postgres
from tests.proxy import Proxy
from tests.support import PATIENCE, suspend, wait_until

#: An owner that renews it each second has 4 s for that, also on a busy machine.
LEASE_S = 6.0
#: The time of one look at the results.
LOOK_S = 0.1
#: A start of Spark and of the region, on idle cores, until the first result.
START_S = 25.0
#: The same with a warm standby.
WARM_S = 5.0


class Pair:
    """Two coordinators of one application: `one` owns it, and `other` waits."""

    def __init__(self, run: Counting, one: Application, other: Application, store: str) -> None:
        self.run, self.one, self.other, self._store = run, one, other, store
        self._reader, self._results = Consumer({"bootstrap.servers": run.bootstrap, "group.id": "pair"}), 0
        self._reader.assign([TopicPartition(run.counts, partition, OFFSET_BEGINNING) for partition in range(2)])

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

    def await_results_behind_a_commit(self) -> None:
        """Wait until the owner has published results that no checkpoint covers."""
        self.one.wait_results_behind({"counts": self._drain}, {"counts": 60})

    def await_takeover(self, since_s: float) -> float:
        """Wait for the first result of the other coordinator; return the seconds since `since_s`."""
        wait_until(lambda: self.lease().generation == 2, LEASE_S + 5, self.other.output)
        taken_s = time.monotonic() - since_s
        self._drain()  # the former owner has ended, or stands still
        before = self._results
        wait_until(lambda: self.results() > before, START_S, lambda: f"{self.other.output()}\n{self.other.log()}")
        took_s = time.monotonic() - since_s
        print(f"seconds from the fault to the takeover {taken_s:.1f}, and to its first result {took_s:.1f}")
        assert taken_s > LEASE_S - 1.0, "the lease was in force: its last renewal was at most a second before"
        assert took_s < (LEASE_S + START_S) * PATIENCE
        return took_s

    def assert_exactly_once(self, load: Load) -> None:
        """End the load, and let the checker judge all results."""
        # A former owner that was resumed may have written one more status.
        self.other.wait(lambda: self.other.suppressed().total() > 0, 30, "results that no checkpoint had covered")
        load.__exit__()
        assert_exactly_once(self.run, load.sent)

    def close(self) -> None:
        """Stop both."""
        self._reader.close()
        for application in (self.one, self.other):
            if application.runs():
                application.stop()


@contextlib.contextmanager
def pair(
    broker: Broker, home: Path, tag: str, store: str, *, one_store: str | None = None, is_warm: bool = False, **env: str
) -> Iterator[Pair]:
    """Run two coordinators until the end of the block.

    Args: one_store: the store's address for the owner. is_warm: the one that waits has a standby.
    """
    events, counts = f"events-{tag}", f"counts-{tag}"
    topics = Topics(Connection.of(broker.bootstrap))
    for topic in (events, counts):
        topics.create(topic, 2, {})

    def coordinator(name: str, address: str, *options: str) -> Application:
        names = {"EVENTS": events, "COUNTS": counts, "INTERVAL": "5 seconds", "MACHINE": name, "STORE": address}
        options = ("--wait", "--lease", str(LEASE_S), *options)
        made = Application(APPS / "machines.py", broker.bootstrap, home, {**names, **env}, *options)
        made.output_file = f"{name}.log"
        return made

    one = coordinator("one", one_store or store)
    other = coordinator("other", store, *(["--standby"] if is_warm else []))
    run = Counting(bootstrap=broker.bootstrap, events=events, counts=counts, counted=("counts",), application=other)
    one.start()
    try:
        one.wait_committed(0)
        other.start()
        both = Pair(run, one, other, store)
        try:
            says = "waiting with a warm Spark application" if is_warm else "waiting: "
            wait_until(lambda: says in other.output(), 60, other.output)
            yield both
        finally:
            both.close()
    finally:
        if one.runs():
            one.kill()


def test_a_killed_owner_is_replaced_by_a_warm_one(broker: Broker, home: Path, tag: str, postgres: Postgres) -> None:
    with (
        pair(broker, home, tag, postgres.url(), is_warm=True) as both,
        Load(broker.bootstrap, both.run.events, rate=LIGHT) as load,
    ):
        both.await_results_behind_a_commit()
        both.other.forget_status()
        killed_s = time.monotonic()
        both.one.kill()
        took_s = both.await_takeover(killed_s)
        assert took_s < (LEASE_S + WARM_S) * PATIENCE
        assert both.other.status()["start"]["standby"]
        both.assert_exactly_once(load)


def test_a_suspended_owner_publishes_nothing_more(broker: Broker, home: Path, tag: str, postgres: Postgres) -> None:
    with (
        pair(broker, home, tag, postgres.url()) as both,
        Load(broker.bootstrap, both.run.events, rate=LIGHT) as load,
    ):
        both.await_results_behind_a_commit()
        both.other.forget_status()
        suspended_s, stopped = time.monotonic(), both.one.processes()
        for process in stopped:
            suspend(process)
        both.await_takeover(suspended_s)
        for process in stopped:
            process.resume()
        _assert_ended(both.one, stopped)
        both.assert_exactly_once(load)


def test_an_owner_that_is_cut_from_the_store_ends_before_another_starts(
    broker: Broker, home: Path, tag: str, postgres: Postgres
) -> None:
    """Its outputs are not fenced, so nothing but its end keeps them from being published twice.

    It ends about five seconds after a checkpoint. The next one comes later, or there would be nothing to suppress.
    """
    with (
        Proxy(postgres) as proxy,
        pair(
            broker, home, tag, postgres.url(), one_store=postgres.url(host=str(proxy.folder)), OUTPUTS_FENCED="no",
            INTERVAL="10 seconds",
        ) as both,
        Load(broker.bootstrap, both.run.events, rate=LIGHT) as load,
    ):  # fmt: skip
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
        both.assert_exactly_once(load)


def _assert_ended(owner: Application, processes: list[psutil.Process]) -> None:
    """Wait until a former owner has ended with all its processes, and said why."""
    wait_until(lambda: not any(map(is_alive, processes)), 10, owner.output)
    assert owner.ended() in (EXIT_FATAL, 1)
    last = owner.output().strip().splitlines()[-1]
    assert last.split()[0] in ("LEASE_LOST", "HOME_TAKEN_OVER"), owner.output()
