"""Triage: finds the cause of the error that ended a query, and decides whether a restart can help."""

import re
from dataclasses import dataclass
from pathlib import Path

from falkirk.errors import DefinitionError, FalkirkError, LogError
from falkirk.errors.conditions.plan import INPUT_EXPIRED
from falkirk.errors.conditions.spark import (
    EXPRESSION_FAILED,
    FUNCTION_FAILED_LIVE,
    PYTHON_UNSUITABLE,
    QUERY_NOT_STARTED_SPARK,
    TOPIC_MISSING_DELETED,
)
from falkirk.errors.location import SourceLocation
from falkirk.plan.region import Region
from falkirk.platform.disk import is_full
from falkirk.runtime.spark.causes import FAILED_EXPRESSION, with_causes
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.steps.dataframes.names import CO_PARTITIONING
from falkirk.steps.dataframes.user_function import FAILED
from falkirk.steps.live.stamped import PLACES_OF_SOURCE

#: The failed SQL of the user as Spark quotes it. Spark shortens a long one at its ends.
_QUOTED = re.compile(r"== SQL \(line \d+, position \d+\) ==\n(?:\.\.\.)?([^\n]+?)(?:\.\.\.)?\n")
#: A Python function must not be called again (PythonCalls.java). Its text has the record, and the traceback.
_REFUSED_CALL = re.compile(r"FALKIRK_PYTHON_REFUSED\|(.*)", re.DOTALL)
_POISON_MAX = 2_000
#: The Python of an executor can't run the function (on_executor.py). A restart would begin it there again.
_UNSUITABLE_PYTHON = re.compile(r"FALKIRK_PYTHON_UNSUITABLE\|(.*)", re.DOTALL)
#: Spark refused the query when it planned the first batch, and would refuse it after each restart.
_REFUSED_QUERY = re.compile(
    r"\[(STREAMING_REAL_TIME_MODE\.\w+|AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION|"
    r"INVALID_NON_DETERMINISTIC_EXPRESSIONS)\][^\n]{0,300}"
)
#: Spark could not load a state. Its error depends on the place where it noticed this.
_STATE_NOT_LOADED = re.compile(
    r"\[(CANNOT_LOAD_STATE_STORE\.\w+|CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED|"
    r"STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED)\]"
)
#: The reason lies elsewhere, though Spark may call the file unreadable or missing: a full disk, memory, a lock of the
#: state store, a thread that was interrupted, too many open files, rights, a device or server that does not answer.
_PASSING = re.compile(
    r"\.UNRELEASED_THREAD_ERROR\]|_OUT_OF_MEMORY\]|OutOfMemoryError|Cannot allocate memory|InterruptedException|"
    r"InterruptedIOException|ClosedByInterruptException|ClosedChannelException|TimeoutException|"
    r"Too many open files|Permission denied|AccessDeniedException|Operation not permitted|Input/output error|"
    r"Read-only file system|Stale file handle|Connection (?:refused|reset)|s3a\.AWS\w+Exception|SdkClientException"
)
#: A file is missing, or has other content than Spark wrote: by Spark's own conditions and checksums, Hadoop's,
#: those of the compression, and RocksDB's.
_DAMAGED = re.compile(
    r"\[(?:CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED|STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED|"
    r"CANNOT_LOAD_STATE_STORE\.(?:CANNOT_READ_STREAMING_STATE_FILE|CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT|"
    r"CANNOT_READ_CHECKPOINT|CANNOT_READ_DELTA_FILE_\w+|CANNOT_READ_(?:MISSING_)?SNAPSHOT_FILE\w*|"
    r"INVALID_CHECKPOINT_LINEAGE|UNEXPECTED_FILE_SIZE))\]"
    r"|Caused by: (?:java\.io\.(?:EOFException|UTFDataFormatException|StreamCorruptedException|"
    r"IOException: Stream is corrupted)|java\.util\.zip\.\w+Exception|com\.github\.luben\.zstd\.\w+|"
    r"org\.apache\.hadoop\.fs\.ChecksumException|org\.rocksdb\.RocksDBException: Corruption|"
    r"com\.fasterxml\.jackson\.core\.\w+)[^\n]{0,200}"
)
_MISSING = (
    r"Caused by: (?:java\.io\.FileNotFoundException|java\.nio\.file\.NoSuchFileException): [^\n]*{folder}[^\n]{{0,200}}"
)
_STATE_FILE = r"{folder}/state/(?:[\w-]+/)*(\d+)_[\w-]+\.(?:changelog|zip)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The reason why a checkpoint can't be loaded, now or later.

    Args: first: the oldest checkpoint that depends on the damaged file, if Spark names the file. reason: Spark's error.
    """

    first: int | None
    reason: str


def damage_of(error: Exception, folder: str | Path) -> Damage | None:
    """Return the proof that the checkpoint with which a query began is damaged; None: there is none.

    All other causes that keep Spark from loading a state may pass, so the same checkpoint is tried again.

    Args: folder: the folder of the checkpoint.
    """
    text = with_causes(error)
    if not _STATE_NOT_LOADED.search(text) or is_full(error) or _PASSING.search(text):
        return None
    place = re.escape(str(folder))
    proof = _DAMAGED.search(text) or re.search(_MISSING.format(folder=place), text)
    if proof is None:
        return None
    # Batch n - 1 writes the file of version n. All later checkpoints up to the restored one read this file too.
    versions = [int(found) for found in re.findall(_STATE_FILE.format(folder=place), text)]
    return Damage(first=min(versions) - 1 if versions else None, reason=proof[0].removeprefix("Caused by: "))


def refuse_split_keys(live: LiveRegion) -> None:
    """Refuse a region if its input is not partitioned as declared, because a replay may read it in another order.

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
        hint="Leave out key=, so that a sequencer hop orders the records, and use a new home and a new output topic.",
        topic=source.topic,
    )


