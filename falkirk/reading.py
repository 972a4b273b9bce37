"""Reading: a topic's stream that this process writes to another topic. The simplest use, without an `App`."""

from typing import TYPE_CHECKING, Any

from falkirk.declare.endpoints import Kafka, as_topic
from falkirk.declare.policy import Delivery, Duration
from falkirk.declare.stream import Stream, source_node
from falkirk.errors.location import caller

if TYPE_CHECKING:
    from falkirk.host.query import Query


class WritableStream(Stream):
    """A stream that begins with `read`. It can be written without an application."""

    __slots__ = ()

    def write(
        self,
        sink: Kafka,
        *,
        kafka: Any = None,
        home: str | None = None,
        delivery: Delivery | str = Delivery.EXACTLY_ONCE,
        interval: Duration = "10 seconds",
        buffer_timeout: Duration = "1 ms",
        state_partitions: int = 2,
        create_topics: bool = False,
    ) -> "Query":
        """Start to write the stream to a topic in this process, and return the running query.

        Args:
            sink: the topic to write.
            kafka: the broker, ``"host:port"`` or a `Connection`.
            home: folder for checkpoints and decisions; ``./.falkirk/<topic>`` by default.
            delivery: the promise to readers, see `Delivery`.
            interval: time between checkpoints.
            buffer_timeout, state_partitions: as in `App`.
            create_topics: create missing topics, for trials.
        Raises: DefinitionError, GuaranteeError, HomeError, LogError, SparkError: before anything runs.
        """
        from falkirk.host.query import start  # needs Spark; declarations do not

        as_topic(sink, caller())

        settings = {"buffer_timeout": buffer_timeout, "state_partitions": state_partitions, "home": home}
        return start(
            self, sink, kafka=kafka, delivery=delivery, interval=interval, create_topics=create_topics, **settings
        )


def read(topic: Kafka, name: str | None = None) -> WritableStream:
    """Return the stream of a topic's records: the simplest use, without an `App`.

    Args: topic: the topic to read; it needs a schema. name: the stream's name in messages; by default the topic's name.
    """
    as_topic(topic, caller())
    return WritableStream(source_node(name or topic.topic, topic))
