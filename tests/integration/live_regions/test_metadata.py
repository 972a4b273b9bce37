"""The parts of a record beside its value as columns: a live region, a micro-batch, the judge, the audit and the kit see
the same ones, also of records that someone hostile has written."""

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.checker import Guarantee
from falkirk.kafka_client.connection import Connection
from falkirk.plan.planner import plan_application
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.steps.sources.topics import KAFKA_DDL, parse_records, parsing
from falkirk.testing import KafkaRecord, run
from falkirk.user_tools.commands.judge import LiveJudge
from falkirk.user_tools.commands.judge_batches import batch_judge
from falkirk.user_tools.determinism_check import sample
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Headers = list[tuple[str, bytes | None]]
ALL = ("key", "timestamp", "partition", "offset", "headers")
COLUMNS = ["id", *ALL]
#: It has a record of each kind: its key, and its headers.
RECORDS: Sequence[tuple[bytes | None, Headers]] = [
    (b"a", [("trace", b"1")]),
    (None, []),
    (b"", [("", b"")]),
    (b"\xff\xfe\x00", [("none", None), ("trace", b"\xff"), ("trace", b"2")]),
]


def application(events: str, live: str, epochs: str, home: Path | None = None) -> fk.App:
    app = fk.App("metadata", home=home)
    app.source("events", fk.Kafka(events, schema="id INT NOT NULL", metadata=ALL))

    @app.stream(fk.Ephemeral())
    def told(events: fk.Stream) -> fk.Stream:
        return events.where("partition < 2")

    @app.stream(fk.Eager())
    def batched(events: "DataFrame") -> "DataFrame":
        return events

    app.sink("live", told, fk.Kafka(live))
    app.sink("epochs", batched, fk.Kafka(epochs))
    return app


