"""kill -9 of all processes, or only of Python, under every mechanism; judged only by the checker.

An application runs several counts of one topic, each under a different mechanism. After the same kills, each result
must exist once if that is promised. Results must be repeated if they are only acknowledged, or if the barrier is
disabled. Results that are published on arrival, in plain lanes, are in test_broker.py and test_inferred.py.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from confluent_kafka.admin import AdminClient

from falkirk.check import Guarantee, read_topic
from falkirk.kafka.connection import Connection
from falkirk.kafka.topics import Topics
from falkirk.local.broker import Broker
from falkirk.store import Store
from tests.chaos.harness import (
    APPS,
    LIGHT,
    Counting,
    Load,
    assert_exactly_once,
    await_results_behind,
    counting,
    is_alive,
    judge_counts,
)
from tests.support import wait_until

LANES = APPS / "lanes.py"
#: Topics of an application that contain no results: dead letters, and its owners' claims.
NO_LOGS = (".dead-letters", ".owner.claims")
#: How often each kind of kill is repeated; a higher number makes a soak.
AGAIN = int(os.environ.get("FALKIRK_STRIKES", "1"))
#: A kill may come right after a checkpoint that is not reported yet. It is then repeated, but only this many times.
MORE_STRIKES_MAX = 4


def test_fenced_held_back_and_without_the_barrier(broker: Broker, home: Path, tag: str) -> None:
    counted = ("fenced", "snapshots", "repeated")
    with counting(broker, home, tag, counted=counted, file=LANES, FENCED="fenced", COMMIT_MS="500") as run:
        sent = strike(
            run, 2 * AGAIN, python_alone=1,
            shows=lambda suppressed: bool(
                suppressed["fenced"] and is_taken_back(run, "snapshots-held") and has_twice(run, run.topic("repeated"))
            ),
        )  # fmt: skip
        assert_exactly_once(run, sent, "fenced", "snapshots")
        judge_repeated(run, sent)
        logs = logs_of(run)
    assert logs.keys() == {"snapshots-held"}
    assert logs["snapshots-held"] > sent, "cancelled results are still in the log, but not in the sink"


def test_logged_before_the_sink_and_acknowledged(broker: Broker, home: Path, tag: str) -> None:
    # After a kill, more input is read again than was acknowledged: its points are kept until the end.
    with counting(broker, home, tag, counted=("logged", "acknowledged"), HISTORY="90") as run:
        sent = strike(
            run,
            AGAIN,
            shows=lambda suppressed: bool(suppressed["logged-out"] and has_twice(run, f"{run.prefix()}passed-out")),
        )
        assert_exactly_once(run, sent, "logged")
        judge_acknowledged(run, sent)
        logs = logs_of(run)
    assert logs["logged-out"] == sent, "each result once: the barrier drops duplicates in the log too"


def strike(
    run: Counting, strikes: int, *, shows: Callable[[Counter[str]], bool], python_alone: int | None = None
) -> int:
    """Kill all processes under load `strikes` times, or more often, until each mechanism had work to do.

    Args: shows: returns whether each mechanism had work, given how many results each region found already published.
        python_alone: the strikes at which only the host's Python is killed.
    Returns: the number of sent records.
    """
    suppressed: Counter[str] = Counter()
    with Load(run.bootstrap, run.events, rate=LIGHT) as load:
        run.application.wait_committed(0)  # so the logs exist
        for number in range(strikes + MORE_STRIKES_MAX):
            await_results_behind(run)
            if number == python_alone:
                kill_python_alone(run)
            else:
                run.application.kill_everything()
                run.application.wait_committed(0)
            suppressed.update(run.suppressed())
            if number + 1 >= strikes and shows(suppressed):
                break
    print(f"suppressed over all kills: {dict(suppressed)}")
    assert shows(suppressed)
    return load.sent


def is_taken_back(run: Counting, log: str) -> bool:
    """Return whether a part of an internal log is void."""
    with closing(Store(run.application.home / "decisions.db")) as store:
        return bool(store.voided_ranges(f"{run.prefix()}{log}"))


def has_twice(run: Counting, topic: str) -> bool:
    """Return whether a record is in a topic twice; the events' numbers differ, and so do the versions of a word."""
    rows = [json.loads(r.value or b"{}") for r in read_topic({"bootstrap.servers": run.bootstrap}, topic)]
    return len({(row["word"], row.get("version", row["n"])) for row in rows}) < len(rows)


def kill_python_alone(run: Counting) -> None:
    """Kill the host's Python while its JVM keeps writing, and wait until its successor has written a checkpoint."""
    jvm, old = run.application.jvm(), run.application.host()
    old.kill()
    wait_until(lambda: not is_alive(jvm), 60, "the JVM of the killed host to end")
    run.application.forget_status()
    run.application.wait_committed(1)
    assert run.application.host().pid != old.pid


def logs_of(run: Counting) -> dict[str, int]:
    """Return the internal logs, by their names in the plan, and the number of records that each has had."""
    prefix = run.prefix()
    known = AdminClient({"bootstrap.servers": run.bootstrap}).list_topics(timeout=30).topics
    mine = [topic for topic in known if topic.startswith(prefix) and not topic.endswith(NO_LOGS)]
    topics = Topics(Connection.of(run.bootstrap))
    return {topic.removeprefix(prefix): sum(topics.end_positions(topic).values()) for topic in mine}


def judge_acknowledged(run: Counting, sent: int) -> None:
    """Check that acknowledged results are repeated but not lost."""
    passed = list[int]()

    def all_counted() -> bool:
        found = read_topic({"bootstrap.servers": run.bootstrap}, f"{run.prefix()}passed-out")
        passed[:] = [json.loads(record.value or b"{}")["n"] for record in found]
        return len(set(passed)) == sent and run.released(run.topic("acknowledged")) == len(passed)

    run.application.wait(all_counted, 180, f"{sent} events passed and counted")
    run.application.wait_next_commit()
    verdict = judge_counts(run.bootstrap, run.events, run.topic("acknowledged"))
    print(f"acknowledged: {verdict.counts}")
    assert verdict.guarantee is Guarantee.AT_LEAST_ONCE, verdict.anomalies
    assert verdict.counts.repeated_inputs > 0
    assert set(passed) == set(range(sent))
    assert max(Counter(passed).values()) > 1


def judge_repeated(run: Counting, sent: int) -> None:
    """Check that without the barrier the same kills leave an exact state, but repeat results."""

    def counted() -> int:
        newest: dict[str, int] = defaultdict(int)
        for record in read_topic({"bootstrap.servers": run.bootstrap}, run.topic("repeated")):
            row = json.loads(record.value or b"{}")
            newest[row["word"]] = max(newest[row["word"]], row["version"])
        return sum(newest.values())

    run.application.wait(lambda: counted() >= sent, 180, f"{sent} events counted")
    verdict = judge_counts(run.bootstrap, run.events, run.topic("repeated"))
    print(f"repeated: {verdict.counts}")
    assert verdict.guarantee is Guarantee.REPEATED_DELIVERY, verdict.anomalies
