"""A slow sink and a slow step of the application in chaos/apps/slow.py: their input waits in Kafka, and no other input.

The application runs in the session of the tests, or in separate processes (chaos/test_backpressure.py).
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import sqlalchemy as sql

from falkirk.checker import Guarantee
from falkirk.runtime.spark.epochs.runner import BEHIND_MAX
from tests.chaos.harness import APPS, START_S, Load, judge_counts
from tests.chaos.watched import Watched
from tests.integration.live import Wire
from tests.postgres import Postgres
from tests.support import wait_until

FILE = APPS / "slow.py"
RATE = 60.0
#: An eager stream begins an epoch as soon as records have come. With fewer bursts it computes fewer epochs.
TOGETHER_S = 1.0
#: Epochs beyond the limit that may be cut before it is known that the sink makes no progress.
UNAWARE = 4


def environment(tag: str, postgres: Postgres, home: Path) -> dict[str, str]:
    """Return the variables that the application needs."""
    return {"TAG": tag, "DATABASE": postgres.url(), "BRAKE": str(_brake(home))}


def _brake(home: Path) -> Path:
    """Return the file that makes the step slow while it exists."""
    return home.parent / "brake"


def make_input_wait(
    application: Watched, bootstrap: str, tag: str, postgres: Postgres, look: Callable[[], object] = lambda: None
) -> None:
    """Start the application, lock the table of a sink, and slow a step down. Judge all results after the cause is over.

    Args: look: called while both are slow.
    """
    wire, sink, brake = Wire(bootstrap=bootstrap, tag=tag), f"kept_{tag}", _brake(application.home)
    events, counts, weighed = wire.topic("events"), wire.topic("counts"), wire.topic("weighed")

    def kept() -> list[object]:
        return [n for (n,) in postgres.execute(f"SELECT n FROM {sink}")]

    def has_table() -> bool:
        assert application.runs(), application.log()
        return bool(postgres.execute(f"SELECT 1 FROM pg_tables WHERE tablename = '{sink}'"))

    def commit(region: str) -> int:
        (found,) = [int(r["last_commit"]) for r in application.status()["regions"] if r["name"] == region]
        return found

    def behind() -> int:
        """Return the number of complete epochs that are not in the table."""
        ((mark,),) = postgres.execute(f"SELECT epoch FROM falkirk_marks WHERE sink = '{sink}'")
        return commit("kept") - int(str(mark))

    def stands_still() -> bool:
        """Return whether no epoch was completed while the live region wrote two checkpoints."""
        if commit("kept") != stood[0]:
            stood[:] = commit("kept"), commit("counts")
        return commit("counts") >= stood[1] + 2

    application.start()
    try:
        with Load(bootstrap, events, rate=RATE, together_s=TOGETHER_S) as load:
            wait_until(has_table, START_S, "an epoch in the table")
            wait_until(lambda: wire.count(weighed) and wire.count(counts), 60, "results")
            with _locked(postgres, sink):
                brake.touch()
                look()
                restarts = _restarts(application)
                wait_until(lambda: behind() >= BEHIND_MAX, 60, "epochs to wait for the sink")
                stood, lived = [-1, 0], wire.count(counts)
                wait_until(stands_still, 60, "the batch to stop, while the live region continues")
                wait_until(lambda: wire.count(counts) > lived + RATE, 60, "the live region to continue undisturbed")
                assert behind() <= BEHIND_MAX + UNAWARE, "too many epochs wait"
                slow = load.sent - wire.count(weighed)
                look()
                brake.unlink()
        assert slow > 2 * RATE, "the slow step has not made any input wait"
        application.wait(lambda: len(kept()) >= load.sent, 90, f"{load.sent} rows in the table")
        wait_until(lambda: min(wire.count(weighed), wire.count(counts)) >= load.sent, 90, "all other results")
        assert _restarts(application) == restarts, "a region was taken for dead"
        look()
    finally:
        assert application.stop() == 0, application.log()
    everything = list(range(load.sent))
    assert sorted(int(str(n)) for n in kept()) == everything, "an event is not in the table exactly once"
    assert sorted(json.loads(r.value or b"{}")["n"] for r in wire.records(weighed)) == everything
    verdict = judge_counts(bootstrap, events, counts)
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict.anomalies


def _restarts(application: Watched) -> dict[str, int]:
    return {r["name"]: r["restarts"] for r in application.status()["regions"]}


@contextlib.contextmanager
def _locked(postgres: Postgres, table: str) -> Iterator[None]:
    """Lock a table for all others."""
    engine = sql.create_engine(postgres.url().replace("postgresql:", "postgresql+psycopg:", 1), poolclass=sql.NullPool)
    with engine.begin() as db:
        db.execute(sql.text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
        yield
