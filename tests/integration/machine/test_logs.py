"""Topics, ranges and tails on a real broker: exact, or an error that says why not."""

import contextlib
import threading
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from falkirk.errors import InternalError, LogError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import LogRecord, read_range
from falkirk.kafka_client.signing import NO_HEADER, Foreign, SigningKey, Verifier
from falkirk.kafka_client.tail import OwnRecords, tail_of
from falkirk.kafka_client.topics import TopicFacts, Topics
from falkirk.kafka_client.void import Void
from falkirk.runtime.spark.live.inputs import read_before
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.broker import Broker
from falkirk.theory.channel import Channel
from falkirk.theory.ids import LogId, Offset
from falkirk.theory.stamp import Stamp
from tests.support import suspend, wait_until

#: (partition, header or None) of a record to be written.
Written = tuple[int, str | None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that these tests may stop."""
    folder = tmp_path_factory.mktemp("broker")
    yield local_broker.start(folder, java_options=local_broker.SHORT_RUN)
    local_broker.stop(folder)


@pytest.fixture
def topics(broker: Broker) -> Topics:
    return Topics(broker.bootstrap)


def delete(broker: Broker, topic: str) -> None:
    """Delete a topic. Just after the broker has stood still, a client may wait for its controller for a minute."""

    def is_deleted() -> bool:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})  # it lives until the answer
        error = admin.delete_topics([topic], request_timeout=5)[topic].exception()
        if error is None or error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:  # an earlier try may have done it
            return True
        if error.args[0].code() != KafkaError._TIMED_OUT:
            raise error
        return False

    wait_until(is_deleted, 60, f"the deletion of {topic}")


@pytest.fixture
def topic(broker: Broker, topics: Topics, tag: str) -> Iterator[str]:
    """A topic with three partitions."""
    name = f"logs-{tag}"
    topics.create(name, 3)
    yield name
    delete(broker, name)


def write(broker: Broker, topic: str, records: Sequence[Written], *, value: bytes = b"{}") -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for partition, header in records:
        headers: list[tuple[str, str | bytes | None]] = [("trace", b"x")]
        if header is not None:
            headers.append(("falkirk", header))
        producer.produce(topic, key=str(partition), value=value, partition=partition, headers=headers)
    assert producer.flush(30) == 0


def stamp(partition: int, offset: int, index: int) -> Stamp:
    return Stamp(source=0, partition=partition, offset=offset, sub=(index,))


def places(records: Iterator[LogRecord]) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


@contextlib.contextmanager
def stopped(broker: Broker) -> Iterator[None]:
    """Stop the broker with SIGSTOP; in the end, resume it and wait until it answers."""
    process = broker.process()
    assert process is not None
    suspend(process)
    try:
        yield
    finally:
        process.resume()
        Topics(broker.bootstrap).await_broker(60)


def test_the_facts_of_a_topic(broker: Broker, topics: Topics, tag: str) -> None:
    name = f"facts-{tag}"
    topics.create(name, 2, {"cleanup.policy": "compact,delete", "retention.ms": "-1", "max.message.bytes": "5000"})
    assert topics.facts(name) == TopicFacts(
        topic=name,
        partitions=2,
        cleanup_policy="compact,delete",
        max_message_bytes=5000,
        retention_ms=-1,
        message_timestamp_type="CreateTime",
        timestamp_after_max_ms=3_600_000,
    )
    delete(broker, name)


def test_a_missing_topic_is_named_with_similar_ones_and_not_created(topics: Topics, topic: str) -> None:
    for ask in (topics.facts, topics.first_positions, topics.end_positions):
        with pytest.raises(LogError) as caught:
            ask(topic[:-1])
        assert caught.value.condition == "TOPIC_MISSING"
        assert caught.value.parameters["similar"] == (topic,)
    assert not topics.exists(topic[:-1])


def test_creating_again_checks_the_partitions(topics: Topics, topic: str) -> None:
    topics.create(topic, 3)
    with pytest.raises(LogError) as caught:
        topics.create(topic, 4)
    assert caught.value.condition == "PARTITION_COUNT_DIFFERS"
    assert (caught.value.parameters["found"], caught.value.parameters["wanted"]) == (3, 4)


def test_what_kafka_refuses_is_passed_on_with_its_reason(topics: Topics, tag: str) -> None:
    with pytest.raises(LogError) as caught:
        topics.create(f"refused-{tag}", 1, {"no.such.setting": "1"})
    assert (caught.value.condition, caught.value.certainty) == ("KAFKA_REFUSED", "definitely")
    assert "no.such.setting" in str(caught.value)


def test_positions_of_an_empty_topic_and_of_a_filled_one(broker: Broker, topics: Topics, topic: str) -> None:
    assert topics.first_positions(topic) == topics.end_positions(topic) == {0: 0, 1: 0, 2: 0}
    write(broker, topic, [(0, None)] * 5 + [(2, None)] * 3)
    assert topics.first_positions(topic) == {0: 0, 1: 0, 2: 0}
    assert topics.end_positions(topic) == {0: 5, 1: 0, 2: 3}


def test_a_range_is_read_exactly_over_several_partitions(broker: Broker, topic: str) -> None:
    write(broker, topic, [(p, f"deadbeef/1/0.{p}.{i}/0") for i in range(5_000) for p in range(3)])
    first, last = {0: 10, 1: 0, 2: 4_999}, {0: 4_321, 1: 1, 2: 5_000}
    read = list(read_range(broker.bootstrap, topic, first, last))
    assert places(iter(read)) == [(p, o) for p in range(3) for o in range(first[p], last[p])]
    for record in read:
        assert record.header is not None
        assert record.header.stamp == Stamp(source=0, partition=record.partition, offset=record.offset)
        assert (record.key, record.value) == (str(record.partition).encode(), b"{}")
        assert record.timestamp_ms > 1_500_000_000_000
    for partition in range(3):
        offsets = [record.offset for record in read if record.partition == partition]
        assert offsets == sorted(offsets)


def test_an_empty_range_reads_nothing(broker: Broker, topics: Topics, topic: str) -> None:
    ends = topics.end_positions(topic)
    assert list(read_range(broker.bootstrap, topic, ends, ends)) == []
    assert list(read_range(broker.bootstrap, topic, {}, {})) == []
    write(broker, topic, [(0, None)] * 3)
    ends = topics.end_positions(topic)
    assert list(read_range(broker.bootstrap, topic, ends, ends)) == []
    tail = tail_of(OwnRecords(_verifier(topic), Void()).read(broker.bootstrap, topic, ends, ends))
    assert (tail.incarnations, tail.released.greatest, tail.released_set) == ({}, {}, ())


def test_gaps_that_transactions_leave_end_no_range_early_and_hold_none_open(
    broker: Broker, topics: Topics, topic: str, tag: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"gaps-{tag}"})
    producer.init_transactions(30)
    for commit in (True, False, True):
        producer.begin_transaction()
        for _ in range(2):
            producer.produce(topic, value=b"{}", partition=0)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()
    # Two records and a marker, three times; a commit returns before its marker is appended.
    wait_until(lambda: topics.end_positions(topic)[0] == 9, 10, "the last marker")
    everything = [0, 1, 3, 4, 6, 7]
    for first in range(10):
        for last in range(first, 10):
            read = places(read_range(broker.bootstrap, topic, {0: first}, {0: last}, stall_s=10))
            assert read == [(0, o) for o in everything if first <= o < last]
    ends = topics.end_positions(topic)
    start = dict.fromkeys(ends, Offset(0))
    assert read_before(topics, Connection.of(broker.bootstrap), {LogId(topic): start}) == {(0, 0): 7}
    assert read_before(topics, Connection.of(broker.bootstrap), {LogId(topic): {**start, 0: Offset(8)}}) == {}


def test_a_range_must_name_its_partitions_twice(broker: Broker, topic: str) -> None:
    with pytest.raises(InternalError) as caught:
        list(read_range(broker.bootstrap, topic, {0: 0}, {0: 0, 1: 5}))
    assert caught.value.condition == "RANGE_MISMATCH"


def test_records_that_have_been_deleted_are_missed(broker: Broker, topics: Topics, topic: str) -> None:
    write(broker, topic, [(1, None)] * 20)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 1, 10)]).values():
        future.result()
    assert topics.first_positions(topic)[1] == 10
    with pytest.raises(LogError) as caught:
        list(read_range(broker.bootstrap, topic, {1: 9}, {1: 20}))
    assert (caught.value.condition, caught.value.parameters["partition"]) == ("RANGE_EXPIRED", 1)
    assert len(list(read_range(broker.bootstrap, topic, {1: 10}, {1: 20}))) == 10


def test_a_range_that_the_topic_does_not_reach_is_an_error(broker: Broker, topic: str) -> None:
    write(broker, topic, [(0, None)] * 3)
    with pytest.raises(LogError) as caught:
        list(read_range(broker.bootstrap, topic, {0: 0}, {0: 4}, stall_s=1))
    assert (caught.value.condition, caught.value.parameters["end"]) == ("RANGE_NOT_THERE", 3)


def test_a_range_of_a_missing_topic_is_an_error(broker: Broker, topics: Topics, tag: str) -> None:
    with pytest.raises(LogError) as caught:
        list(read_range(broker.bootstrap, f"missing-{tag}", {0: 0}, {0: 4}, stall_s=5))
    assert caught.value.condition == "TOPIC_MISSING"
    assert not topics.exists(f"missing-{tag}")


def _verifier(topic: str) -> Verifier:
    """Return that of a home that has signed nothing yet."""
    return Verifier(topic, "deadbeef", SigningKey(secret=bytes(32), since_birth=False))


def test_a_tail_tells_ours_from_foreign_void_and_repeated(broker: Broker, topics: Topics, topic: str) -> None:
    write(
        broker,
        topic,
        [
            (0, "deadbeef/1/0.0.5.0/2"),
            (0, "deadbeef/1/0.0.5.1/2"),
            (0, "deadbeef/1/0.1.3.0/2"),
            (0, "deadbeef/2/0.0.4.0/2"),  # not above the first two: a regression
            (0, "deadbeef/1/0.0.9.0/2"),  # void, by the caller's word
            (1, "deadbeef/2/0.0.8.0/0"),
            (1, None),
            (1, "cafecafe/1/0.0.99.0/0"),
            (1, "not a header"),
        ],
    )
    ends = topics.end_positions(topic)
    own = OwnRecords(_verifier(topic), Void([(0, 4, 5)]))
    tail = tail_of(own.read(broker.bootstrap, topic, {0: 0, 1: 0, 2: 0}, ends))
    a = Channel(source=0, source_partition=0, state_partition=2, output_partition=0)
    b = Channel(source=0, source_partition=1, state_partition=2, output_partition=0)
    c = Channel(source=0, source_partition=0, state_partition=0, output_partition=1)
    assert tail.released.greatest == {a: stamp(0, 5, 1), b: stamp(1, 3, 0), c: stamp(0, 8, 0)}
    assert set(tail.released_set) == {
        (a, stamp(0, 5, 0)),
        (a, stamp(0, 5, 1)),
        (b, stamp(1, 3, 0)),
        (a, stamp(0, 4, 0)),
        (c, stamp(0, 8, 0)),
    }
    assert (sum(ends.values()), tail.incarnations) == (9, {1: 3, 2: 2}), "the rest is one void and three foreign ones"
    assert (own.foreign.count, tail.regression_count) == (3, 1)
    assert own.foreign.first == Foreign(partition=1, offset=1, reason=NO_HEADER)
    assert tail.regression is not None
    assert (tail.regression.channel, tail.regression.later) == (a, stamp(0, 4, 0))


def test_a_broker_that_stops_in_the_middle_of_a_range_ends_it_with_an_error(broker: Broker, topic: str) -> None:
    # Far more than the client reads ahead in the moment before the broker stops.
    write(broker, topic, [(0, None)] * 2_000, value=bytes(100_000))
    records = read_range(broker.bootstrap, topic, {0: 0}, {0: 2_000}, stall_s=2)
    read = [next(records)]
    with stopped(broker):
        with pytest.raises(LogError) as caught:
            read.extend(records)
        assert (caught.value.condition, caught.value.certainty) == ("BROKER_AWAY", "maybe")
        assert len(read) < 2_000
    assert len(list(read_range(broker.bootstrap, topic, {0: 0}, {0: 2_000}))) == 2_000


def test_a_broker_that_goes_on_in_time_costs_no_record(broker: Broker, topic: str) -> None:
    write(broker, topic, [(0, None)] * 2_000, value=bytes(100_000))
    records = read_range(broker.bootstrap, topic, {0: 0}, {0: 2_000}, stall_s=60)
    read = [next(records)]
    process = broker.process()
    assert process is not None
    with stopped(broker):
        going_on = threading.Timer(2.0, process.resume)
        going_on.start()
        read.extend(records)
        going_on.join()
    assert [record.offset for record in read] == list(range(2_000))


def test_a_broker_that_is_away_is_an_error_after_the_time_given(broker: Broker, topic: str) -> None:
    impatient = Topics(broker.bootstrap, timeout_s=1)
    assert impatient.exists(topic)
    with stopped(broker):
        for ask in (impatient.facts, impatient.end_positions, impatient.exists):
            with pytest.raises(LogError) as caught:
                ask(topic)
            assert (caught.value.condition, caught.value.certainty) == ("BROKER_AWAY", "maybe")
        with pytest.raises(LogError) as caught:
            impatient.await_broker(1.5)
        assert caught.value.condition == "BROKER_AWAY"


def test_awaiting_a_broker_reports_and_returns_when_it_is_back(broker: Broker, topics: Topics) -> None:
    process = broker.process()
    assert process is not None
    waited: list[float] = []

    def on_wait(waited_s: float) -> None:
        waited.append(waited_s)
        if len(waited) == 2:
            process.resume()

    with stopped(broker):
        topics.await_broker(60, on_wait)
    assert waited == sorted(waited)
    assert len(waited) >= 2
