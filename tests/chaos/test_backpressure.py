"""Backpressure: if a sink blocks or a step is slow, its input waits in Kafka, and nothing else waits.

No process is declared dead and memory stays within limits. When the cause is over, all waiting input is processed.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sql

from falkirk.checker import Guarantee
from falkirk.runtime.spark.epochs.runner import BEHIND_MAX
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import APPS, START_S, Application, Load, judge_counts
from tests.integration.live import Wire
from tests.postgres import Postgres
from tests.support import wait_until

RATE = 60.0
#: An eager stream begins an epoch as soon as records have come. With fewer bursts it computes fewer epochs.
TOGETHER_S = 1.0
#: Epochs beyond the limit that may be cut before it is known that the sink makes no progress.
UNAWARE = 4
#: A JVM with Spark's default heap of 1 GiB stays below the first limit, a host below the second.
JVM_BYTES_MAX, HOST_BYTES_MAX = 2.5 * 2**30, 0.5 * 2**30


def test_a_slow_sink_and_a_slow_step_make_input_wait(broker: Broker, home: Path, tag: str, postgres: Postgres) -> None:
    wire, brake, sink = Wire(bootstrap=broker.bootstrap, tag=tag), home.parent / "brake", f"kept_{tag}"
    events, counts, weighed = wire.topic("events"), wire.topic("counts"), wire.topic("weighed")
    env = {"TAG": tag, "DATABASE": postgres.url(), "BRAKE": str(brake)}
    application = Application(APPS / "slow.py", broker.bootstrap, home, env)

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
        with Load(broker.bootstrap, events, rate=RATE, together_s=TOGETHER_S) as load:
            wait_until(has_table, START_S, "an epoch in the table")
            wait_until(lambda: wire.count(weighed) and wire.count(counts), 60, "results")
            with _locked(postgres, sink):
                brake.touch()
                pids, restarts = (application.host().pid, application.jvm().pid), _restarts(application)
                wait_until(lambda: behind() >= BEHIND_MAX, 60, "epochs to wait for the sink")
                stood, lived = [-1, 0], wire.count(counts)
                wait_until(stands_still, 60, "the batch to stop, while the live region continues")
                wait_until(lambda: wire.count(counts) > lived + RATE, 60, "the live region to continue undisturbed")
                assert behind() <= BEHIND_MAX + UNAWARE, "too many epochs wait"
                slow = load.sent - wire.count(weighed)
                memory = application.jvm().memory_info().rss, application.host().memory_info().rss
                brake.unlink()
        assert slow > 2 * RATE, "the slow step has not made any input wait"
        application.wait(lambda: len(kept()) >= load.sent, 90, f"{load.sent} rows in the table")
        wait_until(lambda: min(wire.count(weighed), wire.count(counts)) >= load.sent, 90, "all other results")
        after = (application.host().pid, application.jvm().pid), _restarts(application)
    finally:
        assert application.stop() == 0, application.log()
    assert after == (pids, restarts), "a process was declared dead"
    assert memory[0] < JVM_BYTES_MAX
    assert memory[1] < HOST_BYTES_MAX
    everything = list(range(load.sent))
    assert sorted(int(str(n)) for n in kept()) == everything, "an event is not in the table exactly once"
    assert sorted(json.loads(r.value or b"{}")["n"] for r in wire.records(weighed)) == everything
    verdict = judge_counts(broker.bootstrap, events, counts)
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict.anomalies


def _restarts(application: Application) -> dict[str, int]:
    return {r["name"]: r["restarts"] for r in application.status()["regions"]}


@contextlib.contextmanager
def _locked(postgres: Postgres, table: str) -> Iterator[None]:
    """Lock a table for all others."""
    engine = sql.create_engine(postgres.url().replace("postgresql:", "postgresql+psycopg:", 1), poolclass=sql.NullPool)
    with engine.begin() as db:
        db.execute(sql.text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
        yield
