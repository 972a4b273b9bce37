"""The audit: it finds a false declaration, with both results, and does not accuse a true one."""

import json
import random
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.cli import main
from falkirk.kafka_client.connection import Connection
from falkirk.spark_setup.broker import Broker
from falkirk.user_tools.determinism_check import AuditFinding, AuditOutcome, audit
from tests.integration.live import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "s STRING, n INT, d DOUBLE"


def application(events: str) -> fk.App:
    """Declare live processors and batches. Six of them are declared deterministic, and are not."""
    app = fk.App("audited")
    app.source("events", fk.Kafka(events, schema=SCHEMA))

    @app.stream(fk.Lazy())
    def passed(events: fk.Stream) -> fk.Stream:
        return events.where("n % 2 = 0").withColumn("m", F.col("n") * 2)

    @app.stream(fk.Lazy())
    def summed(events: fk.Stream) -> fk.Stream:
        return events.groupBy("s").agg(F.sum("d").alias("x"), fk.latest_value("n"))

    @app.stream(fk.Lazy())
    def drawn(events: fk.Stream) -> fk.Stream:
        return events.withColumn("lot", F.expr("uuid()"))

    @app.stream(fk.Lazy())
    @fk.deterministic
    def lied(events: fk.Stream) -> fk.Stream:
        return events.withColumn("lot", F.expr("uuid()"))

    @app.stream(fk.Lazy())
    @fk.deterministic
    def written(events: fk.Stream) -> fk.Stream:
        return events.withColumn("lot", F.lit(random.random()))

    @app.stream(engine="micro-batch")
    @fk.deterministic
    def in_batches(events: fk.Stream) -> fk.Stream:
        return events.withColumn("lot", F.lit(random.random()))

    @app.batch(rows=1_000, state="s STRING, n INT")
    @fk.deterministic
    def kept(events: Any, kept: Any) -> Any:
        return events.select("s"), kept.unionByName(events.groupBy("s").agg(F.first("n").alias("n")))

    @app.batch(rows=1_000)
    def counted(events: Any) -> Any:
        return events.groupBy("s").agg(F.count("*").alias("c"))

    @app.batch(rows=1_000)
    @fk.deterministic(because="I think so")
    def whichever(events: Any) -> Any:
        return events.groupBy("s").agg(F.first("n").alias("n"))

    @app.batch(rows=1_000)
    def identified(counted: Any) -> Any:
        def numbered(row: Any) -> dict[str, Any]:
            return {"s": row.s, "id": str(uuid.uuid4())}

        return fk.map_rows(counted, fk.deterministic(numbered), returns="s STRING, id STRING")

    for name in app.processors:
        app.sink(f"{name}-out", name, fk.Kafka(f"{name}-{events}"))
    return app


@pytest.fixture(scope="module")
def events(broker: Broker) -> str:
    wire = Wire(bootstrap=broker.bootstrap, tag=uuid.uuid4().hex[:8])
    topic = wire.topic("events", 2)
    for partition in (0, 1):
        rows = [{"s": f"k{i % 3}", "n": i, "d": [1e16, 1.0, -1e16, 0.1][i % 4]} for i in range(60)]
        wire.send(topic, rows, partition=partition)
    return topic


def test_what_is_said_to_be_the_same_and_is_not_is_found(spark: "SparkSession", broker: Broker, events: str) -> None:
    app, connection = application(events), Connection.of(broker.bootstrap)
    found = {finding.name: finding for finding in audit(app, connection, spark, rows=200)}
    outcomes = {name: finding.outcome for name, finding in found.items()}
    assert {name for name, outcome in outcomes.items() if outcome is AuditOutcome.DIFFERS} == {
        "lied-out", "written-out", "whichever", "identified", "kept", "in_batches",
    }  # fmt: skip
    assert {name for name, outcome in outcomes.items() if outcome is AuditOutcome.EXPECTED} == {"drawn-out"}
    assert {"passed-out", "summed-out", "counted"} <= {n for n, o in outcomes.items() if o is AuditOutcome.SAME}
    for name in ("lied-out", "written-out", "whichever", "identified", "kept", "in_batches"):
        finding = found[name]
        assert finding.by_assertion
        assert finding.first
        assert finding.again
        assert set(finding.first).isdisjoint(finding.again)
    assert all(row.startswith("kept: ") for row in found["kept"].first)
    assert found["passed-out"].rows == 120
    assert found["passed-out"].first == found["passed-out"].again == ()


def test_the_sample_is_of_the_newest(spark: "SparkSession", broker: Broker, events: str) -> None:
    app = fk.App("audited")
    app.source("events", fk.Kafka(events, schema=SCHEMA))
    app.add_processor("passed", lambda s: s, reads=("events",), policy=fk.Lazy())
    app.sink("out", "passed", fk.Kafka("out"))
    (finding,) = audit(app, Connection.of(broker.bootstrap), spark, rows=10)
    assert finding == AuditFinding(name="out", outcome=AuditOutcome.SAME, rows=10)


def test_requests_have_no_sample(spark: "SparkSession", broker: Broker, events: str) -> None:
    """Their topic has the identity of a home in its name. Before, the command ended with an error about a topic."""
    app = fk.App("asked")
    app.source("events", fk.Kafka(events, schema=SCHEMA))
    app.source("queries", fk.Http("/queries", schema="id STRING NOT NULL, s STRING"))

    @app.stream(fk.Lazy())
    def passed(events: fk.Stream) -> fk.Stream:
        return events.where("n % 2 = 0")

    @app.stream(fk.Lazy())
    def live(queries: fk.Stream) -> fk.Stream:
        return queries.groupBy("s").count()

    @app.batch(rows=10)
    def both(queries: Any, events: Any) -> Any:
        return queries.join(events, "s")

    app.sink("passed", passed, fk.Kafka(f"passed-{events}"))
    app.sink("live", live, fk.Kafka(f"live-{events}", key="s"))
    app.sink("both", both, fk.Kafka(f"both-{events}"))
    found = {each.name: each for each in audit(app, Connection.of(broker.bootstrap), spark, rows=100)}
    assert found.pop("passed").outcome is AuditOutcome.SAME
    assert len(found) >= 2
    assert {(each.outcome, "requests" in each.reason) for each in found.values()} == {(AuditOutcome.SKIPPED, True)}


def test_the_command(spark: "SparkSession", broker: Broker, events: str, tmp_path: Path) -> None:  # not a small one
    file = tmp_path / "app.py"
    file.write_text(
        "import falkirk as fk\n"
        "app = fk.App('audited')\n"
        f"app.source('events', fk.Kafka({events!r}, schema={SCHEMA!r}))\n"
        "@app.stream(fk.Lazy())\n"
        "@fk.deterministic\n"
        "def lied(events):\n"
        "    return events.selectExpr('uuid() AS lot')\n"
        "app.sink('out', lied, fk.Kafka('out'))\n"
    )
    result = CliRunner().invoke(
        main, ["verify", "determinism", str(file), "--kafka", broker.bootstrap, "--rows", "20", "--json"]
    )
    assert result.exit_code == 1, result.output
    (finding,) = json.loads(result.stdout)
    assert (finding["name"], finding["outcome"], finding["rows"]) == ("out", "differs", 20)
    shown = CliRunner().invoke(main, ["verify", "determinism", str(file), "--kafka", broker.bootstrap, "--rows", "20"])
    assert "DIFFERS, although you declared it deterministic" in shown.output
