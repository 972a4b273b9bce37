"""Sender: writes requests to their topic. Kafka admits only one sender per topic.

The transactional id is the topic's name, so a new sender fences the former one. After that, the open transaction of a
killed or hanging gateway is either committed or never will be. Without the fence, a retry could be written in addition
to the original.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from falkirk.http_source.answers_from import answers_header_of
from falkirk.http_source.elapsed import header_of
from falkirk.http_source.registry import RequestEntry
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.faults import ClientErrors, fault, quiet_options
from falkirk.theory.ids import Offset

#: The broker aborts the open transaction of a dead gateway after this time. Until then readers wait.
_TRANSACTION_MS = 30_000
_TRY_S = 1.0


class RequestSender:
    """The only writer of a topic of requests.

    Args: key: signs the requests. is_over: returns whether the sender should stop.
    Raises: LogError: `BROKER_AWAY`, `ACCESS_REFUSED`, `KAFKA_REFUSED`.
    """

    def __init__(self, connection: Connection, topic: str, key: bytes, is_over: Callable[[], bool]) -> None:
        self._connection, self._topic, self._is_over, self._errors = connection, topic, is_over, ClientErrors()
        self._key = key
        settings: dict[str, Any] = {
            **quiet_options(connection, self._errors),
            "transactional.id": topic,
            "transaction.timeout.ms": _TRANSACTION_MS,
            "linger.ms": 0,
            "compression.type": "zstd",
        }
        self._producer = Producer(settings)
        self._try("taking over a topic of requests", lambda: self._producer.init_transactions(_TRY_S))

    def send(self, requests: Sequence[tuple[RequestEntry, bytes]]) -> dict[str, tuple[int, Offset]]:
        """Send requests with their values, all or none; return the partition and offset of each, in order.

        Raises: LogError: either all requests are sent or none; the next sender finds out by reading the topic back.
        """
        places: dict[str, tuple[int, Offset]] = {}

        def note(error: KafkaError | None, message: Message) -> None:
            key, partition, offset = message.key(), message.partition(), message.offset()
            if error is None and key is not None and partition is not None and offset is not None:
                places[key.decode() if isinstance(key, bytes) else key] = (partition, Offset(offset))

        try:
            self._producer.begin_transaction()
            for entry, value in requests:
                key = entry.id.encode()
                headers: list[tuple[str, str | bytes | None]] = [header_of(entry.at_ms, self._key, key, value)]
                if entry.answers_from is not None:
                    headers.append(answers_header_of(entry.answers_from, self._key, key, value))
                self._producer.produce(
                    self._topic, key=key, value=value, headers=headers, timestamp=entry.stamped_ms, on_delivery=note
                )
        except KafkaException as error:
            raise self._fault("sending requests", error) from error
        self._try("sending requests", lambda: self._producer.commit_transaction(_TRY_S))
        return places

    def _try(self, doing: str, step: Callable[[], object]) -> None:
        """Repeat a step until it succeeds or fails for good. The step must allow retries."""
        while True:
            try:
                step()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or self._is_over():
                    raise self._fault(doing, error) from error

    def _fault(self, doing: str, error: KafkaException) -> Exception:
        with contextlib.suppress(KafkaException):  # a fenced producer raises at every call
            self._producer.poll(0)  # delivers the client's own errors
        return fault(error.args[0], doing, self._connection, self._errors, self._topic)
