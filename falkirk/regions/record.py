"""Record: what a region's checkpoint rests on, written before its first start and compared at each later one."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql.types import StructType

from falkirk.coordinator.store import RegionRecord
from falkirk.errors import HomeError, LogError
from falkirk.plan.batch import SENDS, Batch
from falkirk.plan.fingerprint import KEYED_STEP, NOT_ALWAYS_RECORDED, with_sorted_lists
from falkirk.plan.region import Region
from falkirk.regions.context import Context
from falkirk.regions.outputs import last_own
from falkirk.regions.rows import OutputTopic

#: So far back is looked for records of this home in a topic that somebody else may have filled.
_LOOKED_BACK = 100


def record_of(region: Region, context: Context, output: Mapping[str, OutputTopic], folder: Path) -> RegionRecord:
    """Return what the checkpoint rests on, created before the first start and compared at each later one."""
    store, topics = context.home.store, context.topics
    source = region.source.topic
    partitions = {name: topic.partitions for name, topic in output.items()}
    partitions[source.topic] = topics.facts(source.topic).partitions
    record = store.region(region.name)
    if record is None:
        if (folder / "metadata").exists():
            raise HomeError(
                "HOME_DAMAGED",
                f"region {region.name!r} has a checkpoint but no record of decisions.",
                where=folder,
                hint="Restore decisions.db from a backup, or use a new home.",
            )
        outside = () if region.released_to is None else (region.released_to.topic,)
        refuse_own_records(region, context, (*output, *outside))
        first = topics.first_positions if source.starting == "earliest" else topics.end_positions
        record = RegionRecord(
            fingerprint=region.fingerprint,
            start_offsets={source.topic: first(source.topic)},
            partitions=partitions,
        )
        store.create_region(region.name, record, {name: topics.end_positions(name) for name in output})
        return record
    compare(region, record, partitions)
    return record


def refuse_own_records(region: Region | Batch, context: Context, written: Iterable[str]) -> None:
    """Refuse a region that is new to this home but whose output topics this home has written: a renamed sink, or batch.

    Raises: HomeError: `APPLICATION_CHANGED`.
    """
    for name in written:
        oldest, ends = context.topics.first_positions(name), context.topics.end_positions(name)
        found, _ = last_own(context, name, oldest, ends, reach=_LOOKED_BACK)
        if found:
            raise renamed(region, name)


def renamed(region: Region | Batch, written: str) -> HomeError:
    """Return the error that a region is new to a home that has written its output."""
    return HomeError(
        "APPLICATION_CHANGED",
        f"region {region.name!r} is new to this home, but the home has written {written!r} before.",
        where=region.where,
        hint="Give it, and its sink, their former names back, or begin with a new home and a new output.",
        changed={"region": (None, region.name)},
    )


def _fits(name: str, before: str | None, now: str) -> bool:
    if name == KEYED_STEP and before is not None:
        return with_sorted_lists(before) == now  # of earlier versions these are in any order
    if name != SENDS:
        return before == now or (before is None and name in NOT_ALWAYS_RECORDED)
    # Of an epoch from before, a column that is new has nulls.
    return before is None or _columns(before) <= _columns(now)


def _columns(ddl: str) -> set[tuple[str, str]]:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType), "it was made of one"
    return {(field.name, field.dataType.simpleString()) for field in schema.fields}


def compare(region: Region | Batch, record: RegionRecord, partitions: dict[str, int]) -> None:
    """See that a region still fits what its checkpoints rest on.

    Raises: HomeError: `APPLICATION_CHANGED`. LogError: `PARTITIONS_CHANGED`.
    """
    refuse_partitions(region, record.partitions, partitions)
    changed = {
        name: (record.fingerprint.get(name), value)
        for name, value in region.fingerprint.items()
        if not _fits(name, record.fingerprint.get(name), value)
    }
    if changed:
        what = "; ".join(f"{name}: was {old}, is {new}" for name, (old, new) in changed.items())
        raise HomeError(
            "APPLICATION_CHANGED",
            f"region {region.name!r} no longer fits its checkpoint: {what}.",
            where=region.where,
            hint="Undo the change, or begin with a new home and new outputs (it reads its input from the start).",
            changed=changed,
        )


def refuse_partitions(region: Region | Batch, before: Mapping[str, int], now: Mapping[str, int]) -> None:
    """See that topics have as many partitions as when the home was made. Raises: LogError: `PARTITIONS_CHANGED`."""
    for topic, count in now.items():
        if before.get(topic, count) != count:
            raise LogError(
                "PARTITIONS_CHANGED",
                f"topic {topic!r} has {count} partitions and had {before[topic]} when this home was made: records of a "
                "key would move to another channel.",
                where=region.where,
                hint="Begin with a new home and a new output topic.",
                topic=topic,
                before=before[topic],
                now=count,
            )
