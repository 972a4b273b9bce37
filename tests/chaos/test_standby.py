"""kill -9 of the host and its JVM under load: the standby takes over, and each result is published exactly once."""

import json
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient

from falkirk.home.folder import STANDBY, ProcessRecord
from falkirk.host.settings import STATE
from falkirk.kafka.topics import Topics
from falkirk.local.broker import Broker
from tests.chaos.counting import Counting, assert_exactly_once, await_results_behind, counting
from tests.chaos.harness import LIGHT, Load
from tests.collector import Collector, attributes, collecting


def standby_of(run: Counting) -> psutil.Process:
    """Wait for a standby that has planned and warms up, and return it."""
    file = run.application.home / STANDBY

    def is_ready() -> bool:
        return file.exists() and Path(json.loads(file.read_text())["folder"], STATE).exists()

    run.application.wait(is_ready, 180, "a standby")
    found = ProcessRecord(**json.loads(file.read_text())["process"]).find()
    assert found is not None
    return found


def test_the_standby_takes_over_under_load(broker: Broker, home: Path, tag: str) -> None:
    with (
        collecting() as collector,
        counting(
            broker,
            home,
            tag,
            "--standby",
            INTERVAL="2 seconds",
            STANDBYS_MAX="1",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
        ) as run,
    ):
        with Load(broker.bootstrap, run.events, rate=LIGHT) as load:
            run.application.wait_committed(0)
            standby = standby_of(run)
            host, jvm = run.application.host(), run.application.jvm()
            assert standby.pid != host.pid
            assert jvm not in standby.children(recursive=True)
            scratch = Path(json.loads((home / STANDBY).read_text())["folder"])
            run.application.wait(lambda: (scratch / "counts" / "commits" / "1").exists(), 120, "batches that warm up")
            await_results_behind(run)
            admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
            claims = Topics(broker.bootstrap).end_positions(f"{run.prefix()}owner.claims")
            assert sum(claims.values()) == 1, "the standby has claimed nothing"
            assert not [t for t in admin.list_topics(timeout=10).topics if "standby" in t]
            for process in (host, jvm):
                process.kill()
            psutil.wait_procs((host, jvm), 30)
            run.application.forget_status()
            run.application.wait(lambda: run.application.last_commits(), 60, "the next host")
            assert run.application.host() == standby
            assert run.application.suppressed().total() > 0, "results were published that no checkpoint had covered"
        assert_exactly_once(run, load.sent)
        run.application.stop()
        assert_spans(collector)


def assert_spans(collector: Collector) -> None:
    """Assert that the coordinator has sent the starts of both hosts, and what the first one did."""
    first, second = collector.spans("falkirk.start")
    assert [attributes(span)["standby"] for span in (first, second)] == [False, True]
    assert collector.steps(first) == ["session", "plan", "topics", "recovery"]
    (outage,) = collector.spans("falkirk.outage")
    assert attributes(outage).items() >= {"processor": "counts", "replaced_application": True}.items()
    assert outage.start_time_unix_nano < second.end_time_unix_nano < outage.end_time_unix_nano + 1_000_000_000
    checkpoints = [span.end_time_unix_nano for span in collector.spans("falkirk.checkpoint")]
    assert min(checkpoints) < outage.end_time_unix_nano < max(checkpoints)
