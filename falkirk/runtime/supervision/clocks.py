"""Clocks: writes the time to the topics of clocks at intervals, and deletes the times that no replay reads again.

A time that is lost, written twice or out of order does no harm: readers follow the newest record of the topic, which
a replay reads again. So no writer is fenced, and a time that can't be sent is dropped. The client refuses times at once
while it does not know the topic, for example after the broker has restarted.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from falkirk.declare.clock import AT, ClockTopic
from falkirk.errors import LogError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.faults import ClientErrors, fault, quiet_options
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.runtime.spark.context import Context
from falkirk.theory.ids import Offset

log = logging.getLogger("falkirk")

#: A time that the broker has not accepted within this time is given up.
_KEPT_MS = 5_000
#: The time between two deletions.
_DELETE_S = 60.0


class Clocks:
    """The clocks of a running application. Call `update` at each turn of the protocol, the first time once it runs.

    Args: now_s: returns the time in seconds since 1970; by default that of the context.
    """

    def __init__(
        self, topics: Sequence[ClockTopic], context: Context, *, now_s: Callable[[], float] | None = None
    ) -> None:
        self._topics, self._context = topics, context
        self._now_s = context.clock.time if now_s is None else now_s
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._deleted_at_s = time.monotonic()

    def update(self, recovery: RecoveryProtocol) -> None:
        """Begin to write, and from time to time delete the times that are not needed."""
        if not self._topics or self._stopping.is_set():
            return
        if self._thread is None:
            writing = (self._topics, self._context.connection, self._now_s, self._stopping)
            self._thread = threading.Thread(target=write_times, args=writing, name="falkirk-clocks", daemon=True)
            self._thread.start()
        if time.monotonic() - self._deleted_at_s >= _DELETE_S:
            self._deleted_at_s = time.monotonic()
            self.delete(recovery)

    def tick(self) -> None:
        """Write the present time to each topic, and wait until the broker has it, so that timers that are due fire.

        Raises: LogError: `BROKER_AWAY`, `ACCESS_REFUSED`, `TOPIC_MISSING`, `KAFKA_REFUSED`.
        """
        if not self._topics:
            return
        errors, refused, connection = ClientErrors(), list[tuple[str, KafkaError]](), self._context.connection
        producer = Producer(_settings(connection, errors))
        for topic in self._topics:

            def answered(error: KafkaError | None, _message: object, name: str = topic.topic) -> None:
                if error is not None:
                    refused.append((name, error))

            producer.produce(topic.topic, value=time_text(self._now_s()), partition=0, on_delivery=answered)
        producer.flush()  # each record is answered within its time
        for name, error in refused:
            raise fault(error, "writing the time of a clock", connection, errors, name)

    def delete(self, recovery: RecoveryProtocol) -> None:
        """Delete the times that no reader reads again. Raises: LogError: `BROKER_AWAY`."""
        for topic in self._topics:
            upto = recovery.acknowledged(topic.log)
            below = {e.partition: Offset(int(upto.length(e))) for e in recovery.layout.sequences(topic.log)}
            try:
                self._context.topics.delete_below(topic.topic, below)
            except LogError as error:
                if error.condition == "BROKER_AWAY":
                    raise
                log.warning("the old times of the clock in %s can't be deleted: %s", topic.topic, error.message)

    def stop(self) -> None:
        """Stop writing."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()


def write_times(
    topics: Sequence[ClockTopic], connection: Connection, now_s: Callable[[], float], stopping: threading.Event
) -> None:
    """Write the time to each topic at its interval, until it is asked to stop."""
    producer = Producer(_settings(connection, ClientErrors()))
    due_s = dict.fromkeys(range(len(topics)), time.monotonic())
    while not stopping.wait(max(0.0, min(due_s.values()) - time.monotonic())):
        for place, topic in enumerate(topics):
            if due_s[place] > time.monotonic():
                continue
            try:
                producer.produce(topic.topic, value=time_text(now_s()), partition=0)
            except (BufferError, KafkaException) as error:  # the queue is full, or the topic is unknown
                log.debug("a time for %s was dropped: %s", topic.topic, error)
            # A process that stood still writes one time, and not all that it has missed.
            due_s[place] = max(due_s[place], time.monotonic() - topic.every_s) + topic.every_s
        producer.poll(0)
    producer.flush(1.0)


def _settings(connection: Connection, errors: ClientErrors) -> dict[str, Any]:
    return {**quiet_options(connection, errors), "linger.ms": 0, "message.timeout.ms": _KEPT_MS}


def time_text(now_s: float) -> bytes:
    """Return the value of a record with a time. Args: now_s: in seconds since 1970."""
    return json.dumps({AT: datetime.fromtimestamp(now_s, UTC).isoformat(timespec="microseconds")}).encode()
