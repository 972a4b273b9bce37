"""A live region that looks rows up on the executors of a cluster on this machine; one of them is killed."""

from pathlib import Path

import pytest

from falkirk.runtime.spark.live.checkpoint import last_committed_batch
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import APPS, Application, topics_of
from tests.chaos.regions import Regions
from tests.chaos.test_lookups import Market, judge

MASTER = "local-cluster[2,8,1024]"
PATIENCE_S = 300.0


@pytest.mark.soak
def test_an_executor_with_views_is_killed(
    broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record has one result, from one epoch of each view, and epochs never get older."""
    topics = {name: f"{name}-{tag}" for name in ("orders", "offers", "priced")}
    for name, topic in topics.items():
        topics_of(broker.bootstrap).create(topic, 2, {})
        monkeypatch.setenv(name.upper(), topic)
    with Application(APPS / "lookups.py", broker.bootstrap, home, {}, "--master", MASTER) as application:
        regions = Regions(bootstrap=broker.bootstrap, application=application, topics=topics, names=["priced"])

        def wait_results(count: int) -> None:
            application.wait(lambda: len(regions.results("priced")) >= count, PATIENCE_S, f"{count} results")

        with Market(broker.bootstrap, topics["orders"], rate=40.0) as load:
            wait_results(100)
            live = home / "regions" / "priced"
            application.wait(lambda: last_committed_batch(live) >= 0, PATIENCE_S, "a checkpoint of a live region")
            killed, host = application.busy_executors(broker)[0], application.host().pid
            killed.kill()
            application.wait(
                lambda: application.status().get("pid", host) != host, PATIENCE_S, "another Spark application"
            )
            wait_results(len(regions.results("priced")) + 200)
        wait_results(load.sent)
        application.wait_next_commit()
        found = regions.results("priced")
    judge(found, load.sent)
    assert len({row["epoch"] for row in found}) > 2, "the region has seen new epochs"
