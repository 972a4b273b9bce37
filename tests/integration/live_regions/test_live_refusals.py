"""Live regions in one process: the refusals of a start, each with a clear error, and errors that end a query."""

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors.location import SourceLocation
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark.live.inputs import due
from falkirk.runtime.supervision.query import Query
from falkirk.spark_setup.broker import Broker
from falkirk.theory.ids import LogId, Offset
from falkirk.theory.times import TopicPartition
from tests.integration.live import Wire, failed, settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS = "word STRING NOT NULL, n INT"


@pytest.fixture
def wire(spark: "SparkSession", broker: Broker, tag: str) -> Wire:
    """Topics of the test's own on the broker; there is a session."""
    return Wire(bootstrap=broker.bootstrap, tag=tag)


def start(
    wire: Wire, events: str, out: str, home: Path, *aggregates: Any, then: Any = None, sink: Any = None, **options: Any
) -> Query:
    """Start a count per word."""
    stream = fk.read(fk.Kafka(events, schema=WORDS, key="word"))
    keyed = stream.groupBy("word").agg(*(aggregates or (F.count("*").alias("version"),)))
    stream = then(keyed) if then else keyed
    sink = sink or fk.Kafka(out, key="word")
    return stream.write(sink, kafka=wire.bootstrap, home=str(home), interval="2 seconds", **options)


def refused(condition: str, *arguments: Any, **options: Any) -> fk.FalkirkError:
    """Start an application that must not start."""
    with pytest.raises(fk.FalkirkError) as caught:
        start(*arguments, **options).stop()
    assert caught.value.condition == condition, caught.value
    assert caught.value.hint
    return caught.value


def test_one_home_and_what_it_refuses(wire: Wire, home: Path) -> None:
    events, out, other = wire.topic("events"), wire.topic("out"), wire.topic("other")
    wire.send(events, [{"word": w} for w in "abcabc"])
    query = start(wire, events, out, home)
    wire.await_count(out, 6, query)
    refused("HOME_IN_USE", wire, events, out, home)
    settle(query)
    query.stop()

    sums = (F.sum("n").alias("version"),)
    changed = refused("APPLICATION_CHANGED", wire, events, out, home, *sums)
    assert "keyed step" in changed.parameters["changed"]  # type: ignore[operator]
    refused("HOME_OF_ANOTHER", wire, events, other, home)
    apart = fk.Kafka(out, key="word", dead_letters=wire.topic("apart"))
    with pytest.raises(fk.HomeError) as caught:
        start(wire, events, out, home, sink=apart)
    assert list(caught.value.parameters["changed"]) == ["dead letters"]  # type: ignore[call-overload]
    # A replay would find its results in other partitions than those that are published, and publish them again.
    other_key = refused("APPLICATION_CHANGED", wire, events, out, home, sink=fk.Kafka(out, key="version"))
    assert list(other_key.parameters["changed"]) == ["partitioned by", "written as"]  # type: ignore[call-overload]
    computed = refused(
        "APPLICATION_CHANGED", wire, events, out, home, then=lambda s: s.withColumn("word", F.upper("word"))
    )
    assert list(computed.parameters["changed"]) == ["partitioned by"]  # type: ignore[call-overload]
    assert wire.count(out) == 6

    wire.send(events, [{"word": w} for w in "abc"])
    query = start(wire, events, out, home, then=lambda s: s.withColumn("twice", F.col("version") * 2))
    wire.await_count(out, 9, query)
    settle(query)
    query.stop()
    wire.send(events, [{"word": w} for w in "abc"])
    query = start(wire, events, out, home, then=lambda s: s.drop("version").withColumn("thrice", F.lit(3)))
    wire.await_count(out, 12, query)
    query.stop()
    rows = wire.rows(out)
    numbered = sorted((row["word"], row["version"]) for row in rows if "version" in row)
    assert numbered == [(w, v) for w in "abc" for v in (1, 2, 3)]
    assert [row["twice"] for row in rows if "twice" in row] == [6, 6, 6]
    assert sorted(row["word"] for row in rows if "thrice" in row) == ["a", "b", "c"]

    wire.send(out, [{"word": "a", "version": 99}])
    wire.expire(out)
    assert refused("SINK_EXPIRED", wire, events, out, home).parameters["topic"] == out
    wire.widen(events, 3)
    widened = refused("PARTITIONS_CHANGED", wire, events, out, home)
    assert (widened.parameters["before"], widened.parameters["now"]) == (2, 3)


def test_topics_that_can_not_be_used_are_named(wire: Wire, home: Path) -> None:
    events, out = wire.topic("events"), wire.topic("out")
    compacted = wire.topic("compacted", cleanup_policy="compact")
    assert refused("SINK_COMPACTED", wire, events, compacted, home / "a").parameters["topic"] == compacted
    both = wire.topic("both", cleanup_policy="compact,delete")
    refused("SINK_COMPACTED", wire, events, both, home / "b")
    forgetful = wire.topic("forgetful", cleanup_policy="compact")
    assert refused("INPUT_COMPACTED", wire, forgetful, out, home / "e").parameters["topic"] == forgetful
    brief = wire.topic("brief", retention_ms="500")
    assert refused("INPUT_EXPIRES", wire, brief, out, home / "f").parameters["retention_s"] == 0.5
    lines, first = inspect.getsourcelines(start)
    source = first + next(i for i, line in enumerate(lines) if "fk.read(" in line)
    missing = refused("TOPIC_MISSING", wire, f"absent-{wire.tag}", out, home / "c")
    assert isinstance(missing.where, SourceLocation)
    assert (missing.where.file, missing.where.line) == (__file__, source)
    lost = refused("TOPIC_MISSING", wire, events, f"absent-{wire.tag}", home / "d")
    assert isinstance(lost.where, SourceLocation)
    assert lost.where.file == __file__
    assert not wire.topics.exists(f"absent-{wire.tag}")


