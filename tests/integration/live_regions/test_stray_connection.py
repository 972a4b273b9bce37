"""A stray connection to Spark's streaming shuffle fails a live region, and the application goes on.

Spark's servers for it listen on all interfaces and know no secret (SECURITY.md). This is also the reproduction for
Spark's maintainers.
"""

import contextlib
import socket
from collections import Counter
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.host import failures
from falkirk.local.broker import Broker
from tests.integration.live import Wire, await_one, failed, settle
from tests.support import wait_until

ALL_INTERFACES = ("::", "0.0.0.0")


def open_ports(spark: SparkSession) -> list[int]:
    """Return the ports of Spark's JVM that other machines reach."""
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)
    listening = (c.laddr for c in jvm.net_connections() if c.status == psutil.CONN_LISTEN)
    return [address.port for address in listening if address.ip in ALL_INTERFACES]


def ask_everywhere(spark: SparkSession) -> None:
    """Send one HTTP request to each of these ports. They change with each checkpoint."""
    for port in open_ports(spark):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 20) as stray:
            stray.sendall(b"GET / HTTP/1.1\r\nHost: stray\r\n\r\n")


def test_an_http_request_costs_a_retry_of_the_region(
    spark: SparkSession, broker: Broker, tag: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here one failure that counts already ends the application: with the mechanism off, at the end, a request does."""
    monkeypatch.setattr(failures, "FAILURES_MAX", 1)
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, out = wire.topic("events"), wire.topic("out")
    stream = fk.read(fk.Kafka(events, schema="word STRING", key="word"))
    counts = stream.groupBy("word").agg(F.count("*").alias("version"))
    query = counts.write(fk.Kafka(out, key="word"), kafka=wire.bootstrap, home=str(home), interval="2 seconds")
    wire.send(events, [{"word": "a"}])
    wire.await_count(out, 1, query)

    def restarted() -> bool:
        ask_everywhere(spark)
        return query.status[0].restarts > 0

    await_one(query, restarted, "the region to fail: does Spark no longer listen everywhere?")
    wire.send(events, [{"word": "a"}])
    wire.await_count(out, 2, query)
    settle(query)
    assert Counter(row["version"] for row in wire.rows(out)) == {1: 1, 2: 1}

    monkeypatch.setattr(failures, "is_stray", lambda error: False)

    def ended() -> bool:
        ask_everywhere(spark)
        return not query.isActive

    wait_until(ended, 60, lambda: f"the application to end: {query.status}")
    assert failed(query).condition == "REGION_KEEPS_FAILING"
