"""Falkirk: exactly once, in milliseconds, on Spark.

Declare sources, processors and sinks; Falkirk runs them as Spark queries that survive any failure and release every
result exactly once. Begin with `stream` and `Stream.write`, or with `App`.
"""

from falkirk.app import App
from falkirk.endpoints import Kafka
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
from falkirk.policy import Delivery, Ephemeral, Lazy
from falkirk.stream import Stream, latest, stream

__all__ = [
    "App",
    "Connection",
    "DefinitionError",
    "Delivery",
    "Ephemeral",
    "FalkirkError",
    "GuaranteeError",
    "HomeError",
    "InternalError",
    "Kafka",
    "Lazy",
    "LogError",
    "MachineError",
    "SparkError",
    "StoreError",
    "Stream",
    "UnrecoverableError",
    "latest",
    "stream",
]
