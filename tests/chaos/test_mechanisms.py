"""kill -9 of everything under each mechanism that is not the default: judged by the checker alone."""

import json
from collections import Counter
from pathlib import Path

from confluent_kafka.admin import AdminClient

from falkirk.check import Guarantee, read_topic
from falkirk.local.broker import Broker
from falkirk.logs.connection import Connection
from falkirk.logs.topics import Topics
from tests.chaos.harness import (
    Counting,
    Load,
    assert_exactly_once,
    counting,
    judge_counts,
    some_behind_a_commit,
)
from tests.support import wait_until


def kill_twice(run: Counting, log: str | None = None) -> int:
    """Kill everything twice under load, while results are in a log that no checkpoint covers (if none is named: in the
    sink); return how many records were sent."""
    with Load(run.bootstrap, run.events) as load:
        run.application.wait_committed(0)  # the logs are there
        for _ in range(2):
            some_behind_a_commit(run, log and f"{prefix_of(run)}{log}")
            run.application.kill_everything()
            run.application.wait_committed(1)
    return load.sent


def prefix_of(run: Counting) -> str:
    """Return what the names of the application's own topics begin with."""
    identity = json.loads((run.application.home / "falkirk.json").read_text())["identity"]
    return f"falkirk.counts.{identity}."


def logs_of(run: Counting) -> dict[str, int]:
    """Return the application's own logs by the names that the plan gives them, and how many records each has had."""
    prefix = prefix_of(run)
    known = AdminClient({"bootstrap.servers": run.bootstrap}).list_topics(timeout=30).topics
    mine = [topic for topic in known if topic.startswith(prefix) and not topic.endswith(".dead-letters")]
    topics = Topics(Connection.of(run.bootstrap))
    return {topic.removeprefix(prefix): sum(topics.end_positions(topic).values()) for topic in mine}


def test_snapshots_take_back_what_no_checkpoint_covers(broker: Broker, home: Path, tag: str) -> None:
    with counting(broker, home, tag, POLICY="snapshots") as run:
        # What is held back gets to the sink with a checkpoint: a kill as soon as it is there finds nothing behind it.
        sent = kill_twice(run, "counts-held")
        assert_exactly_once(run, sent)
        logs = logs_of(run)
    assert logs.keys() == {"counts-held"}
    assert logs["counts-held"] > sent, "what was taken back is still in the log, and not in the sink"


def test_strong_productions_are_logged_before_the_sink_has_them(broker: Broker, home: Path, tag: str) -> None:
    with counting(broker, home, tag, POLICY="log_sends") as run:
        sent = kill_twice(run)
        assert_exactly_once(run, sent)
        logs = logs_of(run)
    assert logs == {"counts-out": sent}, "each result once: the barrier keeps a second one out of the log as well"


def test_what_is_acknowledged_repeats_and_loses_nothing(broker: Broker, home: Path, tag: str) -> None:
    with counting(broker, home, tag, POLICY="acknowledged", DELIVERY="at-least-once", HISTORY="90") as run:
        sent = kill_twice(run)
        passed = list[int]()

        def all_counted() -> bool:
            found = read_topic({"bootstrap.servers": run.bootstrap}, f"{prefix_of(run)}passed-out")
            passed[:] = [json.loads(record.value or b"{}")["n"] for record in found]
            counts = sum(Topics(Connection.of(run.bootstrap)).end_positions(run.counts).values())
            return len(set(passed)) == sent and counts == len(passed)

        wait_until(all_counted, 180, f"{sent} events passed and counted\n{run.application.log()}")
        run.application.wait_next_commit()
        verdict = judge_counts(run.bootstrap, run.events, run.counts)
    print(verdict.counts)
    assert verdict.guarantee is Guarantee.AT_LEAST_ONCE, verdict.anomalies
    assert verdict.counts.repeated_inputs > 0
    assert set(passed) == set(range(sent))
    assert max(Counter(passed).values()) > 1
