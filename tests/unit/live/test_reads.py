"""Reads: the options of Spark's reads of topics."""

from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from falkirk.kafka_client.connection import Connection
from falkirk.steps.sources import reads

CLIENT = Connection("one:9092").spark_options()
ALWAYS = {**CLIENT, "subscribe": "orders", "failOnDataLoss": "true", "includeHeaders": "false"}
COMMITTED = {**ALWAYS, "kafka.isolation.level": "read_committed"}


class Reader:
    """Stands for the reader of a session. Attributes: kind: what it reads. told: its options."""

    def __init__(self, kind: str) -> None:
        self.kind, self.told, self.source = kind, dict[str, Any](), ""

    def format(self, source: str) -> "Reader":
        self.source = source
        return self

    def options(self, **told: Any) -> "Reader":
        self.told |= told
        return self

    def load(self) -> "Reader":
        return self


class Session:
    """Stands for a session."""

    read, readStream = property(lambda self: Reader("job")), property(lambda self: Reader("query"))


SESSION = cast(SparkSession, Session())


def told(read: Any, kind: str) -> dict[str, Any]:
    assert (read.kind, read.source) == (kind, reads.KAFKA_SOURCE)
    return cast(dict[str, Any], read.told)


def test_a_job_reads_from_the_oldest_record_to_the_present_end() -> None:
    assert told(reads.spark_records(SESSION, CLIENT, "orders"), "job") == {**COMMITTED, "startingOffsets": "earliest"}


def test_a_job_reads_a_range() -> None:
    read = reads.spark_records(
        SESSION, CLIENT, "orders", first={0: 1, 1: 0}, last={0: 9, 1: 2}, more={"kafka.group.id": "mine"}
    )
    assert told(read, "job") == {
        **COMMITTED,
        "startingOffsets": '{"orders": {"0": 1, "1": 0}}',
        "endingOffsets": '{"orders": {"0": 9, "1": 2}}',
        "kafka.group.id": "mine",
    }


def test_a_job_may_read_headers_and_open_transactions() -> None:
    read = reads.spark_records(SESSION, CLIENT, "orders", headers=True, committed=False)
    assert told(read, "job") == {**ALWAYS, "startingOffsets": "earliest", "includeHeaders": "true"}


@pytest.mark.parametrize("may_expire", [False, True])
def test_a_query_reads_on(may_expire: bool) -> None:
    read = reads.stream(SESSION, CLIENT, "orders", {0: 5}, headers=True, may_expire=may_expire)
    assert told(read, "query") == {
        **COMMITTED,
        "startingOffsets": '{"orders": {"0": 5}}',
        "includeHeaders": "true",
        "failOnDataLoss": "false" if may_expire else "true",
    }


def test_a_query_may_begin_behind_deleted_records() -> None:
    read = reads.stream(SESSION, CLIENT, "orders", {0: 5}, may_expire=True, skips_deleted=True)
    alone = reads.stream(SESSION, CLIENT, "orders", {0: 5}, may_expire=True)
    assert told(read, "query") == {**told(alone, "query"), "skipDeleted": "true"}
