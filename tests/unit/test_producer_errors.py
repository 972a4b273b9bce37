"""Failures of a query after which the accepted records need not be a prefix of the sent ones."""

import pytest

from falkirk.regions.live import _is_producer_error

COMMON, CLIENTS = "org.apache.kafka.common.errors", "org.apache.kafka.clients"


@pytest.mark.parametrize(
    ("text", "unsafe"),
    [
        (f"Job aborted: {COMMON}.OutOfOrderSequenceException: out of order", True),
        (f"{COMMON}.TimeoutException: Expiring 3 record(s) for counts-0: 120000 ms has passed", True),
        ("org.apache.kafka.common.KafkaException: cannot perform send because at least one previous one failed", True),
        (f"{COMMON}.SomethingOfALaterReleaseException: who knows", True),
        (f"{CLIENTS}.consumer.OffsetOutOfRangeException: Fetch position is out of range", False),
        (f"{COMMON}.UnknownTopicOrPartitionException: This server does not host this topic-partition", False),
        ("[USER_RAISED_EXCEPTION] FALKIRK_CO_PARTITIONING|0|1|{}", False),
        ("ExecutorLostFailure (executor 1 exited)", False),
        (f"{COMMON}.WakeupException; {COMMON}.CorruptRecordException", True),
    ],
)
def test_any_error_of_kafkas_but_a_readers_is_taken_for_the_producers(text: str, unsafe: bool) -> None:
    assert _is_producer_error(text) is unsafe
