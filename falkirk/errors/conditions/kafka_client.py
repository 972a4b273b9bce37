"""Conditions of `kafka_client`."""

from falkirk.errors import DefinitionError, InternalError, LogError
from falkirk.errors.condition import Condition

KAFKA_REFUSED = Condition(
    "KAFKA_REFUSED",
    LogError,
    "Kafka returned an error while {doing}: {reason}.",
)
BROKER_AWAY = Condition(
    "BROKER_AWAY",
    LogError,
    "Kafka did not answer while {doing}{said}.",
    hint="Check that Kafka is running and that this machine can reach it.",
    certainty="maybe",
)
TOPIC_MISSING = Condition(
    "TOPIC_MISSING",
    LogError,
    "the topic {topic} does not exist.",
    hint="{advice}",
)
ACCESS_REFUSED = Condition(
    "ACCESS_REFUSED",
    LogError,
    "Kafka denied access while {doing}: {reason}.",
    hint="Check the security options of the connection and the rights of its user.",
)
HEADER_MALFORMED = Condition(
    "HEADER_MALFORMED",
    LogError,
    "{shown!r} is not a header of Falkirk.",
    hint="Find the other program that writes headers with this name, and stop it.",
)
RANGE_MISMATCH = Condition(
    "RANGE_MISMATCH",
    InternalError,
    "the range begins in partitions {first} but ends in partitions {last}.",
)
RANGE_EXPIRED = Condition(
    "RANGE_EXPIRED",
    LogError,
    "records that Falkirk still needs were deleted from partition {partition}.",
    hint="Set the topic's retention to more than the longest time until its records are read again.",
)
RANGE_NOT_THERE = Condition(
    "RANGE_NOT_THERE",
    LogError,
    "partition {partition} ends at {end}, before position {last}.",
    hint="Check whether the topic was deleted and created again.",
)
SECRET_MISSING = Condition(
    "SECRET_MISSING",
    DefinitionError,
    "a secret is empty: {origin} is empty or not set.",
    hint="Set it before the start.",
)
SECRET_NOT_PICKLED = Condition(
    "SECRET_NOT_PICKLED",
    DefinitionError,
    "a secret that was given as plain text can't be pickled.",
    hint='Give it as "env:NAME" to use the connection in other processes.',
)
PARTITION_COUNT_DIFFERS = Condition(
    "PARTITION_COUNT_DIFFERS",
    LogError,
    "the topic {topic} has {found} partitions, not {wanted}.",
    hint="Use another topic or delete this one; otherwise records of a key would move to other partitions.",
)
TOPIC_REPLACED = Condition(
    "TOPIC_REPLACED",
    LogError,
    "the topic {topic} was deleted and created again since this home first used it.",
    hint="Start with a new home and new output topics.",
)
