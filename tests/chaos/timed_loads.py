"""Loads of records with event times for the kill tests of joins and orders, and the records that end them."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from confluent_kafka import Producer

from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import Load
from tests.duplicates import BEGAN
from tests.timed_streams import ends


class Side(Load):
    """Records with times that go back by up to nine seconds. An id is in several partitions.

    Attributes: per_s: the number of records per second of event time.
    """

    per_s = 10

    def record(self, number: int) -> tuple[str | None, dict[str, Any]]:
        back_s = self._random.choice([0, 0, 0, 1, 3, 9])
        at = BEGAN + timedelta(seconds=number / self.per_s - back_s)
        return None, {"id": f"i{self._random.randrange(12)}", "at": at.isoformat(), "n": number + 1}


def end_times(broker: Broker, sent: Mapping[str, int]) -> None:
    """Move the times of all partitions far ahead. Args: sent: the number of records in each topic."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for topic, last in sent.items():
        for partition, records in ends(last).items():
            for record in records:
                producer.produce(topic, value=json.dumps(record), partition=partition)
    assert producer.flush(60) == 0
