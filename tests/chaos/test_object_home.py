"""Applications with their homes in an object store, killed by kill -9 at each of their requests that change data there.

Each run is in a new folder, as on another machine. It takes minutes of CPU time, so FALKIRK_STRIKES runs it: with 1 at
some requests, with more at each one. With FALKIRK_OBJECTS=s3proxy also, the object store is a real server, which is
suspended and killed too. With FALKIRK_HDFS=1, the homes are in a real HDFS, and parts of it stop.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from falkirk.spark_setup.broker import Broker
from tests import hdfs_server
from tests.chaos.harness import AGAIN, APPS, START_S, Application
from tests.integration.homes.once import assert_each_once
from tests.integration.live import Wire
from tests.object_server import is_chosen
from tests.objects import ObjectStore
from tests.postgres import Postgres
from tests.support import wait_until

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)

ROWS = 10
#: An epoch of both batches has about so many requests.
REQUESTS = 24
#: Three checkpoints of the live region have about so many.
LIVE_REQUESTS = 30
#: An owner has eight of these seconds to renew it. With six it had four: on a busy machine that was too short for one.
LEASE = ("--wait", "--lease", "10")
#: Two executors in JVMs of their own.
CLUSTER = ("--master", "local-cluster[2,4,1024]")
#: Longer than each client waits: Hadoop's gives up after some 80 s, and pyarrow's after 50 s.
OUTAGE_S = 90.0
#: The server is killed at these requests that change data.
CRASHES = (1, 6, 11, 16)


def changes_data(method: str, path: str) -> bool:
    """Return whether a request changes data. With "noredirect", a namenode of an HDFS only names a datanode."""
    return method not in ("GET", "HEAD") and "/regions/" in path.replace("%2F", "/") and "noredirect=" not in path


class Strike:
    """Kills an application at its request of this number that changes data. A third of them are done afterwards.

    So the object store also does requests of processes that are dead.
    """

    def __init__(self, application: Application, number: int) -> None:
        self._application, self.number = application, number
        self.seen, self.request, self.is_over = 0, "", False

    def __call__(self, method: str, path: str) -> str:
        if not changes_data(method, path):
            return ""
        self.seen += 1
        if self.seen != self.number:
            return "refuse" if self.request else ""
        self.request = f"{method} {path}"
        self._application.kill()
        self.is_over = True
        return "repeat" if self.number % 3 == 1 else "refuse"


class Machines:
    """Runs an application on one machine after another, with one broker, database and object store.

    Args: file: of the application. options: of `falkirk run`. Attributes: events, out: its topics. sent: the number of
        records sent.
    """

    def __init__(self, file: str, broker: Broker, postgres: Postgres, tag: str, folder: Path, *options: str) -> None:
        self.wire, self.objects, self.sent = Wire(bootstrap=broker.bootstrap, tag=tag), ObjectStore(), 0
        self.events, self.out = self.wire.topic("events", 1), self.wire.topic("out", 1)
        self._file, self._folder, self._options = file, folder, (*LEASE, *options)
        names = {"EVENTS": self.events, "OUT": self.out, "DATA": f"{self.objects.root}/{tag}", "STORE": postgres.url()}
        self._environment = {**names, **self.objects.environment}

    def send(self, number: int) -> None:
        """Send so many records."""
        self.wire.send(self.events, [{"n": n, "word": f"w{n % 3}"} for n in range(self.sent, self.sent + number)])
        self.sent += number

    def are_all_there(self) -> bool:
        """Return whether there are as many results as records. The end of a topic also counts transactions."""
        return len(self.wire.rows(self.out)) >= self.sent

    def application(self, number: int) -> Application:
        """Return the application on the machine of this number."""
        home = self._folder / f"machine-{number}"
        return Application(APPS / self._file, self.wire.bootstrap, home, self._environment, *self._options)

    def is_struck(self, application: Application, strike: Strike) -> bool:
        """Send input until a strike; without one, return whether all results are there."""
        if strike.number == 0 and self.are_all_there():
            return True
        assert strike.request or application.runs(), application.log()
        if strike.number:
            self.send(1)
        return False

    def strike_each(self, last: int, step: int, is_over: Callable[[Application, Strike], bool]) -> None:
        """Strike at requests up to the last one, each on a new machine, and then run until all results are there.

        Args: is_over: returns whether a run is over without a strike. step: between the requests, if AGAIN is 1.
        """
        try:
            for number in range(1, last + 1, step if AGAIN == 1 else 1):
                print(f"killed at request {number}: {self._run(number, is_over)}", flush=True)
            assert self._run(0, is_over) == ""
        finally:
            self.objects.close()

    def _run(self, number: int, is_over: Callable[[Application, Strike], bool]) -> str:
        """Run until the request of this number, or until it is over; return the request."""
        application = self.application(number)
        self.send(ROWS)
        with self.objects.failing(strike := Strike(application, number)):
            application.start()
            try:
                wait_until(lambda: strike.is_over or is_over(application, strike), START_S, application.log)
            finally:
                if not strike.is_over:
                    application.stop()
        return strike.request


def test_every_result_of_batches_is_there_once_after_a_kill_at_any_request(
    broker: Broker, postgres: Postgres, tag: str, tmp_path: Path
) -> None:
    machines = Machines("objects.py", broker, postgres, tag, tmp_path)
    machines.strike_each(REQUESTS, 4, lambda application, strike: machines.are_all_there())
    assert_each_once(machines.wire.rows(machines.out), machines.sent)


@pytest.mark.parametrize(
    ("file", "options"),
    [("live_objects.py", ()), ("object_twins.py", ()), ("live_objects.py", CLUSTER)],
    ids=["one machine", "twins", "cluster"],
)
def test_every_count_of_a_live_region_is_there_once_after_a_kill_at_any_request(
    broker: Broker, postgres: Postgres, tag: str, tmp_path: Path, file: str, options: tuple[str, ...]
) -> None:
    """A kill comes during the upload of a checkpoint, after it and before its record, or during a deletion.

    On a cluster, executors upload. Input arrives all the time, until all strikes are done.
    """
    machines = Machines(file, broker, postgres, tag, tmp_path, *options)
    machines.strike_each(LIVE_REQUESTS, 7, machines.is_struck)
    assert_each_count_once(machines)


def assert_each_count_once(machines: Machines) -> None:
    """Compare the counts of a live region with those of all records."""
    found = Counter((row["word"], row["version"]) for row in machines.wire.rows(machines.out))
    words = Counter(f"w{n % 3}" for n in range(machines.sent))
    assert found == Counter((word, n + 1) for word, times in words.items() for n in range(times))


@pytest.mark.skipif(
    not (is_chosen() or hdfs_server.is_chosen()),
    reason="only a real server can be killed: FALKIRK_OBJECTS=s3proxy or FALKIRK_HDFS=1",
)
@pytest.mark.parametrize("file", ["objects.py", "live_objects.py"])
def test_a_server_that_is_suspended_or_killed_costs_no_result(
    broker: Broker, postgres: Postgres, tag: str, tmp_path: Path, file: str
) -> None:
    """It stops for longer than each limit of the clients. Batches wait, and the live region works on."""
    machines, is_live = Machines(file, broker, postgres, tag, tmp_path), file == "live_objects.py"
    server = machines.objects.server or machines.objects.hdfs
    assert server is not None
    waits = "checkpoints wait for the object store" if is_live else "waiting: the object store"
    try:
        with machines.application(1) as application:
            wait_for_all(machines, application)
            for name, outage in server.outages().items():
                print(f"{file}: {name}", flush=True)
                with outage():
                    began_s = time.monotonic()
                    if is_live:
                        wait_for_all(machines, application)
                    machines.send(ROWS)
                    application.wait(
                        lambda began_s=began_s: (
                            time.monotonic() > began_s + OUTAGE_S  # type: ignore[misc]
                            and waits in json.dumps(application.status())
                        ),
                        START_S,
                        waits,
                    )
                wait_for_all(machines, application)
                application.wait(lambda: waits not in json.dumps(application.status()), START_S, "it to be used again")
            for number in CRASHES:
                with machines.objects.failing(crash := Crash(number)):
                    application.wait(lambda crash=crash: is_crashed(machines, crash), START_S, "a crash")  # type: ignore[misc]
                print(f"{file}: the server was killed at {crash.request}", flush=True)
                wait_for_all(machines, application)
        with machines.application(2) as application:
            wait_for_all(machines, application)
    finally:
        machines.objects.close()
    if is_live:
        assert_each_count_once(machines)
    else:
        assert_each_once(machines.wire.rows(machines.out), machines.sent)


def wait_for_all(machines: Machines, application: Application) -> None:
    """Send records, and wait until all results are there."""
    machines.send(ROWS)
    application.wait(machines.are_all_there, START_S, lambda: f"{machines.sent} results")


class Crash:
    """Kills the server at its request of this number that changes data, with half of it. Attributes: request."""

    def __init__(self, number: int) -> None:
        self._left, self.request = number, ""

    def __call__(self, method: str, path: str) -> str:
        if not changes_data(method, path):
            return ""
        self._left -= 1
        if self._left:
            return ""
        self.request = f"{method} {path}"
        return "crash"


def is_crashed(machines: Machines, crash: Crash) -> bool:
    """Send records until the server was killed; return whether it was."""
    if not crash.request:
        machines.send(ROWS)
    return bool(crash.request)


def test_every_result_with_a_lookup_is_there_once_after_a_kill_at_any_request(
    broker: Broker, postgres: Postgres, tag: str, tmp_path: Path
) -> None:
    """A kill comes during an epoch of the view, or during the upload of a checkpoint. Each epoch has one content."""
    machines = Machines("object_lookups.py", broker, postgres, tag, tmp_path)
    machines.strike_each(LIVE_REQUESTS, 7, machines.is_struck)
    found = machines.wire.rows(machines.out)
    assert sorted(row["n"] for row in found) == list(range(machines.sent))
    content: dict[tuple[int, str], set[int]] = {}
    for row in found:
        content.setdefault((row["epoch"], row["word"]), set()).add(*[each["newest"] for each in row["found"]] or [-1])
    assert max(map(len, content.values())) == 1, content
    assert len({epoch for epoch, _ in content}) > 1, "each machine has made an epoch"


@pytest.mark.parametrize(
    ("file", "options"),
    [("object_loops.py", ()), ("object_rounds.py", CLUSTER)],
    ids=["one machine", "cluster"],
)
def test_every_change_of_an_iteration_is_there_once_after_a_kill_at_any_request(
    broker: Broker, postgres: Postgres, tag: str, tmp_path: Path, file: str, options: tuple[str, ...]
) -> None:
    """A kill comes during the upload of the files of a loop, before the record that names them, or during a deletion.

    On a cluster, it comes during the uploads of each round. The changes of the result add up to the components, so a
    change that is missing or there twice is seen.
    """
    machines = Machines(file, broker, postgres, tag, tmp_path, *options)

    def is_over(application: Application, strike: Strike) -> bool:
        if strike.number == 0 and are_components(machines):
            return True
        assert strike.request or application.runs(), application.log()
        if strike.number:
            machines.send(1)
        return False

    machines.strike_each(LIVE_REQUESTS, 7, is_over)
    assert are_components(machines)


def components_found(changes: Iterable[Mapping[str, int]]) -> dict[tuple[int, int], int]:
    """Return the sums of changes of components: those that are not 0."""
    found: Counter[tuple[int, int]] = Counter()
    for row in changes:
        found[row["node"], row["component"]] += row["difference"]
    return {row: n for row, n in found.items() if n}


def components_of(sent: int) -> dict[tuple[int, int], int]:
    """Return the components of the numbers below this one, each once."""
    linked = [n for n in range(sent) if n % 7]
    return dict.fromkeys([(node, node // 7 * 7) for n in linked for node in (n, n - 1)], 1)


def are_components(machines: Machines) -> bool:
    """Return whether the changes in the topic add up to the components of all numbers sent."""
    return components_found(machines.wire.rows(machines.out)) == components_of(machines.sent)
