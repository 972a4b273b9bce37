"""Context: what all regions of a host share."""

from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from falkirk.coordinator.home import Home
from falkirk.logs.connection import Connection
from falkirk.logs.topics import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What all regions of a host share."""

    session: SparkSession
    connection: Connection
    home: Home
    state_partitions: int
    topics: Topics = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", Topics(self.connection))
