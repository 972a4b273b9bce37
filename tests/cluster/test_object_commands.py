"""Commands on a running application on a cluster whose home is in an object store: state, history, rollback, verify."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import APPS, START_S, Application
from tests.chaos.test_object_home import CLUSTER, Machines, components_found, components_of
from tests.postgres import Postgres

ROWS = 10


class Both(Machines):
    """Machines for a live region and an iteration, on a cluster of two executors."""

    def __init__(self, broker: Broker, postgres: Postgres, tag: str, folder: Path) -> None:
        super().__init__("object_both.py", broker, postgres, tag, folder, *CLUSTER)
        self.connected, self.again = self.wire.topic("out-connected", 1), 0

    def are_right(self) -> bool:
        """Return whether each result is there once, and those of the last `again` records twice."""
        words = Counter(f"w{n % 3}" for n in range(self.sent))
        before = Counter(f"w{n % 3}" for n in range(self.sent - self.again))
        due = Counter((word, n + 1) for word, times in words.items() for n in range(times))
        due.update((word, n + 1) for word, times in words.items() for n in range(before[word], times))
        if Counter((row["word"], row["version"]) for row in self.wire.rows(self.out)) != due:
            return False
        changes = Counter(components_of(self.sent))
        if self.again:
            changes.update(components_of(self.sent))
            changes.subtract(components_of(self.sent - self.again))
        return components_found(self.wire.rows(self.connected)) == {row: n for row, n in changes.items() if n}

    def send_and_wait(self, application: Application) -> None:
        """Send records, and wait for the results of both."""
        self.send(ROWS)
        application.wait(self.are_right, START_S, lambda: f"results of {self.sent} records")

    def tell(self, home: Path, command: str, *options: str) -> Any:
        """Run a command about the application on another machine; return its JSON."""
        about = [str(APPS / "object_both.py"), *options, "--home", str(home), "--json"]
        about += [] if command == "state" else ["--kafka", self.wire.bootstrap]
        words = [sys.executable, "-m", "falkirk.cli", command, *about]
        done = subprocess.run(
            words, env=self.application(0)._env, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.mark.soak
def test_states_are_shown_and_rolled_back(broker: Broker, postgres: Postgres, tag: str, tmp_path: Path) -> None:
    both, elsewhere = Both(broker, postgres, tag, tmp_path), tmp_path / "elsewhere"

    def covered() -> bool:
        return not both.tell(elsewhere, "history")[0]["outside"]

    try:
        with both.application(1) as application:
            both.send_and_wait(application)
            application.wait(covered, START_S, "a cut that covers all results")
            (shown,) = both.tell(elsewhere, "state", "counts")
            count = shown["columns"][shown["keys"]]
            assert {row["word"]: row[count] for row in shown["rows"]} == {"w0": 4, "w1": 3, "w2": 3}, shown
            (note,) = both.tell(elsewhere, "state", "components")
            assert "files of changes" in note["note"]
            both.send_and_wait(application)
            application.wait(covered, START_S, "a cut that covers all results")
            cut = next(c for c in both.tell(elsewhere, "history") if c["input_read_again"] == 2 * ROWS)
            moves = both.tell(elsewhere, "rollback", "--to", str(cut["cut"]), "--force", "--yes")["moves"]
            assert {move["region"]: move["to"] for move in moves} == cut["checkpoints"]
            both.again = ROWS
            application.wait(both.are_right, START_S, "the results after the cut a second time")
    finally:
        both.objects.close()
