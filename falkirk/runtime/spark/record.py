"""Record: the properties of a region that its checkpoint depends on, recorded once and compared at each start."""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql.types import StructType

from falkirk.declare.endpoints import Kafka
from falkirk.errors import HomeError
from falkirk.errors.conditions.spark import (
    APPLICATION_CHANGED,
    APPLICATION_CHANGED_PARTS,
    HOME_DAMAGED_REGION,
    HOME_VERSION_STATE,
    PARTITIONS_CHANGED,
)
from falkirk.kafka_client.topics import Topics
from falkirk.plan.batch import SENDS, STATE_PART
from falkirk.plan.fingerprint import (
    DECIDED_BY,
    KEYED_STEP,
    LAST_RECORD,
    NOT_ALWAYS_RECORDED,
    READS,
    STEPS,
    with_sorted_lists,
)
from falkirk.plan.region import Region
from falkirk.plan.unit import Unit
from falkirk.recovery.decision_store import RegionRecord, Store
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.growth import advice_on_reads
from falkirk.runtime.spark.outputs import last_own
from falkirk.runtime.spark.rows import OutputTopic
from falkirk.theory.ids import LogId, Offsets

log = logging.getLogger("falkirk")
#: The number of records to search back for records of this home in a topic that others may have filled.
_LOOKED_BACK = 100


def region_record(region: Region, context: Context, output: Mapping[LogId, OutputTopic], folder: Path) -> RegionRecord:
    """Return the record of a region; make it before the first start, and compare it at each later start."""
    store, topics = context.home.store, context.topics
    sources = [each.topic for each in region.sources]
    partitions = {name: topic.partitions for name, topic in output.items()}
    partitions |= {source.log: topics.facts(source.topic).partitions for source in sources}
    record = store.region(region.name)
    if record is None:
        if (folder / "metadata").exists():
            raise HOME_DAMAGED_REGION.error(where=folder, region=region.name)
        outside = () if region.released_to is None else (region.released_to.topic,)
        refuse_own_records(region, context, (*output, *outside))
        starts = {source.log: first_positions(source, topics) for source in sources}
        record = RegionRecord(fingerprint=region.fingerprint, start_offsets=starts, partitions=partitions)
        store.create_region(region.name, record, {name: topics.end_positions(name) for name in output})
        return record
    compare(region, completed(region, record, store), partitions)
    report_steps(region, record, store)
    return record


def first_positions(source: Kafka, topics: Topics) -> Offsets:
    """Return where the first start in a home begins to read a topic.

    The newest position is the one behind the readable records: those of a transaction that commits later are new.
    """
    return (topics.first_positions if source.starting == "earliest" else topics.readable_positions)(source.topic)


def completed(region: Unit, record: RegionRecord, store: Store) -> RegionRecord:
    """Return a record with the parts that the home's version of Falkirk did not record.

    Their values are those at the first start under a version that records them. From then on they are compared.
    """
    known = store.newest_decision(_PARTS, region.name)
    parts = {**({} if known is None else known.content), **record.fingerprint}
    missing = {name: v for name, v in region.fingerprint.items() if name in NOT_ALWAYS_RECORDED - parts.keys()}
    if missing:
        log.warning(
            "%s: an earlier version of Falkirk made this home, and did not record: %s. If that has changed since the "
            "last start, results may contradict each other. Falkirk records and compares it from now on.",
            region.name, ", ".join(missing),
        )  # fmt: skip
        number = 0 if known is None else known.number + 1
        store.record_decision(_PARTS, region.name, number, {**({} if known is None else known.content), **missing})
    return replace(record, fingerprint={**parts, **missing})


def report_steps(region: Region, record: RegionRecord, store: Store) -> bool:
    """Log that the steps of a region have changed since the last start; return whether they have."""
    known = store.newest_decision(STEPS, region.name)
    before = record.fingerprint.get(STEPS) if known is None else str(known.content["are"])
    now = region.fingerprint[STEPS]
    if before == now:
        return False
    store.record_decision(STEPS, region.name, 0 if known is None else known.number + 1, {"are": now})
    if before is None:
        return False
    log.warning(
        "%s: its steps have changed since the last start. Published results stay as they are; the new steps compute "
        "all others. %s Steps were: %s. Steps are: %s",
        region.name, _COMPUTED_AT_LOAD, before, now,
    )  # fmt: skip
    return True


