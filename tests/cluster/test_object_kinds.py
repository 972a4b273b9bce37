"""Live regions of several kinds on a cluster whose home is in an object store, after everything was killed."""

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import START_S, Application
from tests.chaos.test_object_home import Machines
from tests.duplicates import BEGAN
from tests.postgres import Postgres

ROWS = 10
#: The tasks of four live regions run all the time.
CLUSTER = ("--master", "local-cluster[2,8,1024]")


class Kinds(Machines):
    """Machines for a lookup, a window, a join, and Python."""

    def __init__(self, broker: Broker, postgres: Postgres, tag: str, folder: Path) -> None:
        super().__init__("object_kinds.py", broker, postgres, tag, folder, *CLUSTER)
        self.others = self.wire.topic("others", 1)
        self.sinks = {name: self.wire.topic(name, 1) for name in ("looked", "windowed", "joined", "called")}

    def send(self, number: int) -> None:
        """Send so many records, and a partner of each."""
        numbers = range(self.sent, self.sent + number)
        at = {n: (BEGAN + timedelta(milliseconds=n)).isoformat() for n in numbers}
        self.wire.send(self.events, [{"n": n, "word": f"w{n % 3}", "at": at[n]} for n in numbers])
        self.wire.send(self.others, [{"m": n, "word2": "x", "then": at[n]} for n in numbers])
        self.sent += number

    def numbers(self) -> dict[str, int]:
        """Return how many results each sink has."""
        return {name: len(self.wire.rows(topic)) for name, topic in self.sinks.items()}

    def send_and_wait(self, application: Application) -> None:
        """Send records, and wait for all results."""
        self.send(ROWS)
        application.wait(
            lambda: min(self.numbers().values()) >= self.sent, START_S, lambda: f"{self.sent}: {self.numbers()}"
        )


@pytest.mark.soak
def test_another_cluster_resumes_all_kinds(broker: Broker, postgres: Postgres, tag: str, tmp_path: Path) -> None:
    kinds = Kinds(broker, postgres, tag, tmp_path)
    try:
        with kinds.application(1) as application:
            kinds.send_and_wait(application)
            application.wait_next_commit()
            kinds.send(ROWS)
            application.kill()
        with kinds.application(2) as application:
            kinds.send_and_wait(application)
            application.wait_next_commit()
            kinds.send_and_wait(application)
        for name in ("looked", "joined", "called"):
            found = sorted(row["n"] for row in kinds.wire.rows(kinds.sinks[name]))
            assert found == list(range(kinds.sent)), name
        words = Counter(f"w{n % 3}" for n in range(kinds.sent))
        versions = Counter((row["word"], row["version"]) for row in kinds.wire.rows(kinds.sinks["windowed"]))
        assert versions == Counter((word, n + 1) for word, times in words.items() for n in range(times))
    finally:
        kinds.objects.close()
