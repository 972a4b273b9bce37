"""Targets: where the epochs of a batch are released to. Each knows by itself how far it has come, so that an epoch
that a crash cut off goes on where it was, and none is there twice.

    topic      the last record of each partition says which epoch it is of and its place in it; what is there already is
               left out of the next try
    table      an epoch is one transaction, together with the mark that it is there
    folder     an epoch's folder gets its name when all of it is there
    console    knows nothing
"""

from collections.abc import Callable

from falkirk.declare.endpoints import Console, Endpoint, Files, Sql
from falkirk.runtime.context import Place
from falkirk.runtime.sinks.console import ConsoleTarget
from falkirk.runtime.sinks.folder import FolderTarget
from falkirk.runtime.sinks.table import TableTarget
from falkirk.runtime.sinks.target import Target
from falkirk.runtime.sinks.topic import Positions, TopicTarget


def target_of(to: Endpoint, sink: str, place: Place, settle: Callable[[str], Positions]) -> Target:
    """Return the target that an endpoint is."""
    if isinstance(to, Sql):
        return TableTarget(to, place.home.identity, sink)
    if isinstance(to, Files):
        return FolderTarget(to, place.home.identity)
    if isinstance(to, Console):
        return ConsoleTarget(to, sink)
    return TopicTarget(place, to, settle)
