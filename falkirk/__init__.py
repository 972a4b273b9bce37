"""Falkirk: exactly-once results within milliseconds, on Spark.

Declare sources, processors and sinks. Falkirk runs them as Spark queries that survive any failure and publish every
result exactly once. Begin with `stream` and `Stream.write`, or with `App`.
"""

from typing import TYPE_CHECKING, Any

from falkirk.app import App
from falkirk.asserting import deterministic
from falkirk.declared import Latest, Stamped
from falkirk.endpoints import Console, Files, Kafka, Sql
from falkirk.errors import (
    DefinitionError,
    FalkirkError,
    GuaranteeError,
    HomeError,
    InternalError,
    LogError,
    MachineError,
    SparkError,
    StoreError,
    UnrecoverableError,
)
from falkirk.logs.connection import Connection
from falkirk.policy import Acknowledged, Delivery, Eager, Ephemeral, FullHistory, Lazy, LogSends, Snapshots
from falkirk.push.endpoint import Http
from falkirk.push.tls import Tls
from falkirk.stream import Stream, latest, stream

__version__ = "0.1.0"

if TYPE_CHECKING:
    from falkirk.operators.call import Epoch, epoch
    from falkirk.operators.functions import map_rows, stateful
    from falkirk.operators.joins import join
    from falkirk.operators.windows import counted, sessions

#: These names need Spark, so they are imported at their first use: declarations need no Spark.
_WITH_SPARK = {
    "Epoch": "call", "counted": "windows", "epoch": "call", "join": "joins", "map_rows": "functions",
    "sessions": "windows", "stateful": "functions",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WITH_SPARK:
        raise AttributeError(f"module 'falkirk' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"falkirk.operators.{_WITH_SPARK[name]}"), name)


__all__ = [
    "Acknowledged",
    "App",
    "Connection",
    "Console",
    "DefinitionError",
    "Delivery",
    "Eager",
    "Ephemeral",
    "Epoch",
    "FalkirkError",
    "Files",
    "FullHistory",
    "GuaranteeError",
    "HomeError",
    "Http",
    "InternalError",
    "Kafka",
    "Latest",
    "Lazy",
    "LogError",
    "LogSends",
    "MachineError",
    "Snapshots",
    "SparkError",
    "Sql",
    "Stamped",
    "StoreError",
    "Stream",
    "Tls",
    "UnrecoverableError",
    "counted",
    "deterministic",
    "epoch",
    "join",
    "latest",
    "map_rows",
    "sessions",
    "stateful",
    "stream",
]
