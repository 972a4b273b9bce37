"""Topics that can't be seen whole are not judged: deleted and compacted records, open transactions, more that comes."""

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from falkirk.checker import Described, Reading, Space, Verdict, check_described
from falkirk.checker.rows_read import RowsRead
from falkirk.errors import FalkirkError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.spark_setup.broker import Broker


def sent(broker: Broker, topic: str, count: int, key: str | None = None, transaction: str | None = None) -> None:
    settings = {"bootstrap.servers": broker.bootstrap} | ({"transactional.id": transaction} if transaction else {})
    producer = Producer(settings)
    if transaction:
        producer.init_transactions(20)
        producer.begin_transaction()
    for n in range(count):
        producer.produce(topic, key=key, value=json.dumps({"n": n}))
    assert producer.flush(20) == 0
    if transaction:
        producer.commit_transaction(20)


def judged(broker: Broker, went_in: str, came_out: str, **how: Any) -> Verdict:
    run = Described(inputs=[f"kafka:{went_in}"], outputs=[f"kafka:{came_out}"])
    verdict = check_described(run, Reading(kafka={"bootstrap.servers": broker.bootstrap}, **how), space=Space())
    assert isinstance(verdict, Verdict)
    return verdict


def refused(broker: Broker, went_in: str, came_out: str) -> FalkirkError:
    with pytest.raises(FalkirkError) as refusal:
        judged(broker, went_in, came_out)
    return refusal.value


def test_a_topic_that_cannot_be_seen_whole_is_not_judged(broker: Broker, tag: str) -> None:
    topics = Topics(Connection.of(broker.bootstrap))
    went_in, came_out = f"in-{tag}", f"out-{tag}"
    for name in (went_in, came_out):
        topics.create(name, 1, {})
        sent(broker, name, 3)
    assert judged(broker, went_in, came_out).guarantee == "exactly-once"

    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": tag})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(came_out, value=json.dumps({"n": 0}))
    assert producer.flush(20) == 0
    refusal = refused(broker, went_in, came_out)
    assert (refusal.condition, refusal.parameters["partitions"]) == ("TOPIC_UNSEEN", {0: 3})
    producer.commit_transaction(20)
    assert judged(broker, went_in, came_out).counts.duplicates == 1

    for name in (went_in, came_out):
        topics.delete_below(name, {0: 1})
    refusal = refused(broker, went_in, came_out)
    assert (refusal.condition, refusal.parameters["partitions"]) == ("TOPIC_UNSEEN", {0: 1})
    verdict = judged(broker, went_in, came_out, expired=True)
    assert "partition 0 begins at offset 1" in verdict.read[0].notes


def test_a_compacted_topic_is_judged_as_long_as_no_offset_is_missing(broker: Broker, tag: str) -> None:
    topics = Topics(Connection.of(broker.bootstrap))
    went_in, came_out = f"in-{tag}", f"out-{tag}"
    topics.create(went_in, 1, {})
    topics.create(came_out, 1, {"cleanup.policy": "compact"})
    for name in (went_in, came_out):
        sent(broker, name, 3, key="k")
    assert judged(broker, went_in, came_out).guarantee == "exactly-once"
    # The end of a transaction takes an offset, so that nobody knows any more whether a record is missing.
    sent(broker, went_in, 1, key="k")
    sent(broker, came_out, 1, key="k", transaction=tag)
    assert refused(broker, went_in, came_out).condition == "TOPIC_UNSEEN"
    assert judged(broker, went_in, came_out, expired=True).read[1].notes


class Meanwhile(RowsRead):
    """A sight during which records come, after all was read and before the verdict."""

    def __init__(self, broker: Broker, topic: str) -> None:
        super().__init__()
        self._where = broker, topic

    def check(self) -> None:
        sent(*self._where, 1)
        super().check()


def test_records_that_come_before_the_verdict_refuse_it(broker: Broker, tag: str) -> None:
    topics = Topics(Connection.of(broker.bootstrap))
    went_in, came_out = f"in-{tag}", f"out-{tag}"
    for name in (went_in, came_out):
        topics.create(name, 1, {})
        sent(broker, name, 3)
    for name in (went_in, came_out):
        with pytest.raises(FalkirkError) as refusal:
            judged(broker, went_in, came_out, sight=Meanwhile(broker, name))
        assert refusal.value.condition == "ROWS_CHANGED"
