"""Reads: the only module that builds Spark's reads of topics, so that all of them see the same records.

Jobs and queries differ only in the arguments. `client` is the result of `environment.spark.kafka_options` for the
cluster of the topic: the address of the brokers, and secrets. `topic` is the id of the topic.
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from falkirk.spark_setup.lists import with_options
from falkirk.spark_setup.spark import KAFKA_SOURCE
from falkirk.theory.ids import topic_name
from falkirk.theory.offsets import offsets_to_json


def spark_records(
    session: SparkSession,
    client: Mapping[str, str],
    topic: str,
    *,
    first: Mapping[int, int] | None = None,
    last: Mapping[int, int] | None = None,
    headers: bool = False,
    committed: bool = True,
    more: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the records [first, last) of a topic, with the columns of Spark's Kafka source.

    Args: first: the first offset, per partition; None: the oldest of each. last: the end, per partition; None: where
        each ends when a job reads them. headers: with the column `headers`. committed: as in `_options`. more: further
        options.
    """
    begin = "earliest" if first is None else _positions(topic, first)
    end = {} if last is None else {"endingOffsets": _positions(topic, last)}
    options = _options(client, topic, begin, headers=headers, committed=committed)
    return with_options(session.read.format(KAFKA_SOURCE), {**options, **end, **(more or {})}).load()


def stream(
    session: SparkSession,
    client: Mapping[str, str],
    topic: str,
    first: Mapping[int, int],
    *,
    headers: bool = False,
    may_expire: bool = False,
    skips_deleted: bool = False,
) -> DataFrame:
    """Return the records of a topic as they arrive.

    Args: first: the first offset, per partition. headers: with the column `headers`. may_expire: continue if records
        were deleted before they were read; Real-time Mode ignores it. skips_deleted: the stream begins behind
        deleted records, in each mode. For that it asks the broker.
    """
    options = _options(client, topic, _positions(topic, first), headers=headers, may_expire=may_expire)
    if skips_deleted:
        options["skipDeleted"] = "true"
    return session.readStream.format(KAFKA_SOURCE).options(**options).load()


def _options(
    client: Mapping[str, str],
    topic: str,
    begin: str,
    *,
    headers: bool,
    committed: bool = True,
    may_expire: bool = False,
) -> dict[str, Any]:
    """Return the options of a read.

    Args: committed: leave out records of aborted and of open transactions.
    """
    isolation = {"kafka.isolation.level": "read_committed"} if committed else {}
    return {
        **client,
        "subscribe": topic_name(topic),
        "startingOffsets": begin,
        "includeHeaders": str(headers).lower(),
        "failOnDataLoss": str(not may_expire).lower(),
        **isolation,
    }


def _positions(topic: str, positions: Mapping[int, int]) -> str:
    return json.dumps({topic_name(topic): offsets_to_json(positions)})
