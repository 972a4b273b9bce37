"""Triage: what is behind the error that ended a query, and whether a restart can help."""

import re

from falkirk.errors import DefinitionError, FalkirkError, LogError, SparkError
from falkirk.regions.context import Context
from falkirk.regions.live import LiveRegion
from falkirk.regions.rows import CO_PARTITIONING

#: In Spark's ANSI mode, its default, such a value fails the task, and would fail it again at each restart.
_FAILED_EXPRESSION = re.compile(
    r"\[(CAST_INVALID_INPUT|CAST_OVERFLOW|DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|ARITHMETIC_OVERFLOW|DATETIME_OVERFLOW|"
    r"INVALID_ARRAY_INDEX\w*|INVALID_INDEX\w*|NUMERIC_VALUE_OUT_OF_RANGE\w*|CANNOT_PARSE_TIMESTAMP)[^\n]{0,200}"
)
#: Spark found out that it does not run such a query when it planned the first batch, and would each time.
_REFUSED_QUERY = re.compile(
    r"\[(STREAMING_REAL_TIME_MODE\.\w+|AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION|"
    r"INVALID_NON_DETERMINISTIC_EXPRESSIONS)\][^\n]{0,300}"
)
#: Spark found a state file missing, torn, or with another checksum than it was written with.
STATE_NOT_LOADED = re.compile(r"CANNOT_LOAD_STATE_STORE|CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED")


def refuse_split_keys(live: LiveRegion) -> None:
    """Refuse a region whose input was found not to be partitioned as declared: a replay may meet it in another order.

    Raises: DefinitionError: `NOT_CO_PARTITIONED`, as the incarnation that found it.
    """
    condition, _, message = (live.last_ended() or "").partition(": ")
    if condition == "NOT_CO_PARTITIONED":
        raise _split_key(message, live)


def _split_key(message: str, live: LiveRegion) -> DefinitionError:
    source = live.region.source.topic
    return DefinitionError(
        "NOT_CO_PARTITIONED",
        message,
        where=source.where,
        hint="Leave out key=, and a sequencer hop orders the records; nothing wrong was released. Use a new home.",
        topic=source.topic,
    )


def fatal_of(error: Exception, live: LiveRegion, context: Context) -> FalkirkError | None:
    """Return the error to give up with when a restart can't help."""
    text, region = str(error), live.region
    source = region.source.topic.topic
    # The text holds the query's plan as well, so only the raised form of the marker counts: with numbers behind it.
    if split := re.search(rf"{CO_PARTITIONING}\|(\d+)\|(\d+)\|(.*)", text):
        return _split_key(
            f"topic {source!r} is said to be partitioned by {', '.join(region.source.topic.keys)}, but one key came "
            f"from partitions {split[1]} and {split[2]}: {split[3][:200]}",
            live,
        )
    if "OffsetOutOfRangeException" in text or "KAFKA_DATA_LOSS" in text:
        return LogError(
            "INPUT_EXPIRED",
            f"records of {source!r} that are still needed have been deleted.",
            where=region.source.topic.where,
            hint="Its retention must outlast the checkpoint interval and any downtime. Begin with a new home.",
            topic=source,
        )
    if failed := _FAILED_EXPRESSION.search(text):
        return DefinitionError(
            "EXPRESSION_FAILED",
            f"an expression of region {region.name!r} fails on a record: {failed[0]}",
            where=region.where,
            hint="Make it yield null instead (try_cast, try_divide, try_element_at, …), run again, and it goes on.",
            region=region.name,
            spark_condition=failed[1],
        )
    if refused := _REFUSED_QUERY.search(text):
        return SparkError(
            "QUERY_NOT_STARTED",
            f"Spark does not run region {region.name!r}: {refused[0]}",
            where=region.where,
            region=region.name,
            spark_condition=refused[1],
        )
    if "UnknownTopicOrPartition" in text and (gone := _missing((source, region.output.topic), context)):
        return LogError(
            "TOPIC_MISSING",
            f"{', '.join(gone)} is gone, while region {region.name!r} runs.",
            where=region.where,
            hint="What it held is lost to this home: create it anew, and begin with a new home.",
            topics=gone,
        )
    return None


def _missing(topics: tuple[str, ...], context: Context) -> tuple[str, ...]:
    """Return the topics that are gone. The broker says the same of a partition that is about to change its leader."""
    try:
        return tuple(topic for topic in topics if not context.topics.exists(topic))
    except LogError:
        return ()
