"""Context: what all regions of an application share."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from falkirk.coordinator.home import Home
from falkirk.logs.connection import Connection
from falkirk.logs.internal import internal_topic
from falkirk.logs.topics import Topics
from falkirk.logs.void import Void, late_behind

#: The kind of decision that says which topic a name stands for.
TOPIC = "topic"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an application keeps what is durable: its home and its broker."""

    home: Home
    connection: Connection
    topics: Topics = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", Topics(self.connection))
        for topic, content in self.home.store.decisions_of(TOPIC).items():
            self.topics.expect(topic, str(content["id"]))

    def hold(self, topics: Iterable[str]) -> None:
        """Record which topics these are, before anything rests on them. Another one of the same name is refused from
        then on, at each look.

        Raises: LogError: `TOPIC_MISSING`, `TOPIC_REPLACED`.
        """
        for topic in topics:
            identity = self.topics.identity(topic)
            if not self.topics.expects(topic):
                self.home.store.record_decision(TOPIC, topic, 0, {"id": identity})
                self.topics.expect(topic, identity)

    def void(self, topic: str) -> Void:
        """Return which records of a topic count for nothing. Only of a log of ours is that what is late: in any other
        topic it has been seen, and is not to be sent again."""
        store, ours = self.home.store, internal_topic(self.home.application, self.home.identity, "")
        ranges = [(v.partition, v.first, v.last_exclusive) for v in store.voided_ranges(topic)]
        return Void(ranges, late_behind(store.fences(topic)) if topic.startswith(ours) else ())


@dataclass(frozen=True, kw_only=True)
class Context(Place):
    """A place, and the Spark session that an application runs in there."""

    session: SparkSession
    state_partitions: int
