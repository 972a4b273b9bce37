"""A user's own sink on real Spark and Kafka: the documented one, an interrupted one, and one that fails at first."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.plan.explain.screen import Shown
from falkirk.plan.guarantees import promises_of
from falkirk.plan.planner import plan_application
from falkirk.runtime.spark.sinks.own import OwnTarget
from falkirk.spark_setup.broker import Broker
from tests.integration.cutting import Place, run_until_cut_off
from tests.integration.live import Wire
from tests.integration.targets import documented

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JsonLines: Any = documented().JsonLines
ROWS = 10
#: The last call before the crash: the sink has an epoch, and nobody has recorded that.
RELEASED: Place = (OwnTarget, "deliver", True)


class Refusing(JsonLines):  # type: ignore[misc]
    """The documented sink, which fails at its first epoch in each process, when half of the rows are written."""

    failures = 0

    def deliver(self, epoch: int, rows: "DataFrame") -> None:
        if not self.failures:
            self.failures += 1
            super().deliver(epoch, rows.limit(ROWS // 2))
            (self.folder / f"{epoch}.jsonl").rename(self.folder / f"{epoch}.part")
            raise ConnectionError("503 Service Unavailable")
        super().deliver(epoch, rows)


def application(tag: str, home: Path, sink: Any) -> fk.App:
    """Return an application that forwards the numbers of events, and adds a random one to each."""
    app = fk.App("numbers", home=home)
    app.source("events", fk.Kafka(f"events-{tag}", schema="n INT NOT NULL"))

    @app.batch(rows=ROWS)
    def drawn(events: "DataFrame") -> "DataFrame":
        return events.selectExpr("n", "uuid() AS id")

    app.sink("out", drawn, sink)
    app.sink("topic", drawn, fk.Kafka(f"out-{tag}"))
    return app


def test_each_epoch_is_there_once_whatever_is_cut_off(
    spark: "SparkSession", broker: Broker, home: Path, tmp_path: Path, tag: str
) -> None:
    wire, sent = Wire(bootstrap=broker.bootstrap, tag=tag), list[int]()
    events, out = (wire.topic(name) for name in ("events", "out"))

    def rows() -> list[dict[str, Any]]:
        return [json.loads(line) for file in (tmp_path / "rows").glob("*.jsonl") for line in file.open()]

    def work() -> None:
        new = range(len(sent), len(sent) + 2 * ROWS)
        sent.extend(new)
        wire.send(events, [{"n": n} for n in new])

    def is_done(query: Any) -> bool:
        assert query.isActive, query.exception()
        return len(rows()) == len(sent) and wire.count(out) >= len(sent)

    for place in (RELEASED, None):
        app = application(tag, home, Refusing(tmp_path / "rows"))
        run_until_cut_off(app, broker, place, work, is_done)
    assert sorted(row["n"] for row in rows()) == sent
    assert {row["id"] for row in rows()} == {row["id"] for row in wire.rows(out)}, "two sinks contradict each other"


def test_the_plan_says_who_promises_what(spark: "SparkSession") -> None:
    shown = Shown(plan=plan_application(documented().app, spark, "deadbeef"), slots=(), available=1)
    (promise,) = promises_of(shown.plan)
    assert (promise.to, promise.promise) == ("JSON lines in prices", "exactly once, if your sink keeps its contract")
    assert [(r.processor, r.where is not None) for r in promise.reasons if r.kind == "sink"] == [("prices", True)]
    assert promise.as_json()["declared"] is True
    (batch,) = shown.plan.batches
    assert batch.fingerprint["writes"] == "prices: JSON lines in prices"
    assert "JSON lines in prices" in shown.mermaid()


def test_a_live_processor_does_not_write_it(spark: "SparkSession", tmp_path: Path) -> None:
    app = fk.App("live")
    app.source("events", fk.Kafka("events", schema="n INT"))
    app.sink("out", "events", JsonLines(tmp_path))
    with pytest.raises(DefinitionError) as refused:
        plan_application(app, spark, "deadbeef")
    assert refused.value.condition == "SINK_NEEDS_BATCH"
    assert not list(tmp_path.iterdir())
