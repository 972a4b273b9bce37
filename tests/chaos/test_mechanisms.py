"""kill -9 of all processes, of Python alone, and of the broker, under every mechanism; judged only by the checker.

An application runs several counts of one topic, each under a different mechanism. After the same kills, each result
must exist once if that is promised. When Python is killed, a standby takes over; test_push.py kills Python without one.
In the soak, results must be repeated if they are only acknowledged, or if the barrier is disabled.
`integration/live_regions/test_mechanisms_live.py` shows that without kills.
tests/cluster/test_fenced.py has a JVM that nobody can reach.
"""

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from falkirk.checker import Guarantee, read_topic
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.recovery.decision_store import Store
from falkirk.recovery.ownership.folder import STANDBY
from falkirk.recovery.ownership.process_records import ProcessRecord
from falkirk.runtime.supervision.settings import STATE
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.broker import Broker
from tests.chaos.counting import LANES, Counting, assert_exactly_once, await_results_behind, counting, repeated
from tests.chaos.harness import LIGHT, Load, judge_counts, strike, topics_of
from tests.collector import Collector, attributes, collecting
from tests.support import is_alive, suspend, wait_until

#: More kills, and a second application.
IS_SOAK = "FALKIRK_STRIKES" in os.environ
#: Topics of an application that contain no results: dead letters, and its owners' claims.
NO_LOGS = (".dead-letters", ".owner.claims")
#: A region with one query, before a hop to a region with two.
HOP = "hopped-twins-by-word"


def test_everything_is_killed_and_the_broker_too(own_broker: Broker, home: Path, tag: str) -> None:
    """A hop to a plain output of a region with two queries, a fenced output, and results that wait for checkpoints.

    The transactions of the fenced output are so long that one is always open.
    """
    counted = ("hopped-twins", "fenced", "snapshots")
    with (
        collecting() as collector,
        counting(
            own_broker, home, tag, "--standby", counted=counted, file=LANES, FENCED="fenced", COMMIT_MS="500",
            SINGLE=HOP, STANDBYS_MAX="1", OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
        ) as run,
    ):  # fmt: skip
        if IS_SOAK:
            run.application.wait_committed(0)  # the lanes are open, and nothing was sent
            run.application.kill_everything()
        with Load(run.bootstrap, run.events, rate=LIGHT) as load:
            run.application.wait_committed(0)  # so the logs exist
            standby = standby_of(run)
            await_results_behind(run, HOP)
            kill_python_alone(run, standby)
            await_spans(collector)
            broker = kill_broker(own_broker)  # under load, there are always results that no checkpoint covers
            strike(
                run.application,
                lambda: await_twins_and_results_behind(run, 1, HOP),
                lambda checkpoints: hang_while_everything_is_killed(broker, run, checkpoints),
                lambda suppressed: has_struck_all(run, suppressed),
            )
        assert_exactly_once(run, load.sent, *counted)  # some 30 s of input came during the restart
        assert repeated(run, "fenced") == 0
        logs = logs_of(run)
    assert logs.keys() == {"snapshots-held", HOP}
    assert logs["snapshots-held"] > load.sent, "cancelled results are still in the log, but not in the sink"


@pytest.mark.skipif(not IS_SOAK, reason="a soak: it runs with FALKIRK_STRIKES alone")
def test_logged_before_the_sink_and_acknowledged(broker: Broker, home: Path, tag: str) -> None:
    """With them, a hop between twins, and a count without the barrier."""
    # After a kill, more input is read again than was acknowledged: its points are kept until the end.
    counted = ("logged", "acknowledged", "hopped-twins", "repeated")
    with counting(broker, home, tag, counted=counted, HISTORY="90") as run:
        with Load(run.bootstrap, run.events, rate=LIGHT) as load:
            run.application.wait_committed(0)
            strike(
                run.application,
                lambda: await_twins_and_results_behind(run, 2),
                run.application.kill_everything_behind,
                lambda suppressed: bool(
                    suppressed["logged-out"]
                    and suppressed["hopped-twins"]
                    and has_twice(run, f"{run.prefix()}passed-out")
                    and has_twice(run, run.topic("repeated"))
                ),
                more=4,  # an acknowledgement may come before a kill
            )
        assert_exactly_once(run, load.sent, "logged", "hopped-twins")
        judge_acknowledged(run, load.sent)
        judge_repeated(run, load.sent)
        logs = logs_of(run)
    assert logs["logged-out"] == load.sent, "each result once: the barrier drops duplicates in the log too"


def has_struck_all(run: Counting, suppressed: Counter[str]) -> bool:
    """Return whether the barrier dropped results of each region, and held ones became invalid."""
    return all(suppressed[name] for name in (HOP, "hopped-twins", "fenced")) and is_taken_back(run, "snapshots-held")


