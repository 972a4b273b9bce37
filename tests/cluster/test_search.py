"""Figure 1 under seeded kills of its driver, an executor, the broker and PostgreSQL: live, batch, lazy and eager
regions side by side, with their decisions and a sink in the database. Judged from inputs and outputs alone."""

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from falkirk.checker import Guarantee
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import APPS, Application, Load, judge_counts
from tests.integration.epochs.test_batches import Table
from tests.integration.live import Wire
from tests.postgres import Postgres
from tests.support import wait_until

SEED = int(os.environ.get("SEED", "5"))


#: One executor, with as many slots as the live regions take, and some for batches.
MASTER = "local-cluster[1,14,1024]"


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    """A server of this test's own, since it is killed."""
    server = Postgres()
    yield server
    server.close()


class Users(Load):
    """A crowd that asks."""

    def record(self, number: int) -> tuple[str | None, dict[str, Any]]:
        return None, {"id": number, "word": f"w{number % 40}"}


@pytest.mark.soak
def test_four_regimes_under_kills(own_broker: Broker, home: Path, tag: str, postgres: Postgres) -> None:
    wire, rng = Wire(bootstrap=own_broker.bootstrap, tag=tag), random.Random(SEED)
    events, queries = wire.topic("events"), wire.topic("queries")
    counts, answers, sums = wire.topic("counts"), wire.topic("answers"), wire.topic("sums")
    url = postgres.url().replace("postgresql:", "postgresql+psycopg:", 1)
    weighed, totals, answered = (Table(url, f"{n}_{tag}") for n in ("weighed", "totals", "answered"))
    env = {"TAG": tag, "DATABASE": postgres.url(), "STORE": postgres.url()}
    application = Application(APPS / "search.py", own_broker.bootstrap, home, env, "--master", MASTER)

    def restart_postgres() -> None:
        postgres.kill()
        postgres.start()

    def await_answers(beyond: int) -> None:
        def there() -> bool:
            assert application.runs(), application.log()
            return wire.count(answers) > beyond

        try:
            wait_until(there, 400, "answers")  # each region that has to roll back restarts the cluster
        except AssertionError as error:
            raise AssertionError(f"{error}\n{application.status()}\n{application.log()}") from None

    def kill_host() -> None:
        wait_until(lambda: psutil.pid_exists(application.status().get("pid", -1)), 60, "a host")
        os.kill(application.status()["pid"], signal.SIGKILL)

    def kill_executor() -> None:
        wait_until(lambda: bool(application.executors()), 120, "an executor")
        rng.choice(application.executors()).kill()

    def restart_broker() -> None:
        process = own_broker.process()
        assert process is not None
        process.kill()
        process.wait(30)
        assert local_broker.start(Path(own_broker.folder)).bootstrap == own_broker.bootstrap

    application.start()
    try:
        with (
            Load(own_broker.bootstrap, events, rate=40.0) as load,
            Users(own_broker.bootstrap, queries, rate=5.0) as users,
        ):
            await_answers(0)
            faults: list[Callable[[], None]] = [kill_executor, restart_broker, restart_postgres]
            faults += [kill_host, application.kill_everything]
            rng.shuffle(faults)
            for fault in faults:
                threading.Event().wait(rng.uniform(0.5, 3.0))  # at any moment of the work
                there = wire.count(answers)
                fault()
                if rng.random() < 0.5:  # otherwise the next fault meets the repair of this one
                    await_answers(there + 5)
        sent, asked = load.sent, users.sent

        def done() -> bool:
            summed = {r["word"]: r["total"] for r in totals.rows()}
            weight = sum(r["weight"] for r in weighed.rows())
            fewest = min(weight, sum(summed.values()), wire.count(counts))
            return fewest >= sent and min(len(answered.rows()), wire.count(answers)) >= asked

        wait_until(done, 400, f"{sent} events and {asked} queries\n{application.log()}")
    finally:
        assert application.stop() == 0, application.log()
    verdict = judge_counts(own_broker.bootstrap, events, counts)
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict.anomalies
    words = Counter(row["word"] for row in wire.rows(events))
    weights: Counter[str] = Counter()
    for row in weighed.rows():
        weights[row["word"]] += row["weight"]
    assert weights == words, "an epoch of the batch is lost or there twice"
    assert {r["word"]: r["total"] for r in totals.rows()} == dict(words)
    replies = wire.rows(answers)
    assert sorted(r["id"] for r in replies) == list(range(asked)), "a query was not answered exactly once"
    assert {r["id"]: r for r in replies} == {r["id"]: r for r in answered.rows()}
    told = {(r["epoch"], r["word"]): r["total"] for r in wire.rows(sums)}
    wrong = [r for r in replies if r["total"] != told.get((r["seen"], r["word"]))]
    assert not wrong, "an answer is not what the view says that it has read"
    assert all(r["version"] is None or 0 < r["version"] <= words[r["word"]] for r in replies)
    assert not [p for p in psutil.pids() if _is_of(p, home)], "something of it still runs"


def _is_of(pid: int, home: Path) -> bool:
    try:
        return str(home) in " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return False
