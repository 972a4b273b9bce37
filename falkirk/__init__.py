"""Falkirk: exactly once, in milliseconds, on Spark.

Declare sources, processors and sinks; Falkirk runs them as Spark queries that survive any failure and release every
result exactly once. Begin with `stream` and `Stream.write`, or with `App`.
"""

from falkirk.app import App, Latest
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
from falkirk.policy import Delivery, Eager, Ephemeral, FullHistory, Lazy, LogSends
from falkirk.stream import Stream, latest, stream

__all__ = [
    "App",
    "Connection",
    "Console",
    "DefinitionError",
    "Delivery",
    "Eager",
    "Ephemeral",
    "FalkirkError",
    "Files",
    "FullHistory",
    "GuaranteeError",
    "HomeError",
    "InternalError",
    "Kafka",
    "Latest",
    "Lazy",
    "LogError",
    "LogSends",
    "MachineError",
    "SparkError",
    "Sql",
    "StoreError",
    "Stream",
    "UnrecoverableError",
    "latest",
    "stream",
]