def is_taken_back(run: Counting, log: str) -> bool:
    """Return whether a part of an internal log is void."""
    with closing(Store(run.application.home / "decisions.db")) as store:
        return bool(store.voided_ranges(f"{run.prefix()}{log}"))


def has_twice(run: Counting, topic: str) -> bool:
    """Return whether a record is in a topic twice; the events' numbers differ, and so do the versions of a word."""
    rows = [json.loads(r.value or b"{}") for r in read_topic({"bootstrap.servers": run.bootstrap}, topic)]
    return len({(row["word"], row.get("version", row["n"])) for row in rows}) < len(rows)


def await_twins_and_results_behind(run: Counting, regions: int, *hops: str) -> dict[str, int]:
    """Wait until both queries of the regions with twins run, and each count has results behind a checkpoint.

    Returns: these checkpoints.
    """

    def both_run() -> bool:
        twins = [region["twin"] for region in run.application.status()["regions"] if region["twin"] is not None]
        return len(twins) == regions and all(twins)

    run.application.wait(both_run, 60, "the second query of each region")
    return await_results_behind(run, *hops)


def standby_of(run: Counting) -> psutil.Process:
    """Wait for a standby that warms up beside the host, and return it. It has claimed nothing and written no topic."""
    file, jvm = run.application.home / STANDBY, run.application.jvm()
    run.application.wait(file.exists, 180, "a standby")
    folder = Path(json.loads(file.read_text())["folder"])
    run.application.wait((folder / STATE).exists, 180, "its plan")
    run.application.wait(lambda: [*folder.glob("*/commits/0")], 120, "a batch that warms up")
    found = ProcessRecord(**json.loads(file.read_text())["process"]).find()
    assert found is not None
    assert found != run.application.host()
    assert jvm not in found.children(recursive=True)
    claims = topics_of(run.bootstrap).end_positions(f"{run.prefix()}owner.claims")
    assert sum(claims.values()) == 1, "the standby has claimed nothing"
    known = AdminClient({"bootstrap.servers": run.bootstrap}).list_topics(timeout=30).topics
    assert not [topic for topic in known if "standby" in topic]
    return found


def kill_python_alone(run: Counting, standby: psutil.Process) -> None:
    """Kill the host's Python while its JVM keeps writing, and wait until the standby has written a checkpoint."""
    jvm, old = run.application.jvm(), run.application.host()
    old.kill()
    wait_until(lambda: not is_alive(jvm), 60, "the JVM of the killed host to end")
    run.application.forget_status()
    run.application.wait_committed(1)
    assert run.application.host() == standby


def await_spans(collector: Collector) -> None:
    """Wait until the coordinator has sent the starts of both hosts, and the outage between them; check these."""

    def checkpoints() -> list[int]:
        return [span.end_time_unix_nano for span in collector.spans("falkirk.checkpoint")]

    def are_there() -> bool:
        outages = collector.spans("falkirk.outage")
        return bool(outages) and max(checkpoints(), default=0) > outages[0].end_time_unix_nano

    wait_until(are_there, 60, "the spans of the outage and of a checkpoint after it")
    *_, first, second = collector.spans("falkirk.start")  # in the soak, after a kill
    assert [attributes(span)["standby"] for span in (first, second)] == [False, True]
    assert collector.steps(first) == ["session", "plan", "topics", "recovery"]
    outage, *_ = collector.spans("falkirk.outage")
    assert attributes(outage)["replaced_application"] is True
    # The first processor may run again, for a report, before the start of the others is over.
    assert outage.start_time_unix_nano < second.end_time_unix_nano
    assert second.start_time_unix_nano < outage.end_time_unix_nano
    assert min(checkpoints()) < outage.end_time_unix_nano


def kill_broker(broker: Broker) -> Broker:
    """Kill the broker, and start it again at the same address."""
    process = process_of(broker)
    process.kill()
    process.wait(30)
    again = local_broker.start(Path(broker.folder), java_options=local_broker.SHORT_RUN)
    assert again.bootstrap == broker.bootstrap
    return again


def hang_while_everything_is_killed(broker: Broker, run: Counting, checkpoints: Mapping[str, int]) -> bool:
    """Requests of the killed writer wait in the hung broker's sockets, and are appended when the broker resumes.

    Nothing is killed, and the result is False, if these are no longer the newest checkpoints.
    """
    process = process_of(broker)
    suspend(process)
    try:
        until_s = time.monotonic() + 10
        if not run.application.kill_everything_behind(checkpoints, STANDBYS_MAX="0"):
            return False
        wait_until(lambda: time.monotonic() > until_s, 30, "the ten seconds of silence")
    finally:
        process.resume()
    return True


def process_of(broker: Broker) -> psutil.Process:
    """Return the process of a running broker."""
    process = broker.process()
    assert process is not None
    return process


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
