"""Topics: a setting that an older broker does not know is omitted, and a leader without a position is asked again."""

import math
from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from falkirk.errors import LogError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.internal import ANY_TIME, KEEP
from falkirk.kafka_client.topics import Topics
from tests.clock import MovedClock


class OlderBroker:
    """A client of a broker that refuses some settings; `made` lists the settings of the requested topics."""

    def __init__(self, refused: str) -> None:
        self.made: list[Mapping[str, str]] = []
        self._refused = refused

    def create_topics(self, new: list[Any], **_: object) -> dict[str, Future[None]]:
        (topic,) = new
        self.made.append(dict(topic.config))
        future: Future[None] = Future()
        if self._refused in topic.config:
            future.set_exception(KafkaException(KafkaError(KafkaError.INVALID_CONFIG)))
        else:
            future.set_result(None)
        return {topic.topic: future}

    def describe_topics(self, wanted: TopicCollection, **_: object) -> dict[str, Future[Any]]:
        return {topic: described() for topic in wanted.topic_names}

    def poll(self, _: float) -> None:
        """Do nothing."""


def described() -> Future[Any]:
    """Return the description of a topic with two partitions, each of which has a leader."""
    future, led = Future[Any](), SimpleNamespace(leader=SimpleNamespace(id=1))
    future.set_result(SimpleNamespace(topic_id="id", partitions=[led, led]))
    return future


def topics_of(broker: object) -> Topics:
    return Topics(Connection.of("127.0.0.1:1"), new_client=lambda _: cast(AdminClient, broker), clock=MovedClock())


def test_a_setting_that_an_older_broker_does_not_know_is_left_out() -> None:
    broker = OlderBroker(ANY_TIME)
    topics_of(broker).create("hop", 2, KEEP)
    assert broker.made == [KEEP, {name: value for name, value in KEEP.items() if name != ANY_TIME}]


def test_a_setting_that_matters_is_not_left_out() -> None:
    broker = OlderBroker("retention.ms")
    with pytest.raises(LogError):
        topics_of(broker).create("hop", 2, KEEP)
    assert "retention.ms" in broker.made[-1]


class NewLeader(OlderBroker):
    """A client of a broker whose leaders do not know their ends at first: it returns -1001 without an error."""

    def __init__(self, unknown: int) -> None:
        super().__init__("no setting")
        self.asked, self._unknown = 0, unknown

    def list_offsets(self, wanted: Mapping[Any, object], **_: object) -> dict[Any, Future[SimpleNamespace]]:
        self.asked += 1
        futures = {}
        for place in wanted:
            futures[place] = Future[SimpleNamespace]()
            known = self.asked > self._unknown or place.partition
            futures[place].set_result(SimpleNamespace(offset=7 if known else -1001))
        return futures


def test_a_leader_without_a_position_is_asked_again() -> None:
    broker = NewLeader(unknown=2)
    assert topics_of(broker).end_positions("events") == {0: 7, 1: 7}
    assert broker.asked == 3


def test_a_leader_that_never_has_a_position_counts_as_away() -> None:
    with pytest.raises(LogError) as caught:
        topics_of(NewLeader(unknown=1_000)).end_positions("events")
    assert (caught.value.condition, caught.value.parameters["code"]) == ("BROKER_AWAY", "POSITION_UNKNOWN")


class BehindBroker(OlderBroker):
    """A client of a cluster: after the first answer, another broker does not know the new topic until answer `late`."""

    def __init__(self, late: float = math.inf) -> None:
        super().__init__("no setting")
        self.described, self._late = 0, late

    def describe_topics(self, _: object, **__: object) -> dict[str, Future[Any]]:
        self.described += 1
        if self.described == 1 or self.described >= self._late:
            return {"hop": described()}
        future: Future[Any] = Future()
        future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return {"hop": future}


def test_a_new_topic_that_a_second_broker_does_not_know_yet() -> None:
    broker = BehindBroker(late=4)
    topics = topics_of(broker)
    topics.create("hop", 2, KEEP)
    assert broker.described == 1
    assert topics.identity("hop") == "id"
    assert broker.described == 4


def test_a_new_topic_that_somebody_deletes_is_missing() -> None:
    topics = topics_of(BehindBroker())
    topics.create("hop", 2, KEEP)
    assert not topics.exists("hop")


class Replaced(NewLeader):
    """A client of a broker where somebody may replace a topic: the new one has the id `new` and another end."""

    def __init__(self) -> None:
        super().__init__(unknown=0)
        self.described, self.found, self.end = 0, "id", 7

    def describe_topics(self, wanted: TopicCollection, **_: object) -> dict[str, Future[Any]]:
        self.described += 1
        futures = super().describe_topics(wanted)
        for future in futures.values():
            future.result().topic_id = self.found
        return futures

    def list_offsets(self, wanted: Mapping[Any, object], **_: object) -> dict[Any, Future[SimpleNamespace]]:
        futures = super().list_offsets(wanted)
        for future in futures.values():
            future.result().offset = self.end
        return futures


def test_a_poll_that_finds_nothing_new_describes_the_topic_once_a_second() -> None:
    broker, clock = Replaced(), MovedClock()
    topics = Topics(Connection.of("127.0.0.1:1"), new_client=lambda _: cast(AdminClient, broker), clock=clock)
    for _ in range(30):
        assert topics.end_positions("events") == {0: 7, 1: 7}
        clock.advance(0.1)
    assert (broker.asked, broker.described) == (30, 3)


@pytest.mark.parametrize(("end", "passed_s"), [(8, 0.0), (7, 1.0)])
def test_a_topic_that_was_replaced_is_refused_at_once_if_its_end_differs(end: int, passed_s: float) -> None:
    broker, clock = Replaced(), MovedClock()
    topics = Topics(Connection.of("127.0.0.1:1"), new_client=lambda _: cast(AdminClient, broker), clock=clock)
    topics.expect("events", "id")
    topics.end_positions("events")
    broker.found, broker.end = "new", end
    clock.advance(passed_s)
    with pytest.raises(LogError) as caught:
        topics.end_positions("events")
    assert caught.value.condition == "TOPIC_REPLACED"


def test_a_topic_that_is_expected_from_now_on_is_described() -> None:
    broker = Replaced()
    topics = topics_of(broker)
    topics.end_positions("events")
    topics.expect("events", "another")
    with pytest.raises(LogError) as caught:
        topics.end_positions("events")
    assert caught.value.condition == "TOPIC_REPLACED"
