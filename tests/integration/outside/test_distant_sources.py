"""Sources on another cluster: each result once, while that cluster is away, and after it is back.

A topic of the same name is on both clusters. Falkirk only reads on the other one."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from falkirk.cli import main
from falkirk.declare.load import broker_of, load_application
from falkirk.errors import LogError
from falkirk.runtime.supervision.query import Query, start_application
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.broker import Broker
from falkirk.user_tools.commands.judge_outputs import OutputsJudge
from tests.integration.live import TIMEOUT_S, Wire, await_checkpoints, await_one, fail_behind_a_checkpoint
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The application. `both` reads topics of one name on two clusters, so it runs in micro-batches.
FILE = """
import falkirk as fk

app = fk.App("distant", kafka={own!r}, home={home!r}, history=100)
schema, east = "id INT NOT NULL", fk.Connection({east!r}, name="east")
app.source("ours", fk.Kafka("orders-{tag}", schema=schema))
app.source("theirs", fk.Kafka("orders-{tag}", schema=schema, kafka=east))


@app.stream(fk.Lazy("2 seconds"))
def live(theirs):
    return theirs.select("id")


@app.stream(fk.Lazy("2 seconds"))
def own(ours):
    return ours.select("id")


@app.stream()
def both(ours, theirs):
    return ours.union(theirs)


@app.batch(every="1 second")
def batch(theirs):
    return theirs


for each in (live, own, both, batch):
    app.sink(each.__name__ + "-out", each, fk.Kafka(each.__name__ + "-{tag}"))
"""


class Shop:
    """The application with two clusters. Args: here: the application's own cluster. there: the other one."""

    def __init__(self, file: Path, here: Wire, there: Wire) -> None:
        self.file, self.here, self.there = file, here, there
        self.orders = f"orders-{here.tag}"
        self.outputs = {name: f"{name}-{here.tag}" for name in ("live", "own", "both", "batch")}
        self.sent: dict[Wire, list[int]] = {here: [], there: []}

    def start(self) -> Query:
        return start_application(load_application(self.file), kafka=None, create_topics=True)

    def send(self, at: Wire, number: int) -> None:
        """Send further orders, whose ids show the cluster."""
        first = (1000 if at is self.there else 0) + len(self.sent[at])
        ids = list(range(first, first + number))
        for partition in (0, 1):
            at.send(self.orders, [{"id": i} for i in ids[partition::2]], partition)
        self.sent[at] += ids

    def send_there(self, number: int) -> Callable[[], bool]:
        """Send further orders to the other cluster. Returns: a condition: the live results are published."""
        self.send(self.there, number)
        return lambda: len(self.ids("live")) >= len(self.due("live"))

    def ids(self, name: str) -> list[int]:
        """Return the ids that a processor has published, sorted."""
        return sorted(row["id"] for row in self.here.rows(self.outputs[name]))

    def due(self, name: str) -> list[int]:
        clusters = {"own": [self.here], "both": [self.here, self.there]}.get(name, [self.there])
        return sorted(i for cluster in clusters for i in self.sent[cluster])

    def await_all(self, query: Query, *names: str) -> None:
        """Wait until each result is published, once."""
        for name in names or self.outputs:
            await_one(query, lambda: len(self.ids(name)) >= len(self.due(name)), f"all of {name}")  # noqa: B023
            assert self.ids(name) == self.due(name)

    def command(self, *arguments: str) -> Any:
        """Run a command about the application; return what it prints as JSON."""
        result = CliRunner().invoke(main, [arguments[0], str(self.file), *arguments[1:]], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def shop(wire: Wire, own_broker: Broker, home: Path, tmp_path: Path, tag: str) -> Shop:
    there, file = Wire(bootstrap=own_broker.bootstrap, tag=tag), tmp_path / "distant.py"
    for each in (wire, there):
        each.topic("orders")
    file.write_text(FILE.format(own=wire.bootstrap, east=own_broker.bootstrap, home=str(home), tag=tag))
    return Shop(file, wire, there)


def waiting(query: Query, cluster: str) -> set[str]:
    """Return the processors that wait for a cluster, whose name or address their status shows."""
    shown = {unit.name.removesuffix("-out"): unit.detail for unit in query.status}
    return {name for name, text in shown.items() if "did not answer" in text and cluster in text}


def test_results_of_two_clusters(shop: Shop, own_broker: Broker, spark: "SparkSession") -> None:
    query = shop.start()
    try:
        shop.send(shop.here, 20)
        shop.send(shop.there, 30)
        shop.there.send(shop.orders, [b"no order"])
        shop.await_all(query)
        await_checkpoints(query)
        fail_behind_a_checkpoint(query, "live-out", partial(shop.send_there, 4))

        local_broker.stop(Path(own_broker.folder))
        shop.send(shop.here, 10)
        shop.await_all(query, "own")
        readers = {"live", "both", "batch"}
        await_one(query, lambda: waiting(query, own_broker.bootstrap) == readers, "its readers to wait")
        shop.send(shop.here, 10)
        shop.await_all(query, "own")
        assert waiting(query, own_broker.bootstrap) == readers
        local_broker.start(Path(own_broker.folder), java_options=local_broker.SHORT_RUN)
        shop.send(shop.there, 10)
        shop.await_all(query)
    finally:
        query.stop()

    shop.send(shop.there, 10)
    query = shop.start()
    try:
        shop.send(shop.here, 10)
        shop.await_all(query)
        peeked = shop.command("peek", f"{shop.orders}@east", "-n", "1", "--json")
        assert all(json.loads(each["value"])["id"] >= 1000 for each in peeked), peeked
        (result,) = shop.command("peek", shop.outputs["live"], "-n", "1", "--json")
        why = shop.command("why", f"{shop.outputs['live']}/{result['partition']}@{result['offset']}", "--json")
        assert f'"{shop.orders}@east"' in json.dumps(why)
    finally:
        query.stop()
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    assert not admin.list_consumer_groups().result().valid
    assert {*shop.there.topics.names()} <= {shop.orders, "__consumer_offsets"}
    if "FALKIRK_STRIKES" not in os.environ:  # it takes 10 s of CPU time
        return
    app = load_application(shop.file)
    with OutputsJudge(app, broker_of(app, None), home=None, memory_bytes=1 << 24, partial=False) as judge:
        for what in judge.outputs(("live-out", "both-out", "batch-out")):
            found = judge.judge(what)
            assert found.is_kept, found.as_dict


def test_another_topic_of_this_name_is_refused(shop: Shop, spark: "SparkSession") -> None:
    query = shop.start()
    query.stop()
    shop.there.widen(shop.orders, 3)
    with pytest.raises(LogError) as changed:
        shop.start()
    assert (changed.value.condition, changed.value.parameters["topic"]) == ("PARTITIONS_CHANGED", f"{shop.orders}@east")
    shop.there.admin.delete_topics([shop.orders])[shop.orders].result()
    wait_until(lambda: not shop.there.topics.exists(shop.orders), TIMEOUT_S, "it to be deleted")
    shop.there.topic("orders")
    with pytest.raises(LogError) as replaced:
        shop.start()
    assert replaced.value.condition == "TOPIC_REPLACED"
    assert replaced.value.where == shop.there.bootstrap