def refuse_own_records(region: Unit, context: Context, written: Iterable[str]) -> None:
    """Refuse a new region if this home has already written its output topics: a sink or a batch was renamed.

    Raises: HomeError: `APPLICATION_CHANGED`.
    """
    for name in written:
        oldest, ends = context.topics.first_positions(name), context.topics.end_positions(name)
        found, _ = last_own(context, name, oldest, ends, reach=_LOOKED_BACK)
        if found:
            raise renamed(region, name)


def renamed(region: Unit, written: str) -> HomeError:
    """Return the error for a region that is new to a home which has already written its output."""
    return APPLICATION_CHANGED.error(
        where=region.where, changed={"region": (None, region.name)}, region=region.name, written=written
    )


_COMPUTED_AT_LOAD = (
    "If you have not changed them, they contain a value that differs in each process, such as uuid4() or time() at "
    "module level: write it as a constant."
)
#: The kind of decision with the parts of a fingerprint that were not recorded when the home was made.
_PARTS = "fingerprint"

#: The digest of an iteration's program as earlier versions recorded it. The first one missed changes, and the second
#: one named the files of its loops otherwise. With the third one, all nodes of components began in the first round.
_EARLIER_PROGRAM = re.compile(r"; program ([23]:)?[0-9a-f]{16}(?=;|$)")


def _refuse_earlier_state(region: Unit, record: RegionRecord) -> None:
    """Refuse the state of an iteration or of a `groupBy` if an earlier version of Falkirk made it in another form.

    Raises: HomeError: `HOME_VERSION`.
    """
    if _EARLIER_PROGRAM.search(record.fingerprint.get(STATE_PART, "")):
        raise HOME_VERSION_STATE.error(where=region.where, kind="iteration", name=region.name)
    now = region.fingerprint.get(KEYED_STEP, "")
    if LAST_RECORD in now and with_sorted_lists(record.fingerprint.get(KEYED_STEP, "")) == now.replace(LAST_RECORD, ""):
        raise HOME_VERSION_STATE.error(where=region.where, kind="region", name=region.name)


def _fits(name: str, before: str | None, now: str) -> bool:
    if name == STEPS:
        return True  # changes are reported, not refused
    if name == KEYED_STEP and before is not None:
        return with_sorted_lists(before) == now  # earlier versions recorded these lists in any order
    if name != SENDS:
        return before == now or (before is None and name in NOT_ALWAYS_RECORDED)
    # In an epoch from before the change, a new column has nulls.
    return before is None or _columns(before) <= _columns(now)


def _columns(ddl: str) -> set[tuple[str, str]]:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType), "it was made from a StructType"
    return {(field.name, field.dataType.simpleString()) for field in schema.fields}


def compare(region: Unit, record: RegionRecord, partitions: dict[LogId, int]) -> None:
    """Check that a region still fits the record of its checkpoints.

    Raises: HomeError: `APPLICATION_CHANGED`, `HOME_VERSION`. LogError: `PARTITIONS_CHANGED`.
    """
    refuse_partitions(region, record.partitions, partitions)
    _refuse_earlier_state(region, record)
    changed = {
        name: (record.fingerprint.get(name), value)
        for name, value in region.fingerprint.items()
        if not _fits(name, record.fingerprint.get(name), value) and not (name == DECIDED_BY and region.may_change_steps)
    }
    if changed:
        what = "; ".join(f"{name}: was {old}, is {new}" for name, (old, new) in changed.items())
        raise APPLICATION_CHANGED_PARTS.error(
            where=region.where,
            changed=changed,
            region=region.name,
            what=what,
            advice="Undo the change, or begin with a new home and new sinks (it reads its input from the start)."
            + (_about_steps(region, record) if DECIDED_BY in changed else "")
            + (advice_on_reads(*changed[READS]) if READS in changed else ""),
        )


def _about_steps(region: Unit, record: RegionRecord) -> str:
    before, now = record.fingerprint.get(STEPS, "not recorded"), region.fingerprint.get(STEPS)
    return f" {_COMPUTED_AT_LOAD} Steps were: {before}. Steps are: {now}"


def refuse_partitions(region: Unit, before: Mapping[LogId, int], now: Mapping[LogId, int]) -> None:
    """Check that topics have as many partitions as when the home was made. Raises: LogError: `PARTITIONS_CHANGED`."""
    for topic, count in now.items():
        if before.get(topic, count) != count:
            raise PARTITIONS_CHANGED.error(where=region.where, topic=topic, before=before[topic], now=count)
