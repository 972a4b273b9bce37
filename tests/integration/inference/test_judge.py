"""`falkirk verify outputs` on an application: it passes a run that is right, and refuses one that was tampered with."""

import io
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.checker import Guarantee, Kind, Space
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.plan.region import RegionLogs
from falkirk.plan.shape import read_shape
from falkirk.platform.terminal import Terminal
from falkirk.recovery.ownership.folder import Home
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.live.checkpoint import committed_batches
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.theory.ids import LogId, Offset
from falkirk.theory.offsets import PartitionRange
from falkirk.user_tools.commands.invalid_results import InvalidResults
from falkirk.user_tools.commands.judge import LiveJudge
from falkirk.user_tools.commands.kept_state import live_state
from falkirk.user_tools.commands.made_of import MadeOf
from falkirk.user_tools.commands.origins import Origins
from falkirk.user_tools.commands.records import RecordPlace, TopicRecords
from falkirk.user_tools.commands.running import home_to_read
from falkirk.user_tools.commands.spark_state import read_aggregates
from falkirk.user_tools.commands.why import origin_tree
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_hop_with_two_source_partitions(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
    connection = Connection.of(broker.bootstrap)
    topics = Topics(connection)
    lines, counts = f"lines-{tag}", f"counts-{tag}"
    for topic in (lines, counts):
        topics.create(topic, 2, {})
    app = fk.App("judged", home=home)
    app.source("lines", fk.Kafka(lines, schema="line STRING, n INT"))

    @app.stream(fk.Ephemeral())
    def words(lines: fk.Stream) -> fk.Stream:
        return lines.select("n", F.split("line", " ").alias("words")).explode("words", "word")

    @app.stream(fk.Lazy("3 seconds"))
    def counted(words: fk.Stream) -> fk.Stream:
        totals = F.count("*").alias("version"), F.sum(F.col("n") + 0).alias("total")
        return words.groupBy("word").agg(*totals, fk.latest_value("n"))

    app.sink("counts", counted, fk.Kafka(counts, key="word"))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(100):
        producer.produce(lines, value=json.dumps({"line": f"a b{n % 3} a", "n": n}), partition=n % 2)
    producer.produce(lines, value=b"not json", partition=0)
    producer.flush()
    query = run_here(app, connection)
    wait_until(lambda: sum(topics.end_positions(counts).values()) >= 300, 120, "all change records")
    before = {*committed_batches(home / "regions" / "counts")}  # they may cover nothing
    wait_until(lambda: {*committed_batches(home / "regions" / "counts")} - before, 60, "a checkpoint of the counts")
    query.stop()

    divided = Space(memory_bytes=1 << 14, parts=3)
    for space in (None, divided):
        judge = LiveJudge(app, connection, spark, space)
        verdict = judge.judge_sink(app.sinks["counts"]).results
        assert verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict.anomalies
        assert verdict.consistency.holds
        assert verdict.counts.observed_outputs == 300

    _see_where_a_result_comes_from(app, connection, counts, lines, spark)
    again = json.dumps({"word": "a", "version": 7, "total": 1, "n": 1})
    producer.produce(counts, key="a", value=again, partition=0)
    producer.flush()
    verdict = judge.judge_sink(app.sinks["counts"]).results
    assert verdict.guarantee is Guarantee.BROKEN
    assert verdict.consistency.holds is False
    assert {anomaly.kind for anomaly in verdict.anomalies} & {Kind.UNEXPLAINED, Kind.BROKEN_SEQUENCE}
    _see_what_made_a_result(app, connection, counts, lines, spark)


def _see_the_state(region: RegionLogs, home: Home, records: TopicRecords, spark: "SparkSession") -> None:
    """Compare the answer of `falkirk state` with the input that the last checkpoint covers."""
    read = partial(read_aggregates, spark)
    (state,) = live_state(region, home, read, (), limit=100)
    assert state.columns == ("word", "count", "sum", "latest0", "last input")
    ends = {p: Offset(end) for p, end in state.covers[region.source].items()}
    rows = [r.content for r in records.forward(region.source, {}, ends)]
    assert rows
    by_word = {word: [row["n"] for row in rows if row["word"] == word] for word in {row["word"] for row in rows}}
    assert {row["word"]: (row["count"], row["sum"]) for row in state.rows} == {
        word: (len(each), sum(each)) for word, each in by_word.items()
    }
    (only,) = live_state(region, home, read, ("a",), limit=100)[0].rows
    assert (only["word"], only["latest0"]) == ("a", by_word["a"][-1])
    last = only["last input"]
    at = RecordPlace(topic=region.source, partition=last["partition"], offset=last["offset"])
    assert records.one(at).content["word"] == "a"


def _see_where_a_result_comes_from(
    app: fk.App, connection: Connection, counts: str, lines: str, spark: "SparkSession"
) -> None:
    """Compare the answers of `falkirk why` with the results: they are sums over exactly the records that it names."""
    with home_to_read(app, None) as (home, runs):
        assert not runs
        shape, place = read_shape(home.path), Storage(home=home, connection=connection)
        assert shape is not None
        records = TopicRecords(place)
        origins = Origins(app, shape, place, records, limit=1_000, look=10_000)
        ends = Topics(connection).end_positions(counts)
        results = [r.at for p, end in ends.items() for r in records.back(LogId(counts), p, end, Offset(0), 30)]
        newest = records.last(LogId(counts), 7)
        assert [r.record.timestamp_ms for r in newest] == sorted(r.record.timestamp_ms for r in newest)
        assert {r.at for r in newest} <= set(results)
        for at in results[::20]:
            found = origins.explain(at)
            result, origin = json.loads(found["record"]["value"]), found["origin"]
            assert (origin["unit"], origin["processors"][-1]["name"]) == ("counts", "counted")
            assert origin["incarnation"]["number"] == 1
            assert origin["same_key"]["columns"] == ["word"]
            assert origin["same_key"]["has_all"]
            made_of = [*origin["inputs"], *origin["same_key"]["records"]]
            rows = [json.loads(each["record"]["value"]) for each in made_of]
            assert {row["word"] for row in rows} == {result["word"]}
            assert (len(rows), sum(row["n"] for row in rows)) == (result["version"], result["total"])
            for each, row in zip(made_of, rows, strict=True):
                (written,) = each["origin"]["inputs"]
                assert (written["record"]["topic"], written["origin"]) == (lines, None)
                assert json.loads(written["record"]["value"])["n"] == row["n"]
        _see_the_state(shape.regions[-1], home, records, spark)
        file, line = Path(__file__).name, "def counted(words)"
        out = io.StringIO()
        Terminal(file=out, width=160).print(origin_tree(origins.explain(results[0]), 160), soft_wrap=True)
        for text in (file, line, "live region counts, incarnation 1", f"{lines}/"):
            assert text in out.getvalue()


def _see_what_made_a_result(
    app: fk.App, connection: Connection, counts: str, lines: str, spark: "SparkSession"
) -> None:
    """The records are those of users, also if those of the hop between the regions were deleted."""
    topics = Topics(connection)
    with home_to_read(app, None) as (home, _):
        shape, place = read_shape(home.path), Storage(home=home, connection=connection)
        assert shape is not None

        def made(at: list[RecordPlace], look: int = 10_000) -> Iterator[tuple[dict[str, Any], str]]:
            records = TopicRecords(place)
            computed = MadeOf(app, place, records, look=look, session=lambda: spark)
            origins = Origins(app, shape, place, records, limit=1_000, look=look, made_of=computed)
            for each in at:
                found = origins.explain(each)
                assert (found["origin"]["not_recomputed"], found["origin"]["same_key"]) == ("", None)
                out = io.StringIO()
                Terminal(file=out, width=160).print(origin_tree(found, 160), soft_wrap=True)
                yield {"result": json.loads(found["record"]["value"]), **found["origin"]["made_of"]}, out.getvalue()

        def see(found: dict[str, Any], text: str) -> None:
            result, word = found["result"], found["values"][0]
            rows = [json.loads(each["record"]["value"]) for each in found["records"]]
            assert {each["record"]["topic"] for each in found["records"]} == {lines}
            counted = [row["line"].split().count(word) for row in rows]
            assert (found["columns"], word, found["agrees"]) == (["word"], result["word"], True), found
            assert sum(counted) - result["version"] in (0, 1, 2), "half a line of each partition may come later"
            assert (found["rows"], found["deleted"], found["not_looked_at"]) == (result["version"], 0, 0)
            assert "computed again from these records, the result is the same" in text

        ends = topics.end_positions(counts)
        results = [
            r.at
            for p, end in ends.items()
            for r in TopicRecords(place).back(LogId(counts), p, Offset(end - 1), Offset(0), 99)
        ]
        for found in made(results[:: len(results) // 3]):
            see(*found)
        newest = [TopicRecords(place).last(LogId(counts), 2)[0].at]  # the last one is foreign
        ((few, text),) = made(newest, look=20)
        assert (few["agrees"], "older ones were not read: see --look" in text) == (False, True)
        ends = topics.end_positions(hop := shape.regions[-1].source)
        topics.delete_below(hop, {p: max(0, end - 3) for p, end in ends.items()})
        see(*next(made(newest)))
        topics.delete_below(lines, {0: 5})
        ((some, text),) = made(newest)
        assert (some["deleted"], some["agrees"]) == (5, False)
        assert "the records that are left don't give this result: 5 records of its inputs were deleted" in text


@pytest.mark.parametrize(
    "body",
    [
        lambda s: s.withColumn("r", F.rand()),
        lambda s: s.where(F.rand() < 0.5).groupBy("line").count(),
        lambda s: s.groupBy("line").agg(F.collect_set("line").alias("at")),
    ],
    ids=["stateless", "before", "keyed"],
)
def test_what_comes_out_differently_each_time_is_not_judged(
    spark: "SparkSession", broker: Broker, tag: str, body: Any
) -> None:
    connection = Connection.of(broker.bootstrap)
    topics = Topics(connection)
    for topic in (f"lines-{tag}", f"out-{tag}"):
        topics.create(topic, 1, {})
    app = fk.App("unjudged")
    app.source("lines", fk.Kafka(f"lines-{tag}", schema="line STRING", key="line"))
    app.add_processor("drawn", body, reads=("lines",), policy=fk.Lazy())
    app.sink("out", "drawn", fk.Kafka(f"out-{tag}", key="line"))
    with pytest.raises(fk.DefinitionError) as caught:
        LiveJudge(app, connection, spark).judge_sink(app.sinks["out"])
    assert caught.value.condition == "NOT_CHECKABLE"
    assert "may differ each time" in caught.value.message
    assert f"test_judge.py:{body.__code__.co_firstlineno}" in caught.value.message


def test_a_batch_is_not_judged(spark: "SparkSession") -> None:
    app = fk.App("judged")
    app.source("events", fk.Kafka("events", schema="n INT"))

    @app.batch(rows=5)
    def whole(events: Any) -> Any:
        return events

    app.sink("out", whole, fk.Kafka("out"))
    with pytest.raises(fk.DefinitionError) as caught:
        LiveJudge(app, Connection.of("nowhere:1"), spark).judge_sink(app.sinks["out"])
    assert (caught.value.condition, caught.value.parameters["sink"]) == ("NOT_CHECKABLE", "out")


def test_values_have_the_meaning_that_spark_gives_them(spark: "SparkSession", broker: Broker, tag: str) -> None:
    connection = Connection.of(broker.bootstrap)
    source, sink = f"in-{tag}", f"out-{tag}"
    for topic in (source, sink):
        Topics(connection).create(topic, 1, {})
    app = fk.App("meanings")
    app.source("rows", fk.Kafka(source, schema="k STRING, x DOUBLE, d DECIMAL(38, 20)"))
    summed = (F.min("x").alias("low"), F.max("x").alias("high"), F.sum("d").alias("d"), F.count("*").alias("n"))
    app.add_processor("summed", lambda s: s.groupBy("k").agg(*summed), reads=("rows",), policy=fk.Lazy())
    app.sink("out", "summed", fk.Kafka(sink, key="k"))
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def send(topic: str, *values: str) -> None:
        for value in values:
            producer.produce(topic, value=value, partition=0)
        assert producer.flush(20) == 0

    judge = LiveJudge(app, connection, spark)

    def judged() -> Guarantee:
        return judge.judge_sink(app.sinks["out"]).results.guarantee

    send(source, '{"k": "a", "x": 1.5, "d": 0.1}', '{"k": "a", "x": "NaN", "d": 0.20000000000000000001}')
    send(source, '{"x": -0.0, "d": 5}')
    assert judged() is Guarantee.AT_MOST_ONCE
    send(sink, '{"k": "a", "low": 1.5, "high": 1.5, "d": 0.10000000000000000000, "n": 1}')
    send(sink, '{"k": "a", "low": 1.5, "high": "NaN", "d": 0.30000000000000000001, "n": 2}')
    send(sink, '{"k": null, "low": -0.0, "high": -0.0, "d": 5.0, "n": 1}')
    assert judged() is Guarantee.EXACTLY_ONCE
    # The text "None" is not null: this would be right if the two were one group.
    send(source, '{"k": "None", "x": 1, "d": 5}')
    send(sink, '{"k": "None", "low": -0.0, "high": 1.0, "d": 10, "n": 2}')
    assert judged() is Guarantee.BROKEN
    Topics(connection).delete_below(sink, {0: 1})
    with pytest.raises(fk.FalkirkError) as caught:
        judged()
    assert caught.value.condition == "TOPIC_UNSEEN"


def test_an_order_that_json_does_not_have_is_not_judged(spark: "SparkSession", broker: Broker, tag: str) -> None:
    connection = Connection.of(broker.bootstrap)
    for topic in (f"in-{tag}", f"out-{tag}"):
        Topics(connection).create(topic, 1, {})
    app = fk.App("unordered")
    app.source("rows", fk.Kafka(f"in-{tag}", schema="k STRING, x BINARY"))
    app.add_processor("least", lambda s: s.groupBy("k").agg(F.min("x").alias("x")), reads=("rows",), policy=fk.Lazy())
    app.sink("out", "least", fk.Kafka(f"out-{tag}", key="k"))
    with pytest.raises(fk.DefinitionError) as caught:
        LiveJudge(app, connection, spark).judge_sink(app.sinks["out"])
    assert caught.value.condition == "NOT_CHECKABLE"


def test_a_record_without_a_partner_may_be_there_before_it_must(
    spark: "SparkSession", broker: Broker, tag: str
) -> None:
    """A live join rounds the end of its wait up to 0.1 s."""
    connection, wire = Connection.of(broker.bootstrap), Wire(bootstrap=broker.bootstrap, tag=tag)
    shown, clicks, out = (wire.topic(name, 1) for name in ("shown", "clicks", "out"))
    app = fk.App("joined")
    for name in ("shown", "clicks"):
        key = "id" if name == "shown" else None
        app.source(name, fk.Kafka(f"{name}-{tag}", schema="id STRING, at TIMESTAMP, n INT", key=key))

    @app.stream()
    def seen(shown: fk.Stream, clicks: fk.Stream) -> fk.Stream:
        left, right = shown.withWatermark("at", "1 second"), clicks.withWatermark("at", "3 seconds")
        return left.join(right, "id", "left", within="4 seconds").drop("right_at")

    @app.stream()
    def kept(shown: fk.Stream) -> fk.Stream:
        return shown.withWatermark("at", "1 second").dropDuplicates(["id"])

    @app.stream()
    def counted(kept: fk.Stream) -> fk.Stream:
        return kept.groupBy("id").count()

    app.sink("out", seen, fk.Kafka(out))
    app.sink("counts", counted, fk.Kafka(wire.topic("counts", 1), key="id"))
    judge = LiveJudge(app, connection, spark)

    rows = [{"id": "a", "at": f"2026-03-01T00:00:{at}Z", "n": n} for n, at in enumerate(("09.000000", "10.050000"))]
    wire.send(shown, rows)
    wire.send(clicks, [{"id": "b", "at": "2026-03-01T00:00:17.08Z", "n": 2}])
    wire.send(out, rows[:1])
    waits = judge.judge_sink(app.sinks["out"]).results
    assert waits.guarantee is Guarantee.EXACTLY_ONCE, waits.anomalies
    assert {each.where: each.rows for each in waits.read} == {
        f"kafka:{shown}": 2,
        f"kafka:{clicks}": 1,
        f"kafka:{out}": 1,
    }
    wire.send(out, rows[1:] * 2)
    has_left = judge.judge_sink(app.sinks["out"]).results
    assert has_left.guarantee is Guarantee.REPEATED_DELIVERY
    assert (has_left.counts.inputs, has_left.counts.expected_outputs, has_left.counts.duplicates) == (3, 2, 1)
    again = PartitionRange(0, Offset(1), Offset(2))
    judge_with_home = LiveJudge(app, connection, spark, invalid=lambda topic: (again,) if topic == out else ())
    forced = judge_with_home.judge_sink(app.sinks["out"])
    assert forced.results.guarantee is Guarantee.EXACTLY_ONCE, "a forced rollback made the first of the two invalid"
    assert forced.invalid == InvalidResults(count=1, ranges=(again,))
    with pytest.raises(fk.DefinitionError) as caught:
        judge.judge_sink(app.sinks["counts"])
    assert "it groups the results of a step with event time" in caught.value.message


def test_an_aggregation_of_first_records_in_one_region(spark: "SparkSession", broker: Broker, tag: str) -> None:
    connection, wire = Connection.of(broker.bootstrap), Wire(bootstrap=broker.bootstrap, tag=tag)
    clicks, out = wire.topic("clicks", 1), wire.topic("out", 1)
    app = fk.App("first")
    app.source("clicks", fk.Kafka(clicks, schema="id STRING, at TIMESTAMP, n INT", key="id"))

    @app.stream()
    def totals(clicks: fk.Stream) -> fk.Stream:
        first = clicks.withWatermark("at", "1 second").dropDuplicates(["id", "n"]).where("n < 9")
        return first.groupBy("id").agg(F.sum("n").alias("s"), fk.latest_value("n"))

    app.sink("out", totals, fk.Kafka(out, key="id"))
    judge = LiveJudge(app, connection, spark)
    second = {1: 10, 9: 10, 2: 11, 3: 5, 4: 12}  # the record with 3 is late
    wire.send(clicks, [{"id": "a", "at": f"2026-03-01T00:00:{second[n]:02}Z", "n": n} for n in (1, 1, 9, 2, 3, 2, 4)])
    wire.send(out, [{"id": "a", "s": s, "n": n} for s, n in ((1, 1), (3, 2), (7, 4))])
    wire.topics.create(f"{out}.dead-letters", 1, {})
    wire.send(f"{out}.dead-letters", [{"reason": "late", "topic": clicks, "partition": 0, "offset": 4}])
    right = judge.judge_sink(app.sinks["out"])
    assert right.satisfies(Guarantee.EXACTLY_ONCE), (right.results.anomalies, right.letters)
    assert right.results.counts.expected_outputs == 3
    wire.send(out, [{"id": "a", "s": 7, "n": 4}])
    assert judge.judge_sink(app.sinks["out"]).results.guarantee is Guarantee.REPEATED_DELIVERY
    wire.send(out, [{"id": "a", "s": 8, "n": 1}])  # as if a duplicate had counted
    assert judge.judge_sink(app.sinks["out"]).results.counts.unexplained == 1


def test_results_of_a_key_may_be_in_several_partitions(spark: "SparkSession", broker: Broker, tag: str) -> None:
    connection, wire = Connection.of(broker.bootstrap), Wire(bootstrap=broker.bootstrap, tag=tag)
    clicks, out = wire.topic("clicks", 1), wire.topic("out")
    app = fk.App("scattered")
    app.source("clicks", fk.Kafka(clicks, schema="id STRING, at TIMESTAMP, n INT", key="id"))

    @app.stream()
    def kept(clicks: fk.Stream) -> fk.Stream:
        return clicks.withWatermark("at", "1 second").dropDuplicates(["id"]).select("id", "n")

    app.sink("out", kept, fk.Kafka(out, key="n"))
    letters = f"{out}.dead-letters"
    wire.topics.create(letters, 1, {})
    judge = LiveJudge(app, connection, spark)
    wire.send(clicks, [{"id": "a", "at": f"2026-03-01T00:0{n}:00Z", "n": n} for n in (0, 1)])
    for n in (0, 1):
        wire.send(out, [{"id": "a", "n": n}], 1 - n)
    verdict = judge.judge_sink(app.sinks["out"])
    assert verdict.results.guarantee is Guarantee.EXACTLY_ONCE, verdict.results.anomalies
    assert verdict.letters is None
    wire.send(letters, [{"reason": "late", "topic": clicks, "partition": 0, "offset": 0}])
    found = judge.judge_sink(app.sinks["out"]).letters
    assert found is not None
    assert found.counts.unexplained == 1
    wire.expire(letters)
    with pytest.raises(fk.LogError) as caught:
        judge.judge_sink(app.sinks["out"])
    assert caught.value.condition == "TOPIC_UNSEEN"
