"""The rights in docs/how-to/security.md are enough for a source on another cluster, with TLS and SASL there."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.spark_setup.broker import Broker
from tests.cluster.rights import DESCRIBE, GROUP, READ, SETTINGS, TOPIC, login, rights
from tests.cluster.secured import Secured
from tests.integration.live import Wire, await_checkpoints, await_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, which makes the certificates")


def test_a_source_of_a_cluster_where_the_application_may_only_read(
    guarded: Secured, broker: Broker, spark: "SparkSession", home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = Wire(bootstrap=broker.bootstrap, tag=tag), Wire(bootstrap=guarded.open.bootstrap, tag=tag)
    orders, user = there.topic("orders"), f"reader-{tag}"
    groups = (
        right
        for prefix in ("falkirk", "spark-kafka-")
        for right in rights(GROUP, prefix, READ, DESCRIBE, is_prefix=True)
    )
    given = [*rights(TOPIC, orders, READ, DESCRIBE, SETTINGS), *groups]
    app = fk.App(f"distant-{tag}", kafka=broker.bootstrap, home=home)
    app.source("orders", fk.Kafka(orders, schema="id INT NOT NULL", kafka=login(guarded, user, given, monkeypatch)))

    @app.stream(fk.Lazy("2 seconds"))
    def live(orders: fk.Stream) -> fk.Stream:
        return orders.select("id")

    @app.batch(every="1 second")
    def batch(orders: Any) -> Any:
        return orders

    outputs = {each.__name__: f"{each.__name__}-{tag}" for each in (live, batch)}
    for name, topic in outputs.items():
        app.sink(f"{name}-out", name, fk.Kafka(topic))
    for number in (4, 8):
        there.send(orders, [{"id": i} for i in range(number - 4, number)])
        query = app.start(create_topics=True)
        try:
            for topic in outputs.values():
                await_one(query, lambda: here.count(topic) >= number, f"the results in {topic}")  # noqa: B023
                assert sorted(row["id"] for row in here.rows(topic)) == list(range(number))
            await_checkpoints(query)
        finally:
            query.stop()
