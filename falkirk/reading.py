"""Reading: a topic's stream that this process writes to another topic. The simplest use, without an `App`."""

import hashlib
from typing import TYPE_CHECKING, Any

from falkirk.declare.accepted import as_output_topic, as_topic
from falkirk.declare.application import Application
from falkirk.declare.endpoints import Kafka
from falkirk.declare.nodes import SourceNode, roots_of
from falkirk.declare.policy import Delivery, Duration, Lazy
from falkirk.declare.stream import Stream, source_node
from falkirk.errors.conditions.declare import NAME_TAKEN_KIND
from falkirk.errors.conditions.reading import BROKER_MISSING_WRITE
from falkirk.errors.location import caller

if TYPE_CHECKING:
    from falkirk.runtime.supervision.query import Query


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
        transactional: bool | None = None,
        create_topics: bool = False,
        once: bool = False,
    ) -> "Query":
        """Start to write the stream to a topic in this process, and return the running query.

        Args:
            sink: the topic to write.
            kafka: the broker, ``"host:port"`` or a `Connection`.
            home: folder for checkpoints and decisions; ``./.falkirk/<topic>`` by default.
            delivery: the promise to readers, see `Delivery`.
            interval: time between checkpoints.
            buffer_timeout, state_partitions, transactional: as in `App`.
            create_topics: create missing topics, for trials.
            once: process the present input; then the query ends by itself.
        Raises: DefinitionError, GuaranteeError, HomeError, LogError, SparkError: before anything runs.
        """
        from falkirk.runtime.supervision.query import start_application  # needs Spark; declarations do not

        to = as_output_topic(sink, caller())
        if kafka is None:
            raise BROKER_MISSING_WRITE.error(where=caller())
        settings = {"buffer_timeout": buffer_timeout, "state_partitions": state_partitions, "home": home}
        settings |= {"transactional": transactional, "kafka": kafka}
        app = application_of(self, to, delivery=delivery, interval=interval, **settings)
        return start_application(app, kafka=None, create_topics=create_topics, once=once)


def application_of(
    stream: Stream, sink: Kafka, *, delivery: Delivery | str, interval: Duration, **settings: Any
) -> Application:
    """Return the application that `WritableStream.write` starts: the recorded steps with their sources, and one sink.

    Args: sink: checked. settings: further arguments of `App`.
    Raises: DefinitionError: `NAME_TAKEN`: a union unites two streams of one name.
    """
    name = name_after(sink.topic)
    app = Application(name, **settings)
    for source in roots_of(stream.node):
        assert isinstance(source, SourceNode), "`read` made it"
        if app.sources.setdefault(source.name, source) is not source:
            raise NAME_TAKEN_KIND.error(where=source.topic.where, name=source.name, kind="source")
    app.add_processor("stream", lambda *_: stream, reads=(*app.sources,), policy=Lazy(interval))
    app.add_sink(name, "stream", sink, delivery, caller())
    return app


def name_after(topic: str) -> str:
    """Return an application's name for a topic's name, which may be longer and contain dots."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in topic)
    if name == topic and len(name) <= 64 and not name.startswith("-"):
        return name
    return f"{name.lstrip('-')[:50]}-{hashlib.sha256(topic.encode()).hexdigest()[:8]}".lstrip("-")


def read(topic: Kafka, name: str | None = None) -> WritableStream:
    """Return the stream of a topic's records: the simplest use, without an `App`.

    Args: topic: the topic to read; it needs a schema. name: the stream's name in messages; by default the topic's name.
    """
    as_topic(topic, caller())
    return WritableStream(source_node(name or topic.name, topic))
