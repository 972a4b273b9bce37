"""An application of batches with its home in an object store, killed by kill -9 at each of its requests that change
data there. Each run is in a new folder, as on another machine. It takes minutes of CPU time, so FALKIRK_STRIKES runs
it: with 1 at each fourth request, with more at each one.
"""

import os
from pathlib import Path

import pytest

from falkirk.local.broker import Broker
from tests.chaos.harness import AGAIN, APPS, START_S, Application
from tests.integration.homes.once import assert_each_once
from tests.integration.live import Wire
from tests.objects import BUCKET, ObjectStore
from tests.postgres import Postgres
from tests.support import wait_until

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)

ROWS = 10
#: An epoch of both batches has about so many requests.
REQUESTS = 24
LEASE = ("--wait", "--lease", "6")


class Strike:
    """Kills an application at its request of this number that changes data. A third of them are done afterwards.

    So the object store also does requests of processes that are dead.
    """

    def __init__(self, application: Application, number: int) -> None:
        self._application, self._number = application, number
        self.seen, self.request, self.is_over = 0, "", False

    def __call__(self, method: str, path: str) -> str:
        if method in ("GET", "HEAD") or "/regions/" not in path.replace("%2F", "/"):
            return ""
        self.seen += 1
        if self.seen != self._number:
            return "refuse" if self.request else ""
        self.request = f"{method} {path}"
        self._application.kill()
        self.is_over = True
        return "repeat" if self._number % 3 == 1 else "refuse"


def test_every_result_is_there_once_after_a_kill_at_any_request(
    broker: Broker, postgres: Postgres, tag: str, tmp_path: Path
) -> None:
    wire, objects = Wire(bootstrap=broker.bootstrap, tag=tag), ObjectStore()
    events, out = wire.topic("events", 1), wire.topic("out", 1)
    names = {"EVENTS": events, "OUT": out, "DATA": f"s3a://{BUCKET}/{tag}", "STORE": postgres.url()}
    sent = 0

    def run(number: int) -> Strike:
        """Run on another machine, until its request of this number or until all results are there."""
        nonlocal sent
        home = tmp_path / f"machine-{number}"
        application = Application(APPS / "objects.py", broker.bootstrap, home, {**names, **objects.environment}, *LEASE)
        wire.send(events, [{"n": n} for n in range(sent, sent + ROWS)])
        sent += ROWS
        with objects.failing(strike := Strike(application, number)):
            application.start()
            try:
                wait_until(lambda: strike.is_over or wire.count(out) >= sent, START_S, application.log)
            finally:
                if not strike.is_over:
                    application.stop()
        return strike

    try:
        for number in range(1, REQUESTS + 1, 4 if AGAIN == 1 else 1):
            print(f"killed at request {number}: {run(number).request}", flush=True)
        assert run(0).request == ""
    finally:
        objects.close()
    assert_each_once(wire.rows(out), sent)