def _published(live: LiveRegion) -> str:
    """Return whether the split key may have two results of one version.

    The state of a key has its partition, but only from its first record after the checkpoint on. The barrier knows
    published results by their channel and not by their key. So a replay may begin a key with a record of the other
    partition, and publish the result of that one, too.
    """
    assert live.opening is not None, "its query ran"
    if not live.opening.released:
        return "No wrong result was published."
    return (
        f"When the region failed before, it had published results that no checkpoint covered "
        f"({live.opening.released}), and it repeated their input. So results of keys with records in several "
        "partitions may contradict each other."
    )


def _places(region: Region, *numbers: int) -> str:
    """Return partitions as text. Args: numbers: as in `Frame.place`."""
    if not region.others:
        return "partitions " + " and ".join(map(str, numbers))
    divided = [divmod(number, PLACES_OF_SOURCE) for number in numbers]
    return " and ".join(f"partition {p} of {region.sources[source].topic.topic}" for source, p in divided)


def _replaced(region: Region, context: Context) -> LogError | None:
    """Return the error that a topic of a region was replaced, if one was."""
    try:
        for each in region.sources:
            context.topics.exists(each.topic.topic)
    except LogError as error:
        return error if error.condition == "TOPIC_REPLACED" else None
    return None


def _has_partition(text: str, topic: str) -> bool:
    """Return whether an error names a partition of a topic. Its text has the query's plan too, with all topics."""
    return re.search(rf"(?<![\w.-]){re.escape(topic)}-\d+(?![\w.-])", text) is not None


def fatal_of(error: Exception, live: LiveRegion, context: Context) -> FalkirkError | None:
    """Return the error that ends the application, if a restart can't help."""
    text, region = str(error), live.region
    # The text contains the query's plan too, so only the raised form of the marker counts, which has numbers.
    if split := re.search(rf"{CO_PARTITIONING}\|(\d+)\|(\d+)\|(.*)", text):
        declared = " and ".join(repr(each.topic.topic) for each in region.sources)
        return _split_key(
            f"topic {declared} is declared as partitioned by {', '.join(region.source.topic.keys)}, but one key came "
            f"from {_places(region, int(split[1]), int(split[2]))}: {split[3][:200]}. {_published(live)}",
            live,
        )
    if "OffsetOutOfRangeException" in text or "KAFKA_DATA_LOSS" in text:
        named = next(
            (each.topic for each in region.sources if _has_partition(text, each.topic.name)), region.source.topic
        )
        return _replaced(region, context) or INPUT_EXPIRED.error(where=named.where, topic=named.topic)
    if refusal := _REFUSED_CALL.search(text):
        return FUNCTION_FAILED_LIVE.error(where=_of_python(region), region=region.name, poison=_poison(refusal[1]))
    if unsuitable := _UNSUITABLE_PYTHON.search(text):
        reason = _poison(unsuitable[1]).rstrip(".")
        return PYTHON_UNSUITABLE.error(where=_of_python(region), region=region.name, reason=reason)
    if failed := FAILED_EXPRESSION.search(text):
        return EXPRESSION_FAILED.error(
            where=_place_of(text, region), region=region.name, spark_condition=failed[1], failed=failed[0]
        )
    if refused := _REFUSED_QUERY.search(text):
        return QUERY_NOT_STARTED_SPARK.error(
            where=region.where, region=region.name, spark_condition=refused[1], refused=refused[0]
        )
    if "UnknownTopicOrPartition" in text and (gone := _missing(region, context)):
        return TOPIC_MISSING_DELETED.error(where=region.where, topics=gone, region=region.name)
    return None


def _of_python(region: Region) -> SourceLocation:
    """Return the line of the step that calls Python."""
    return next((step.where for step in region.steps() if step.operation in ("map_rows", "stateful")), region.where)


def _poison(text: str) -> str:
    """Return what the worker said of the record, without the text that Spark adds."""
    return text.partition("\n\tat ")[0].removeprefix(f"{FAILED} ").strip()[:_POISON_MAX]


def _place_of(text: str, region: Region) -> SourceLocation:
    """Return the line of the step whose SQL an error quotes, or else where the region was declared."""
    quoted = _QUOTED.findall(text)
    steps = (s for s in region.steps() if any(sql in str(a) for sql in quoted for a in s.arguments))
    return next((step.where for step in steps), region.where)


def _missing(region: Region, context: Context) -> tuple[str, ...]:
    """Return the topics that were deleted. The broker also reports a partition as unknown while its leader changes."""
    topics = (*(each.topic.topic for each in region.sources), region.output.topic)
    try:
        return tuple(topic for topic in topics if not context.topics.exists(topic))
    except LogError:
        return ()
