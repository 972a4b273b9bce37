"""Unseen records: past or present records of a topic that a reader does not get, even from the topic's beginning.

A duplicate may have been among records that expired or that compaction removed. It may be in a transaction that is
still open. A verdict on the other records would not be a verdict on the run.
"""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # these names are public
    AdminClient,
    ConfigResource,
    ResourceType,
)

from falkirk.checker.topics import OffsetBounds, bounds_of
from falkirk.errors import LogError
from falkirk.errors.conditions.checker import TOPIC_UNREADABLE, TOPIC_UNSEEN


def refuse_unseen(
    config: Mapping[str, Any], topic: str, bounds: OffsetBounds, records: int, *, allowed: bool = False
) -> list[str]:
    """Return notes on a topic of which `records` records were read within `bounds`.

    Args: allowed: whether retention or compaction may have removed records.
    Raises: LogError: `TOPIC_UNSEEN`: the topic has, or had, records that were not read. `TOPIC_UNREADABLE`.
    """
    opened = open_partitions(config, topic, bounds)
    if opened:
        raise _unseen(topic, "a transaction is still open", opened, "Run the checker when no record is in flight.")
    cut = {partition: first for partition, (first, _) in bounds.items() if first}
    if cut and not allowed:
        hint = "Increase the topic's retention; `falkirk verify run` judges the remaining records with --expired."
        raise _unseen(topic, "its first records were deleted", cut, hint)
    # If no offset is missing, compaction has not removed anything yet.
    holes = records < sum(end - first for first, end in bounds.values())
    compacted = is_compacted(config, topic) if holes else False
    if compacted and holes and not allowed:
        hint = "Switch compaction off before a run; `falkirk verify run` judges the remaining records with --expired."
        raise _unseen(topic, "it is compacted, and offsets are missing in it", {}, hint)
    notes = [f"partition {partition} begins at offset {first}" for partition, first in sorted(cut.items())]
    if compacted is not False:
        notes.append(
            "offsets are missing in it" + ("" if compacted else ", and the broker does not say whether it is compacted")
        )
    return notes


def moved(config: Mapping[str, Any], topic: str, bounds: OffsetBounds) -> str | None:
    """Return how the topic has changed since it was read within `bounds`, or None."""
    now = bounds_now(config, topic)
    return None if now == bounds else f"topic {topic} moved from offsets {bounds} to {now}"


def open_partitions(config: Mapping[str, Any], topic: str, bounds: OffsetBounds) -> dict[int, int]:
    """Return the partitions with uncommitted records, each with the offset at which these begin."""
    if config.get("isolation.level") == "read_uncommitted":
        return {}
    all_records = bounds_now({**config, "isolation.level": "read_uncommitted"}, topic)
    return {partition: end for partition, (_, end) in bounds.items() if end < all_records[partition][1]}


def is_compacted(config: Mapping[str, Any], topic: str, timeout_s: float = 5.0) -> bool | None:
    """Return whether compaction removes records from the topic; None if the broker does not say in this time."""
    wanted = ConfigResource(ResourceType.TOPIC, str(topic))  # the client accepts no subclass of str here
    client = AdminClient({"log_level": 0, **config})  # must live until the answer
    try:
        asked = client.describe_configs([wanted], request_timeout=timeout_s)
        settings = asked[wanted].result(timeout_s + 1)
    except (KafkaException, TimeoutError):
        return None
    return "compact" in settings["cleanup.policy"].value


def bounds_now(config: Mapping[str, Any], topic: str) -> OffsetBounds:
    """Return the topic's present first and end offsets by partition.

    Raises: LogError: `TOPIC_MISSING`, `TOPIC_UNREADABLE`.
    """
    consumer = Consumer({"group.id": f"falkirk-check-{uuid4()}", **config, "enable.auto.commit": False})
    try:
        return bounds_of(consumer, topic)
    except KafkaException as cause:
        raise TOPIC_UNREADABLE.error(where=topic, topic=topic, cause=cause) from cause
    finally:
        consumer.close()


def _unseen(topic: str, why: str, partitions: dict[int, int], hint: str) -> LogError:
    where = f" (partitions and offsets: {partitions})" if partitions else ""
    return TOPIC_UNSEEN.error(where=topic, topic=topic, partitions=partitions, why=why, marked=where, advice=hint)
