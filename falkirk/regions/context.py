"""Context: what all regions of an application share."""

from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from falkirk.coordinator.home import Home
from falkirk.logs.connection import Connection
from falkirk.logs.topics import Topics


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an application keeps what is durable: its home and its broker."""

    home: Home
    connection: Connection
    topics: Topics = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", Topics(self.connection))


@dataclass(frozen=True, kw_only=True)
class Context(Place):
    """A place, and the Spark session that an application runs in there."""

    session: SparkSession
    state_partitions: int
