"""Targets: where the epochs of a batch are released to. Each knows by itself how far it has come, so that an epoch
that a crash cut off goes on where it was, and none is there twice.

    topic      the last record of each partition says which epoch it is of and its place in it; what is there already is
               left out of the next try
    table      an epoch is one transaction, together with the mark that it is there
    folder     an epoch's folder gets its name when all of it is there
    console    knows nothing
    own        a user's sink says how far it has come
"""

from collections.abc import Callable, Mapping
from typing import Any

from falkirk.declare.endpoints import Console, Endpoint, Files, Kafka, Sql
from falkirk.declare.sink import OwnSink
from falkirk.runtime.context import Place
from falkirk.runtime.sinks.console import ConsoleTarget
from falkirk.runtime.sinks.folder import FolderTarget
from falkirk.runtime.sinks.own import OwnTarget
from falkirk.runtime.sinks.table import TableTarget
from falkirk.runtime.sinks.target import Target
from falkirk.runtime.sinks.topic import Positions, TopicTarget

Settle = Callable[[str], Positions]
#: What makes the target of each kind of endpoint, of (endpoint, name of the sink, place, settle).
_TARGETS: Mapping[type, Callable[[Any, str, Place, Settle], Target]] = {
    Kafka: lambda to, sink, place, settle: TopicTarget(place, to, settle),
    Sql: lambda to, sink, place, settle: TableTarget(to, place.home.identity, sink),
    Files: lambda to, sink, place, settle: FolderTarget(to, place.home.identity),
    Console: lambda to, sink, place, settle: ConsoleTarget(to, sink),
    OwnSink: lambda to, sink, place, settle: OwnTarget(to, sink),
}


def target_of(to: Endpoint, sink: str, place: Place, settle: Settle) -> Target:
    """Return the target that an endpoint is."""
    return _TARGETS[type(to)](to, sink, place, settle)
