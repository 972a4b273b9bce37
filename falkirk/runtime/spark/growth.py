"""Growth: the topics that a list or a pattern gets between two starts.

A batch reads a new topic from its earliest record, so no record is missed. The home records this position, together
with the new list, in one write before the first epoch that reads the topic. In each earlier epoch the topic has an
empty range that ends there (`runtime/spark/epochs/log.py`), so every epoch and state stays valid.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace

from falkirk.kafka_client.internal import INTERNAL
from falkirk.kafka_client.topics import Topics
from falkirk.plan.batch import Batch
from falkirk.plan.fingerprint import READS
from falkirk.recovery.decision_store import RegionRecord
from falkirk.theory.ids import LogId

log = logging.getLogger("falkirk")


def grown(batch: Batch, record: RegionRecord, topics: Topics, partitions: Mapping[LogId, int]) -> RegionRecord:
    """Return the record of a batch with the topics that its lists have got since the last start; else `record`.

    Args: partitions: those of all topics. Raises: LogError.
    """
    before, now = record.fingerprint.get(READS, ""), batch.fingerprint[READS]
    of_lists = {given.log for given in batch.inputs if given.topic is not None and given.list_name is not None}
    added = [LogId(name) for name in _items(now) if name not in _items(before)]
    if not added or not of_lists.issuperset(added) or [n for n in _items(now) if n not in added] != _items(before):
        return record
    starts = {topic: topics.first_positions(topic) for topic in added}
    return replace(
        record,
        fingerprint={**record.fingerprint, READS: now},
        start_offsets={**record.start_offsets, **starts},
        partitions={**record.partitions, **{topic: partitions[topic] for topic in added}},
    )


def report_growth(batch: Batch, before: RegionRecord, now: RegionRecord) -> None:
    """Log which topics a batch reads for the first time."""
    added = sorted(now.start_offsets.keys() - before.start_offsets.keys())
    log.info("%s: reads %s from the earliest record on, for the first time.", batch.name, ", ".join(added))


def advice_on_reads(before: str | None, now: str) -> str:
    """Return what to do if a region reads other topics than its home has recorded, after the general advice."""
    before = before or now
    gone = [name for name in _items(before) if name not in _items(now) and not name.startswith(INTERNAL)]
    if gone:
        return f" A list or a pattern may get topics, but lose none: {', '.join(gone)}."
    if all(name in _items(before) or name.startswith(INTERNAL) for name in _items(now)):
        return ""  # only hops and held logs differ: the general advice is enough
    return (
        " The topics of a live region, and of a batch with by=, can't grow. In a new home, a stream may get "
        'topics with engine="micro-batch".'
    )


def _items(reads: str) -> list[str]:
    return reads.split(", ")
