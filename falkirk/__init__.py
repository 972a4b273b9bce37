"""Falkirk: exactly-once results within milliseconds, on Spark.

Declare sources, processors and sinks. Falkirk runs them as Spark queries that survive any failure and publish every
result exactly once. Begin with `read` and its `write`, or with `App`.
"""

from typing import TYPE_CHECKING, Any

from falkirk.app import App
from falkirk.declare.asserting import deterministic
from falkirk.declare.clock import Clock
from falkirk.declare.endpoints import Console, EpochTopic, Files, Kafka, Sql
from falkirk.declare.grouped import latest_value
from falkirk.declare.http import Http
from falkirk.declare.lake import Delta, Iceberg
from falkirk.declare.parts import Stamped
from falkirk.declare.policy import Acknowledged, Delivery, Eager, Ephemeral, FullHistory, Lazy, LogSends, Snapshots
from falkirk.declare.registry import Registry
from falkirk.declare.sink import Sink
from falkirk.declare.stream import Newest, Stream
from falkirk.declare.tls import Tls
from falkirk.declare.view import View
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
from falkirk.kafka_client.connection import Connection
from falkirk.reading import read

__version__ = "0.1.0"

if TYPE_CHECKING:
    from falkirk import testing
    from falkirk.spark_setup.spark import spark_session
    from falkirk.steps.batch.call import EpochContext, current_epoch
    from falkirk.steps.batch.functions import map_rows, stateful
    from falkirk.steps.batch.joins import join
    from falkirk.steps.batch.windows import counted, sessions
    from falkirk.steps.differential.collection import Collection, fixpoint
    from falkirk.steps.differential.graphs import connected_components, pagerank, shortest_paths

#: These names need Spark, so they are imported at their first use: declarations need no Spark.
_WITH_SPARK = {
    "Collection": "steps.differential.collection", "EpochContext": "steps.batch.call",
    "connected_components": "steps.differential.graphs", "counted": "steps.batch.windows",
    "current_epoch": "steps.batch.call", "fixpoint": "steps.differential.collection", "join": "steps.batch.joins",
    "map_rows": "steps.batch.functions", "pagerank": "steps.differential.graphs", "sessions": "steps.batch.windows",
    "shortest_paths": "steps.differential.graphs", "spark_session": "spark_setup.spark",
    "stateful": "steps.batch.functions",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "testing":
        return import_module("falkirk.testing")
    if name not in _WITH_SPARK:
        raise AttributeError(f"module 'falkirk' has no attribute {name!r}")
    return getattr(import_module(f"falkirk.{_WITH_SPARK[name]}"), name)


__all__ = [
    "Acknowledged",
    "App",
    "Clock",
    "Collection",
    "Connection",
    "Console",
    "DefinitionError",
    "Delivery",
    "Delta",
    "Eager",
    "Ephemeral",
    "EpochContext",
    "EpochTopic",
    "FalkirkError",
    "Files",
    "FullHistory",
    "GuaranteeError",
    "HomeError",
    "Http",
    "Iceberg",
    "InternalError",
    "Kafka",
    "Lazy",
    "LogError",
    "LogSends",
    "MachineError",
    "Newest",
    "Registry",
    "Sink",
    "Snapshots",
    "SparkError",
    "Sql",
    "Stamped",
    "StoreError",
    "Stream",
    "Tls",
    "UnrecoverableError",
    "View",
    "connected_components",
    "counted",
    "current_epoch",
    "deterministic",
    "fixpoint",
    "join",
    "latest_value",
    "map_rows",
    "pagerank",
    "read",
    "sessions",
    "shortest_paths",
    "spark_session",
    "stateful",
    "testing",
]
