"""Metrics of a real region: Prometheus sees its records, and their latency is that of the records' timestamps."""

import json
import urllib.request
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.runtime.supervision.metrics import Metrics
from falkirk.runtime.supervision.metrics_server import metrics_server
from falkirk.runtime.supervision.pulse import Pulse
from tests.integration.live import Wire, await_one, settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A result is visible within this time after its timestamp, also on a busy machine.
ACKNOWLEDGED_S = 2.0


@pytest.mark.quick
def test_prometheus_sees_the_records_of_a_region_and_their_latency(
    spark: "SparkSession", wire: Wire, home: Path
) -> None:
    events, out = wire.topic("events"), wire.topic("out")
    stream = fk.read(fk.Kafka(events, schema="word STRING NOT NULL", key="word")).groupBy("word")
    wire.send(events, [{"word": "early"}] * 3)
    query = stream.agg(F.count("*").alias("n")).write(
        fk.Kafka(out, key="word"), kafka=wire.bootstrap, home=str(home), interval="2 seconds"
    )
    pulse = Pulse(180.0)
    metrics = Metrics("shop", pulse)
    pulse.begin()
    with metrics_server(metrics, ("127.0.0.1", 0)) as server:

        def scraped() -> dict[str, float]:
            """Return the samples of the only processor by their names; buckets are left out."""
            pulse.note_report(40.0)
            regions = [asdict(region) for region in query.status]
            metrics.update({"pid": 1, "at_s": 1.0, "regions": regions, "figures": query._host.figures()})
            with urllib.request.urlopen(f"{server.url}/metrics") as answer:
                families = text_string_to_metric_families(answer.read().decode())
            return {s.name: s.value for f in families for s in f.samples if not s.name.endswith("_bucket")}

        try:
            await_one(query, lambda: scraped().get("falkirk_sink_records_total") == 3, "three results")
            wire.send(events, [{"word": word} for word in "aab"], partition=0)
            wire.send(events, [{"word": word} for word in "xyx"], partition=1)
            await_one(query, lambda: scraped()["falkirk_sink_records_total"] == 9, "all results")
            settle(query)
            await_one(query, lambda: scraped()["falkirk_source_records_total"] == 9, "a checkpoint of all input")
            await_one(query, lambda: scraped()["falkirk_source_lag_records"] == 0, "a look after all input was read")
            found = scraped()
            assert urllib.request.urlopen(f"{server.url}/ready").status == 200
        finally:
            query.stop()
    assert found["falkirk_sink_latency_seconds_count"] == 9
    assert (found["falkirk_source_lag_records"], found["falkirk_processor_incarnation"]) == (0, 1)
    assert found["falkirk_state_rows"] == 5  # the words
    assert found["falkirk_state_memory_bytes"] > 0
    # Of each result, the record that caused it is the one with its count of the word.
    arrived: dict[tuple[str, int], int] = {}
    for record in wire.records(events):
        word = json.loads(record.value or b"")["word"]
        arrived[word, sum(w == word for w, _ in arrived) + 1] = record.timestamp_ms or 0
    sent = {
        (row["word"], row["n"]): r.timestamp_ms or 0 for r in wire.records(out) for row in [json.loads(r.value or b"")]
    }
    assert sent.keys() == arrived.keys()
    at_least_s = sum(sent[key] - arrived[key] for key in sent) / 1000
    assert at_least_s <= found["falkirk_sink_latency_seconds_sum"] <= at_least_s + 9 * ACKNOWLEDGED_S
