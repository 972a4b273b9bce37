"""Applications with their homes in an object store, killed by kill -9 at each of their requests that change data there.

Each run is in a new folder, as on another machine. It takes minutes of CPU time, so FALKIRK_STRIKES runs it: with 1 at
some requests, with more at each one.
"""

import os
from collections import Counter
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
#: Three checkpoints of the live region have about so many.
LIVE_REQUESTS = 30
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


def test_every_result_of_batches_is_there_once_after_a_kill_at_any_request(
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


def test_every_count_of_a_live_region_is_there_once_after_a_kill_at_any_request(
    broker: Broker, postgres: Postgres, tag: str, tmp_path: Path
) -> None:
    """A kill comes during the upload of a checkpoint, after it and before its record, or during a deletion."""
    wire, objects = Wire(bootstrap=broker.bootstrap, tag=tag), ObjectStore()
    events, out = wire.topic("events", 1), wire.topic("out", 1)
    names = {"EVENTS": events, "OUT": out, "DATA": f"s3a://{BUCKET}/{tag}", "STORE": postgres.url()}
    sent = 0

    def send(number: int) -> None:
        nonlocal sent
        wire.send(events, [{"word": f"w{n % 3}"} for n in range(sent, sent + number)])
        sent += number

    def run(number: int) -> Strike:
        """Run on another machine, with input all the time, until its request of this number."""
        home = tmp_path / f"machine-{number}"
        application = Application(
            APPS / "live_objects.py", broker.bootstrap, home, {**names, **objects.environment}, *LEASE
        )

        def is_over(strike: Strike) -> bool:
            if strike.is_over or (number == 0 and len(wire.rows(out)) >= sent):
                return True
            assert strike.request or application.runs(), application.log()
            if number:
                send(1)
            return False

        send(ROWS)
        with objects.failing(strike := Strike(application, number)):
            application.start()
            try:
                wait_until(lambda: is_over(strike), START_S, application.log)
            finally:
                if not strike.is_over:
                    application.stop()
        return strike

    try:
        for number in range(1, LIVE_REQUESTS + 1, 7 if AGAIN == 1 else 1):
            print(f"killed at request {number}: {run(number).request}", flush=True)
        assert run(0).request == ""
    finally:
        objects.close()
    found = Counter((row["word"], row["version"]) for row in wire.rows(out))
    words = Counter(f"w{n % 3}" for n in range(sent))
    assert found == Counter((word, n + 1) for word, times in words.items() for n in range(times))