def test_records_of_a_key_from_two_partitions_end_the_query(wire: Wire, home: Path) -> None:
    events, out = wire.topic("events"), wire.topic("out")
    wire.send(events, [{"word": w, "n": 1} for w in "abcd"], partition=0)
    query = start(wire, events, out, home)
    wire.await_count(out, 4, query)
    settle(query)  # else a replay may read a's record of partition 1 first, and publish its result before it fails
    wire.send(events, [{"word": "a", "n": 2}, {"word": "e", "n": 2}], partition=1)
    error = failed(query)
    assert error.condition == "NOT_CO_PARTITIONED"
    assert error.parameters["topic"] == events
    assert isinstance(error.where, SourceLocation)
    assert error.where.file == __file__
    rows = wire.rows(out)
    assert [row["version"] for row in rows if row["word"] == "a"] == [1]
    with pytest.raises(fk.DefinitionError):
        query.awaitTermination(1)
    assert refused("NOT_CO_PARTITIONED", wire, events, out, home).parameters["topic"] == events
    assert [row["version"] for row in wire.rows(out) if row["word"] == "a"] == [1]
    assert "No wrong result was published" in str(error)


def test_a_key_in_two_partitions_may_have_a_second_result_after_a_failure_and_the_error_says_so(
    wire: Wire, home: Path
) -> None:
    """The replay reads the other partition first: the key's record there comes after many of another key here."""
    events, out = wire.topic("events"), wire.topic("out")

    def run() -> Query:
        words = fk.read(fk.Kafka(events, schema=WORDS, key="word")).where("n > 0")
        counts = words.groupBy("word").agg(F.count("*").alias("version"))
        return counts.write(fk.Kafka(out, key="word"), kafka=wire.bootstrap, home=str(home), interval="60 seconds")

    wire.send(events, [*[{"word": "z", "n": 0}] * 30_000, {"word": "a", "n": 1}], partition=0)
    query = run()
    wire.await_count(out, 1, query)
    query.stop()  # without a checkpoint, as a failure
    wire.send(events, [{"word": "a", "n": 2}], partition=1)
    error = failed(run())
    assert error.condition == "NOT_CO_PARTITIONED"
    assert "results that no checkpoint covered (1)" in str(error)
    versions = [row["version"] for row in wire.rows(out)]
    print(f"results of the key: {versions}")
    assert versions in ([1], [1, 1])


def test_input_that_expired_below_the_checkpoint_is_named(wire: Wire, home: Path) -> None:
    events, out = wire.topic("events"), wire.topic("out")
    wire.send(events, [{"word": w} for w in "abc"])
    query = start(wire, events, out, home)
    wire.await_count(out, 3, query)
    settle(query)
    query.stop()
    wire.send(events, [{"word": w} for w in "abc"])
    wire.expire(events)
    error = failed(start(wire, events, out, home))
    assert error.condition == "INPUT_EXPIRED"
    assert error.parameters["topic"] == events
    assert wire.count(out) == 3


def test_an_expression_that_fails_on_a_value_ends_the_query_until_it_is_mended(wire: Wire, home: Path) -> None:
    events, out = wire.topic("events", 1), wire.topic("out", 1)

    def run(price: str) -> Query:
        stream = fk.read(fk.Kafka(events, schema="price STRING"))
        sink = fk.Kafka(out)
        return stream.selectExpr(f"{price} AS p").write(
            sink, kafka=wire.bootstrap, home=str(home), interval="2 seconds", state_partitions=1
        )

    query = run("CAST(price AS INT)")
    wire.send(events, [{"price": "1"}])
    wire.await_count(out, 1, query)
    settle(query)
    wire.send(events, [{"price": "n/a"}, {"price": "3"}])
    error = failed(query)
    assert error.condition == "EXPRESSION_FAILED"
    assert error.parameters["spark_condition"] == "CAST_INVALID_INPUT"
    query = run("try_cast(price AS INT)")
    wire.await_count(out, 3, query)
    query.stop()
    assert [row["p"] for row in wire.rows(out)] == [1, None, 3]


def test_what_a_transaction_took_back_is_no_input(wire: Wire, home: Path) -> None:
    events, out = wire.topic("events", 1), wire.topic("out", 1)
    producer = Producer({"bootstrap.servers": wire.bootstrap, "transactional.id": wire.tag, "log_level": 0})
    producer.init_transactions()
    for words, keep in (("a", True), ("bb", False), ("ca", True)):
        producer.begin_transaction()
        for word in words:
            producer.produce(events, value=json.dumps({"word": word}), partition=0)
        producer.flush()
        (producer.commit_transaction if keep else producer.abort_transaction)()
    query = start(wire, events, out, home)
    wire.await_count(out, 3, query)
    settle(query)
    query.stop()
    assert [(row["word"], row["version"]) for row in wire.rows(out)] == [("a", 1), ("c", 1), ("a", 2)]
    # The marker of a transaction at the end is not due either: a failed region need not get further than that.
    connection, behind = Connection.of(wire.bootstrap), Offset(wire.topics.end_positions(events)[0] - 1)
    begin = {TopicPartition(topic=events, partition=0): Offset(0)}
    assert due(wire.topics, connection, {LogId(events): {0: Offset(0)}}) == begin
    assert due(wire.topics, connection, {LogId(events): {0: behind}}) == {}