def shown(parts: tuple[bytes | None, Headers], **others: Any) -> dict[str, Any]:
    """Return a row as JSON has it."""
    key, headers = parts
    told = [{"key": name, "value": _base64(value)} for name, value in headers]
    return {**others, "key": _base64(key), "headers": told or None}


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def at(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its timestamp in milliseconds."""
    return {**row, "timestamp": round(datetime.fromisoformat(row["timestamp"]).timestamp() * 1000)}


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def test_all_readers_see_the_same_records(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
    wire, connection = Wire(bootstrap=broker.bootstrap, tag=tag), Connection.of(broker.bootstrap)
    # The records are from 2023: with its default retention the broker would delete them at its next look.
    events, live, epochs = (wire.topic(name, retention_ms="-1") for name in ("events", "live", "epochs"))
    app, expected = application(events, live, epochs, home), list[dict[str, Any]]()

    def send(number: int, parts: tuple[bytes | None, Headers]) -> None:
        key, headers = parts
        place = {"partition": number % 2, "offset": number // 2, "timestamp": 1_700_000_000_000 + number}
        value = b"no json" if number == 4 else json.dumps({"id": number})
        wire.producer.produce(
            events, value=value, key=key, headers=headers, partition=number % 2, timestamp=place["timestamp"]
        )
        assert wire.producer.flush(60) == 0
        if number != 4:
            expected.append(shown(parts, id=number, **place))

    def all_out(query: Any, count: int) -> bool:
        assert query.isActive, query.exception()
        return wire.count(live) >= count and wire.count(epochs) >= count

    query = run_here(app, connection)
    try:
        for number, parts in enumerate([*RECORDS, (b"bad", []), RECORDS[0]]):
            send(number, parts)
        wait_until(partial(all_out, query, 5), 120, lambda: f"5 results each: {query.status}")
        letters = (f"{live}.dead-letters", "metadata-batched.dead-letters")
        wait_until(lambda: all(wire.count(each) >= 1 for each in letters), 60, "a dead letter of each")
    finally:
        query.stop()
    assert in_order([at(row) for row in wire.rows(live)]) == expected
    assert in_order([at(row) for row in wire.rows(epochs)]) == expected

    verdict = LiveJudge(app, connection, spark).judge_sink(app.sinks["live"])
    assert verdict.satisfies(Guarantee.EXACTLY_ONCE), verdict.results.anomalies
    with batch_judge(app, None, connection, spark) as judge:
        batch = judge.batch_of(app.sinks["epochs"])
        assert batch is not None
        assert judge.judge_sink(batch, app.sinks["epochs"]).guarantee is Guarantee.EXACTLY_ONCE
    rows = sample.of_topic(spark, connection, app.sources["events"].topic, 10).own
    audited = [
        json.loads(text) for (text,) in rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
    ]
    assert in_order([at(row) for row in audited]) == expected


def test_the_kit_has_them(spark: "SparkSession") -> None:
    when = datetime(2026, 1, 1, 12, 0, 0, 1000, UTC)
    with run(application("events", "live", "epochs")) as t:
        assert "metadata=" in t.by_spark["live"]
        fed = [KafkaRecord({"id": n}, key, headers, when) for n, (key, headers) in enumerate(RECORDS)]
        t.feed("events", [*fed, KafkaRecord(b"no json", "bad"), {"id": 9}])
        ms = round(when.timestamp() * 1000)
        expected = [shown(r, id=n, partition=0, offset=n, timestamp=ms) for n, r in enumerate(RECORDS)]
        begun = round(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
        expected.append(shown((None, []), id=9, partition=0, offset=5, timestamp=begun))
        assert [at(row) for row in t.read("live")] == [at(row) for row in t.read("epochs")] == expected
        assert [letter["value"] for letter in t.dead_letters()] == ["no json", "no json"]


def test_a_record_without_a_timestamp_has_none_and_a_bad_one_has_no_parts(spark: "SparkSession") -> None:
    moments = [datetime.fromtimestamp(ms / 1000, UTC) for ms in (-1, 0)]
    rows = [(b"k", b"5", "t", 3, offset, moment, 0, None) for offset, moment in enumerate(moments)]
    rows.append((b"k", b"no number", "t", 3, 2, moments[1], 0, [("h", b"v")]))
    topic = fk.Kafka("t", schema="n INT", format="text", metadata={part: f"its_{part}" for part in ALL})
    frame = parse_records(spark.createDataFrame(rows, KAFKA_DDL), parsing(topic, spark))
    assert frame.columns == ["value", *[f"its_{part}" for part in ALL]]
    assert [row["its_timestamp"] is None for row in frame.data.collect()] == [True, False, False]
    json_topic = fk.Kafka("t", schema="n INT", metadata=ALL)
    raw = spark.createDataFrame([(b"k", b"[", "t", 3, 2, moments[1], 0, [("h", b"v")])], KAFKA_DDL)
    (bad,) = parse_records(raw, parsing(json_topic, spark)).own.collect()
    assert set(bad) == {None}


@pytest.mark.parametrize(
    ("schema", "metadata", "column", "part"),
    [
        ("id INT, key STRING", ["timestamp", "key"], "key", "key"),
        ("Arrived INT", {"offset": "arrived"}, "Arrived", "offset"),
    ],
)
def test_a_column_of_the_schema_is_refused(
    spark: "SparkSession", schema: str, metadata: Any, column: str, part: str
) -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        parsing(fk.Kafka("events", schema=schema, metadata=metadata), spark)
    error = caught.value
    assert (error.condition, error.parameters["column"], error.parameters["part"]) == ("COLUMN_TWICE", column, part)
    assert f'metadata={{"{part}": "record_{part}"}}' in (error.hint or "")
    parsing(fk.Kafka("events", schema=schema, metadata={"key": "record_key"}), spark)


def test_two_parts_have_two_names_and_none_of_ours(spark: "SparkSession") -> None:
    for names, condition in (
        ({"key": "k", "offset": "K"}, "COLUMN_TWICE"),
        ({"key": "__falkirk_k"}, "COLUMN_RESERVED"),
    ):
        with pytest.raises(fk.DefinitionError) as caught:
            parsing(fk.Kafka("events", schema="id INT", metadata=names), spark)
        assert caught.value.condition == condition


def test_the_record_key_partitions_a_source_and_inference_finds_facts(spark: "SparkSession") -> None:
    app = fk.App("keyed")
    app.source("events", fk.Kafka("events", schema="n INT", metadata=["key", "timestamp"], key="key"))

    @app.stream()
    def counted(events: fk.Stream) -> fk.Stream:
        return events.groupBy("key").agg(F.count("*").alias("n"), fk.latest_value("timestamp"))

    app.sink("counts", counted, fk.Kafka("counts", key="key"))
    (region,) = plan_application(app, spark, "00000000").regions  # no hop
    assert region.deterministic
    assert region.undetermined is None
