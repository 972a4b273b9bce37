"""Record: what a region's checkpoint rests on, written before its first start and compared at each later one."""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql.types import StructType

from falkirk.coordinator.store import RegionRecord, Store
from falkirk.errors import HomeError, LogError
from falkirk.plan.batch import SENDS, STATE, Batch
from falkirk.plan.fingerprint import DECIDED_BY, KEYED_STEP, NOT_ALWAYS_RECORDED, STEPS, with_sorted_lists
from falkirk.plan.region import Region
from falkirk.regions.context import Context
from falkirk.regions.outputs import last_own
from falkirk.regions.rows import OutputTopic

log = logging.getLogger("falkirk")
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
    compare(region, completed(region, record, store), partitions)
    report_steps(region, record, store)
    return record


def completed(region: Region | Batch, record: RegionRecord, store: Store) -> RegionRecord:
    """Return a record with the parts that the version of Falkirk that made the home has not recorded: they are as at
    the first start under a version that knows them, and are compared from then on."""
    known = store.newest_decision(_PARTS, region.name)
    parts = {**({} if known is None else known.content), **record.fingerprint}
    missing = {name: v for name, v in region.fingerprint.items() if name in NOT_ALWAYS_RECORDED - parts.keys()}
    if missing:
        log.warning(
            "%s: an earlier version of Falkirk made this home, and recorded nothing of: %s. If that has changed since "
            "the last start, results may not fit together. It is recorded and compared from now on.",
            region.name, ", ".join(missing),
        )  # fmt: skip
        number = 0 if known is None else known.number + 1
        store.record_decision(_PARTS, region.name, number, {**({} if known is None else known.content), **missing})
    return replace(record, fingerprint={**parts, **missing})


def report_steps(region: Region, record: RegionRecord, store: Store) -> bool:
    """Log that the steps of a region are others than at the last start; return whether they are."""
    known = store.newest_decision(STEPS, region.name)
    before = record.fingerprint.get(STEPS) if known is None else str(known.content["are"])
    now = region.fingerprint[STEPS]
    if before == now:
        return False
    store.record_decision(STEPS, region.name, 0 if known is None else known.number + 1, {"are": now})
    if before is None:
        return False
    log.warning(
        "%s: its steps have changed since the last start. Results that are released stay as they are; all others are "
        "computed by the new steps. %s Steps were: %s. Steps are: %s",
        region.name, _COMPUTED_AT_LOAD, before, now,
    )  # fmt: skip
    return True


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


_COMPUTED_AT_LOAD = (
    "If you have not changed them, they hold a value that differs in each process, such as uuid4() or time() at the "
    "top of the file: write it as a constant."
)
#: The kind of decision that holds the parts of a fingerprint that were not recorded when the home was made.
_PARTS = "fingerprint"

#: The digest of an iteration's program, as earlier versions have recorded it: it missed changes.
_EARLIER_PROGRAM = re.compile(r"; program [0-9a-f]{16}(?=;|$)")


def _refuse_earlier_program(region: Region | Batch, record: RegionRecord) -> None:
    """Refuse the state of an iteration whose program an earlier version of Falkirk has recorded.

    Raises: HomeError: `HOME_VERSION`.
    """
    if _EARLIER_PROGRAM.search(record.fingerprint.get(STATE, "")):
        raise HomeError(
            "HOME_VERSION",
            f"an earlier version of Falkirk made the state of iteration {region.name!r}. Its record of the program "
            "misses changes, so nobody can tell whether the program is still the same.",
            where=region.where,
            hint="Use the Falkirk that made the home, or begin with a new home and new outputs.",
            found=1,
            processor=region.name,
        )


def _fits(name: str, before: str | None, now: str) -> bool:
    if name == STEPS:
        return True  # reported, not refused
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

    Raises: HomeError: `APPLICATION_CHANGED`, `HOME_VERSION`. LogError: `PARTITIONS_CHANGED`.
    """
    refuse_partitions(region, record.partitions, partitions)
    _refuse_earlier_program(region, record)
    changed = {
        name: (record.fingerprint.get(name), value)
        for name, value in region.fingerprint.items()
        if not _fits(name, record.fingerprint.get(name), value) and not (name == DECIDED_BY and _is_free(region))
    }
    if changed:
        what = "; ".join(f"{name}: was {old}, is {new}" for name, (old, new) in changed.items())
        raise HomeError(
            "APPLICATION_CHANGED",
            f"region {region.name!r} no longer fits its checkpoint: {what}.",
            where=region.where,
            hint="Undo the change, or begin with a new home and new outputs (it reads its input from the start)."
            + (_about_steps(region, record) if DECIDED_BY in changed else ""),
            changed=changed,
        )


def _is_free(region: Region | Batch) -> bool:
    """Tell whether released results never depend on steps that a replay does again: they wait for a checkpoint, or are
    sent again by the new steps."""
    return isinstance(region, Region) and (region.undetermined is not None or region.repeats)


def _about_steps(region: Region | Batch, record: RegionRecord) -> str:
    before, now = record.fingerprint.get(STEPS, "not recorded"), region.fingerprint.get(STEPS)
    return f" {_COMPUTED_AT_LOAD} Steps were: {before}. Steps are: {now}"


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
