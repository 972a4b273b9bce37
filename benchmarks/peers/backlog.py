"""Backlog: fills a topic with records and measures how fast a system that runs works them off."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.job import PARTITIONS, Records
from falkirk.errors import SparkError

LIMIT_S = 120.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Results in the sink, and processor seconds of the system until then. Args: at_s: on the monotonic clock."""

    at_s: float
    results: int
    processor_s: float


def fill(bootstrap: str, topic: str, records: Records) -> None:
    """Write the records into a topic."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000, "log_level": 0}
    )
    for _, key, value, _ in records:
        while True:
            try:
                producer.produce(topic, key=key, value=value)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def sampled(bootstrap: str, sink: str, number: int, processor_s: Callable[[], float]) -> list[Sample]:
    """Sample until the sink has `number` results, also those of open transactions.

    Raises: SparkError: `BENCH_INCOMPLETE`: this takes longer than `LIMIT_S`.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-backlog",
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )
    samples: list[Sample] = []
    end_s = time.monotonic() + LIMIT_S
    try:
        while not samples or samples[-1].results < number:
            if time.monotonic() > end_s:
                raise SparkError(
                    "BENCH_INCOMPLETE",
                    f"{samples[-1].results} of {number} results after {LIMIT_S:g} s.",
                    hint="Run the bench on an idle machine.",
                )
            ends = [consumer.get_watermark_offsets(TopicPartition(sink, p), timeout=10)[1] for p in range(PARTITIONS)]
            samples.append(Sample(at_s=time.monotonic(), results=sum(ends), processor_s=processor_s()))
            time.sleep(_POLL_S)
    finally:
        consumer.close()
    return samples


def speed(samples: Sequence[Sample]) -> dict[str, float]:
    """Return records/s and records per processor second of the second half, when the system is warm."""
    last = samples[-1]
    first = next(sample for sample in samples if sample.results >= last.results / 2)
    results, elapsed_s = last.results - first.results, last.at_s - first.at_s
    used_s = last.processor_s - first.processor_s
    if not results or elapsed_s <= 0 or used_s <= 0:
        return {}
    return {"records_per_s": round(results / elapsed_s), "records_per_core_s": round(results / used_s)}
