"""Targets: the places to which the epochs of a batch are released.

Each target stores how far it is. So a delivery that a crash interrupted resumes at the same place, and no
epoch is delivered twice.

    topic      The last record of each partition names its epoch and its place in it. A retry leaves out the rows that
               the topic already has.

    epochs     One Kafka transaction writes an epoch and a note about it, in a topic that may be compacted.

    table      One transaction writes an epoch and its mark.

    folder     The folder of an epoch gets its final name when it is complete.

    lake       One commit of a Delta or Iceberg table adds the files of an epoch and its number.

    console    It stores nothing.

    own        The user's sink reports how far it is.
"""

from collections.abc import Callable, Mapping
from typing import Any

from falkirk.declare.endpoints import Console, Endpoint, EpochTopic, Files, Kafka, Sql
from falkirk.declare.lake import Delta, Iceberg
from falkirk.declare.sink import OwnSink
from falkirk.recovery.ownership.folder import Home
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.sinks.console import ConsoleTarget
from falkirk.runtime.spark.sinks.epoch_topic import EpochTopicTarget
from falkirk.runtime.spark.sinks.folder import FolderTarget, Proofs
from falkirk.runtime.spark.sinks.lake import LakeTable, LakeTarget
from falkirk.runtime.spark.sinks.own import OwnTarget
from falkirk.runtime.spark.sinks.table import TableTarget
from falkirk.runtime.spark.sinks.target import Target
from falkirk.runtime.spark.sinks.topic import TopicTarget
from falkirk.theory.ids import Offsets

Settle = Callable[[str], Offsets]
#: The constructor of the target for each other kind of endpoint, from (endpoint, name of the sink, place, settle).
_TARGETS: Mapping[type, Callable[[Any, str, Storage, Settle], Target]] = {
    Kafka: lambda to, sink, place, settle: TopicTarget(place, to, settle),
    Sql: lambda to, sink, place, settle: TableTarget(to, place.home.identity, sink),
    Files: lambda to, sink, place, settle: FolderTarget(to, place.home.identity, _proofs(place, sink)),
    Console: lambda to, sink, place, settle: ConsoleTarget(to, sink),
    Delta: lambda to, sink, place, settle: _delta(to, sink, place.home),
    Iceberg: lambda to, sink, place, settle: _iceberg(to, sink, place.home),
    OwnSink: lambda to, sink, place, settle: OwnTarget(to, sink),
}


def _delta(to: Delta, sink: str, home: Home) -> LakeTarget:
    from falkirk.runtime.spark.sinks.delta import DeltaLakeTable  # its package is optional

    return _lake(to, lambda: DeltaLakeTable(to, home.identity, sink), sink, home)


def _iceberg(to: Iceberg, sink: str, home: Home) -> LakeTarget:
    from falkirk.runtime.spark.sinks.iceberg import IcebergTable  # its package is optional

    return _lake(to, lambda: IcebergTable(to, home.identity, sink), sink, home)


def _lake(to: Delta | Iceberg, table: Callable[[], LakeTable], sink: str, home: Home) -> LakeTarget:
    return LakeTarget(to, table, sink, f"{home.identity}/{sink}", home.store.require_charge)


def _proofs(place: Storage, sink: str) -> Proofs:
    key = place.signing_key.of(f"folder {sink}", "release")
    return Proofs(key=key, store=place.home.store, sink=sink)


def target_of(
    to: Endpoint, sink: str, place: Storage, settle: Settle, *, runs_elsewhere: bool = False
) -> Target:  # fmt: skip
    """Return the target for an endpoint.

    Args: settle: see `TopicTarget`. runs_elsewhere: another process runs the application, and must not be fenced.
    """
    if isinstance(to, EpochTopic):
        return EpochTopicTarget(to, place, sink, runs_elsewhere=runs_elsewhere)
    return _TARGETS[type(to)](to, sink, place, settle)
