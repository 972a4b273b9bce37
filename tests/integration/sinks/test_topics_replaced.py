"""A topic that was deleted and created again, or that ends before where it ended: refused, not taken for empty."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import LogError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.plan.region import RegionLogs
from falkirk.recovery.decision_store import RegionRecord
from falkirk.recovery.ownership.folder import Home, open_home
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.live.at_rest import RegionAtRest
from falkirk.runtime.spark.outputs import last_records
from falkirk.runtime.supervision.query import Query
from falkirk.user_tools.redrive.sending import Notes
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def opened(home: Path) -> Iterator[Home]:
    """A home without an application."""
    with open_home(home, "held") as made:
        yield made


def _replace(wire: Wire, topic: str, partitions: int = 2) -> None:
    """Delete a topic and create it again."""
    wire.admin.delete_topics([topic])[topic].result()
    wait_until(lambda: not wire.topics.exists(topic), 30, "it to be deleted")
    wire.topics.create(topic, partitions, {})


def _send(wire: Wire, topic: str, count: int) -> None:
    wire.send(topic, [{"word": "a", "n": n} for n in range(count)], partition=0, key="a")


@pytest.mark.parametrize("which", ["output", "input"])
def test_a_live_region_does_not_go_on_with_another_topic_of_the_same_name(
    spark: "SparkSession", wire: Wire, home: Path, which: str
) -> None:
    """The positions alone tell nothing: both topics have grown past their old ends."""
    topics = {"input": wire.topic("events"), "output": wire.topic("counts")}

    def run() -> Query:
        events = fk.read(fk.Kafka(topics["input"], schema="word STRING NOT NULL, n INT", key="word"))
        counted = events.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))
        sink = fk.Kafka(topics["output"], key="word")
        return counted.write(sink, kafka=wire.bootstrap, home=str(home), interval="2 seconds")

    _send(wire, topics["input"], 3)
    query = run()
    wire.await_count(topics["output"], 3, query)
    query.stop()
    _replace(wire, topics[which])
    _send(wire, topics["input"], 5)
    if which == "output":
        _send(wire, topics["output"], 5)
    with pytest.raises(LogError) as told:
        run()
    assert (told.value.condition, told.value.parameters["topic"]) == ("TOPIC_REPLACED", topics[which])
    assert told.value.parameters["before"] != told.value.parameters["now"]
    assert wire.count(topics["output"]) == (5 if which == "output" else 3)


@pytest.mark.parametrize("compares", [True, False])
def test_each_look_at_a_topic_tells_that_it_is_another_one(
    wire: Wire, opened: Home, monkeypatch: pytest.MonkeyPatch, compares: bool
) -> None:
    """The topic is replaced while the application runs (the same place looks again), or stands still (another one)."""
    topic = wire.topic("held")
    if not compares:
        monkeypatch.setattr(Topics, "expect", lambda self, topic, identity: None)
    place = Storage(home=opened, connection=Connection.of(wire.bootstrap))
    place.hold((topic,))
    place.hold((topic,))
    _replace(wire, topic)
    if not compares:
        assert place.topics.end_positions(topic) == {0: 0, 1: 0}, "the other topic counts as the known one"
        return
    looks: list[Callable[[Storage], object]] = [
        lambda p: p.hold((topic,)),
        lambda p: p.topics.facts(topic),
        lambda p: p.topics.end_positions(topic),
        lambda p: p.topics.exists(topic),
    ]
    for again in (place, Storage(home=opened, connection=Connection.of(wire.bootstrap))):
        for look in looks:
            with pytest.raises(LogError) as told:
                look(again)
            assert told.value.condition == "TOPIC_REPLACED"


def test_an_output_that_ends_before_where_it_ended_is_refused_at_the_fence(wire: Wire, opened: Home) -> None:
    """Kafka has lost records that it had acknowledged: by its end the topic has nothing that was released since."""
    out, dead = wire.topic("out"), wire.topic("dead", 1)
    _send(wire, out, 3)
    record = RegionRecord(fingerprint={}, start_offsets={}, partitions={})
    logs = RegionLogs(name="counted", source="events", output=out, dead_letters=dead, repeats=False)
    opened.store.create_region("counted", record, {out: {0: 0, 1: 0}, dead: {0: 9}})
    place = Storage(home=opened, connection=Connection.of(wire.bootstrap))
    RegionAtRest(logs, place).fence()  # dead letters may be deleted
    number = opened.store.open_incarnation("counted", -1)
    opened.store.record_fence("counted", number, fence={out: {0: 5, 1: 0}})
    with pytest.raises(LogError) as told:
        RegionAtRest(logs, place).fence()
    assert told.value.condition == "SINK_TRUNCATED"
    assert (told.value.parameters["topic"], told.value.parameters["truncated"]) == (out, {0: (5, 3)})


def test_a_sink_that_ends_before_where_the_home_found_it_is_refused(wire: Wire, opened: Home) -> None:
    sink = wire.topic("sink")
    _send(wire, sink, 6)
    place = Storage(home=opened, connection=Connection.of(wire.bootstrap))
    assert list(last_records(place, sink, {0: 7, 1: 0})) == []
    with pytest.raises(LogError) as told:
        list(last_records(place, sink, {0: 6, 1: 0}))
    assert (told.value.condition, told.value.parameters["truncated"]) == ("SINK_TRUNCATED", {0: (7, 6)})


def test_the_notes_of_what_was_sent_again_are_missed(wire: Wire, opened: Home) -> None:
    """Without them every dead letter would be sent a second time."""
    place = Storage(home=opened, connection=Connection.of(wire.bootstrap))
    notes = Notes(place)
    notes.prepare()
    place.hold((notes.topic,))
    _replace(wire, notes.topic, 1)
    with pytest.raises(LogError) as told:
        notes.read()
    assert told.value.condition == "TOPIC_REPLACED"
