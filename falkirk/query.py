"""Query: a stream that is being written from this process, with the face of a StreamingQuery.

This is the smallest use: no `App`, no coordinator process; the regions run in the user's own session, and a thread
watches them.
"""

import threading
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from falkirk.app import App
from falkirk.coordinator.home import Home, ProcessRecord, open_home
from falkirk.coordinator.live_host import LiveHost, RegionStatus
from falkirk.endpoints import Kafka
from falkirk.errors import DefinitionError, FalkirkError
from falkirk.local.spark import session as spark_session
from falkirk.location import caller
from falkirk.logs.connection import Connection
from falkirk.plan.planner import plan_application
from falkirk.plan.region import root_of, steps_of
from falkirk.plan.slots import check_slots, slots_needed
from falkirk.plan.topics import prepare_topics
from falkirk.policy import Delivery, Lazy
from falkirk.regions.context import Context
from falkirk.stream import Node, SourceNode, Step, Stream


class Query:
    """A running application in this process. Made by `Stream.write` and by `App.run` under spark-submit."""

    def __init__(self, host: LiveHost, home: Home, *, poll_s: float = 0.5) -> None:
        self._host, self._home, self._poll_s = host, home, poll_s
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._error: FalkirkError | None = None
        host.start()
        self._thread = threading.Thread(target=self._watch, name="falkirk-watch", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        try:
            while not self._stopping.wait(self._poll_s):
                self._host.poll()
        except FalkirkError as error:
            self._error = error
        finally:
            self._host.stop()
            self._home.close()
            self._ended.set()

    @property
    def isActive(self) -> bool:
        """Whether the query runs, or is being restarted after a failure."""
        return not self._ended.is_set()

    @property
    def status(self) -> tuple[RegionStatus, ...]:
        """The regions, upstream first."""
        return self._host.status()

    @property
    def hops(self) -> tuple[str, ...]:
        """The internal topics between the regions."""
        return self._host.hops

    @property
    def queries(self) -> tuple[StreamingQuery, ...]:
        """Spark's own queries of the regions that run, upstream first: their progress tells what Spark does."""
        return self._host.queries

    def exception(self) -> FalkirkError | None:
        """Return what ended the query for good, or None."""
        return self._error

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait until the query ends, at most `timeout` seconds; return whether it did.

        Raises: FalkirkError: what ended it.
        """
        ended = self._ended.wait(timeout)
        if self._error is not None:
            raise self._error
        return ended

    def stop(self) -> None:
        """Stop the query. What was released stays released; the next start of the same home goes on from there."""
        self._stopping.set()
        self._ended.wait()


def start(
    stream: Stream,
    sink: Kafka,
    *,
    kafka: Connection | str | None,
    home: str | Path | None,
    delivery: Delivery | str,
    interval: str | float,
) -> Query:
    """Start writing one stream in this process: see `Stream.write`."""
    if kafka is None:
        raise DefinitionError(
            "BROKER_MISSING", "write() needs a broker.", where=caller(), hint='Pass kafka="host:port".'
        )
    app = _as_application(stream, sink, kafka, home, delivery, interval)
    return run_here(app, Connection.of(kafka))


def run_here(app: App, connection: Connection) -> Query:
    """Run an application in this process and session, and return the running query."""
    session = spark_session(
        app.name, master="local[32]", buffer_timeout=app.buffer_timeout, state_partitions=app.state_partitions
    )
    home = open_home(app.home, app.name)
    try:
        home.kill_leftovers(spare_pid=_jvm_pid(session), spare_application=session.sparkContext.applicationId)
        record_processes(home, session)
        plan = plan_application(app, session, home.identity)
        context = Context(session=session, connection=connection, home=home, state_partitions=app.state_partitions)
        prepare_topics(plan, context.topics)
        check_slots(slots_needed(plan, context.topics), session)
        return Query(LiveHost(plan, context), home)
    except BaseException:
        home.close()
        raise


def record_processes(home: Home, session: Any) -> None:
    """Record this process's JVM and Spark application, which the next run has to be rid of before it reads outputs."""
    home.record_processes((ProcessRecord.of(_jvm_pid(session), "jvm"),), (session.sparkContext.applicationId,))


def _jvm_pid(session: Any) -> int:
    return int(session._jvm.java.lang.ProcessHandle.current().pid())


def _as_application(
    stream: Stream, sink: Kafka, kafka: Any, home: Any, delivery: Delivery | str, interval: str | float
) -> App:
    root = root_of(stream.node)
    if not isinstance(root, SourceNode):
        raise DefinitionError(
            "NOT_A_STREAM",
            "write() is for a stream made by fk.stream().",
            where=caller(),
            hint="Use app.sink().",
        )
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in sink.topic)
    app = App(name, kafka=kafka, home=home)
    app.sources[root.name] = root

    def transform(upstream: Stream) -> Stream:
        node: Node = upstream.node
        for step in steps_of(stream.node):
            node = Step(parent=node, operation=step.operation, arguments=step.arguments, where=step.where)
        return Stream(node)

    app.add_processor("stream", transform, reads=(root.name,), policy=Lazy(interval))
    app.sink(name, "stream", sink, delivery=delivery)
    return app
