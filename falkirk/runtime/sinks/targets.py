"""Targets: the places to which the epochs of a batch are released.

Each target stores how far it is. So a delivery that a crash interrupted resumes at the same place, and no
epoch is there twice.

    topic      The last record of each partition names its epoch and its place in it. A retry leaves out the rows that
               the topic already has.

    table      One transaction writes an epoch and its mark.

    folder     The folder of an epoch gets its final name when it is complete.

    console    It stores nothing.
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
    """Return the target for an endpoint."""
    if isinstance(to, Sql):
        return TableTarget(to, place.home.identity, sink)
    if isinstance(to, Files):
        return FolderTarget(to, place.home.identity)
    if isinstance(to, Console):
        return ConsoleTarget(to, sink)
    return TopicTarget(place, to, settle)
