"""Faults: which errors Falkirk waits out, and which it reports at once."""

import pytest
from confluent_kafka import KafkaError

from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.faults import ClientErrors, fault


@pytest.mark.parametrize(
    ("code", "condition"),
    [
        (KafkaError._NOENT, "BROKER_AWAY"),  # "No leaders found", observed after a broker was killed and restarted
        (KafkaError.LEADER_NOT_AVAILABLE, "BROKER_AWAY"),
        (KafkaError._TRANSPORT, "BROKER_AWAY"),
        (-137, "BROKER_AWAY"),  # a broker died under a request, and the cluster's next metadata did not list it
        (KafkaError._MSG_TIMED_OUT, "BROKER_AWAY"),
        (KafkaError.NOT_COORDINATOR, "BROKER_AWAY"),
        (KafkaError.NOT_ENOUGH_REPLICAS, "BROKER_AWAY"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "ACCESS_REFUSED"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "TOPIC_MISSING"),
        (KafkaError.POLICY_VIOLATION, "KAFKA_REFUSED"),
    ],
)
def test_a_broker_that_comes_back_is_waited_for(code: int, condition: str) -> None:
    error = fault(KafkaError(code), "deleting records", Connection("broker:9092"), ClientErrors(), "events")
    assert error.condition == condition
    assert condition == "TOPIC_MISSING" or error.parameters["topic"] == "events"
