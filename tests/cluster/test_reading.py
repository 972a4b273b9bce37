"""A reader that follows a topic under load: each look ends, and has all that was there when it began."""

import threading

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from falkirk.spark_setup.broker import Broker
from tests.cluster import reading
from tests.cluster.reading import Reading


def test_a_look_ends_while_records_keep_coming(broker: Broker, tag: str, monkeypatch) -> None:
    """A reader that waited until no partition had a next record did not end: one of two always had."""
    monkeypatch.setattr(reading, "SILENCE_S", 20.0)
    topic, over, written = f"steady-{tag}", threading.Event(), [0]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})

    def write() -> None:
        while not over.wait(0.002):
            producer.produce(topic, str(written[0]).encode(), partition=written[0] % 2)
            producer.flush()
            written[0] += 1

    thread, follower = threading.Thread(target=write), Reading(broker.bootstrap, topic, int)
    thread.start()
    try:
        looks = 0
        while looks < 20 or written[0] <= 100:  # a loaded broker takes fewer records in 20 looks
            known, looks = written[0], looks + 1
            assert set(range(known)) <= set(follower.all())
    finally:
        over.set()
        thread.join()
        follower.close()
