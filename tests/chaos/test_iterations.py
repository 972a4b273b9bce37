"""kill -9 at each place of a loop, and rounds that keep failing: a soak.

A live region in the same application keeps running meanwhile, and the results are judged from the input, the table and
the topic. `integration/collections/test_iterations.py` interrupts a loop at the same places without a kill,
`test_differential_dying.py` kills the workers of rounds, `test_task_again.py` one whose task is run again, and in
`live_regions/test_down.py` a loop that keeps failing stays down while a live region runs on.
"""

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.apps.striking import FAILING, FAILURES, PLACES
from tests.chaos.harness import APPS, START_S, Application
from tests.integration.epochs.test_batches import Table
from tests.integration.live import Wire

NODES, AT_ONCE = 30, 5
ROOT = Path(__file__).parents[2]


class Edges:
    """Edges that are added and removed, a few at a time, from a thread."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self._wire, self._topic, self._random = wire, topic, random.Random(11)
        self.there: Counter[tuple[int, int]] = Counter()
        self.sent = 0

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Send edges until the end of the block."""
        stopping = threading.Event()

        def send() -> None:
            while not stopping.wait(0.2):
                self._send()

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()

    def _send(self) -> None:
        rows = []
        for _ in range(AT_ONCE):
            there = sorted(self.there.elements())
            if len(there) > self._random.randrange(2 * NODES):  # few enough edges for several components
                edge, sign = self._random.choice(there), -1
            else:
                edge, sign = (self._random.randrange(NODES), self._random.randrange(NODES)), 1
            self.there[edge] += sign
            rows.append({"src": edge[0], "dst": edge[1], "difference": sign})
        for partition in range(2):  # changes of an edge stay in order
            self._wire.send(self._topic, [row for row in rows if row["src"] % 2 == partition], partition=partition)
        self.sent += len(rows)

    def components(self) -> Counter[tuple[int, int]]:
        """Return each node with the smallest node of its component."""
        parts = nx.connected_components(nx.Graph(list((+self.there).elements())))
        return Counter((node, min(part)) for part in parts for node in part)


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
def test_a_loop_is_killed_wherever_it_is(broker: Broker, home: Path, tag: str, tmp_path: Path) -> None:
    wire, database, dies = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db", tmp_path / "dies"
    dies.mkdir()
    edges, seen = Edges(wire, wire.topic("edges")), wire.topic("seen")
    table = Table(database, f"components_{tag}")
    env = {"TAG": tag, "DATABASE": database, "DIES": str(dies), "PYTHONPATH": str(ROOT)}
    application = Application(APPS / "graph.py", broker.bootstrap, home, env)

    def released() -> Counter[tuple[int, int]]:
        found: Counter[tuple[int, int]] = Counter()
        for row in table.rows():
            found[row["node"], row["component"]] += row["difference"]
        return Counter({row: n for row, n in found.items() if n})

    def epoch() -> int:
        return max(
            (int(r["last_commit"]) for r in application.status()["regions"] if r["name"] == "components"), default=-1
        )

    def goes_on(what: str) -> None:
        answered, complete = wire.count(seen), epoch()
        application.wait(
            lambda: wire.count(seen) > answered and epoch() > complete + 1, START_S, f"results after {what}"
        )

    application.start()
    try:
        with edges.flowing():
            application.wait(table.rows, START_S, "an epoch")
            _fail_while_others_answer(application, dies, lambda: wire.count(seen), epoch)
            goes_on(FAILING)
            for place in PLACES:
                host = application.host().pid
                (dies / place).touch()
                application.wait(lambda p=place: not (dies / p).exists(), START_S, f"{place}")  # type: ignore[misc]
                goes_on(place)
                assert application.host().pid != host, f"the host was not killed at {place}"
        application.wait(lambda: wire.count(seen) >= edges.sent, 120, f"{edges.sent} counts")
        application.wait(lambda: released() == edges.components(), 120, "the components")
        assert application.runs()
    finally:
        application.stop()
    versions = sorted((r["src"], r["version"]) for r in wire.rows(seen))
    counts = Counter(src for src, _ in versions)
    assert versions == sorted((src, n) for src, most in counts.items() for n in range(1, most + 1)), "each version once"
    assert sum(counts.values()) == edges.sent


def _fail_while_others_answer(
    application: Application, dies: Path, answered: Callable[[], int], epoch: Callable[[], int]
) -> None:
    """Let the rounds of an epoch fail, and check that the live region gives results between two failures."""

    def failures() -> int:
        return (dies / FAILURES).read_text().count("again") if (dies / FAILURES).exists() else 0

    def regions() -> dict[str, dict[str, Any]]:
        return {region["name"]: region for region in application.status()["regions"]}

    host = application.host().pid
    (dies / FAILING).touch()
    application.wait(lambda: failures() >= 2, START_S, "an epoch to fail twice")
    failed, before, complete = failures(), answered(), epoch()
    application.wait(lambda: answered() > before, 60, "a result meanwhile")
    application.wait(lambda: failures() > failed, 60, "another failure")
    application.wait(lambda: "trying again" in regions()["components"]["detail"], 60, f"{regions()}")
    assert epoch() == complete, "the epoch fails at every attempt"
    assert regions()["seen"]["restarts"] == 0, "a failure of a loop does not affect other regions"
    assert regions()["seen"]["incarnation"] == 1
    assert application.host().pid == host
    (dies / FAILING).unlink()
