"""A push source between HTTP's side and Kafka; the test plays the application."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from falkirk.http_source.bridge import PACE, Answers, KafkaBridge, Pace, Progress, Requests
from falkirk.http_source.service import RequestService
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.internal import KEEP
from falkirk.kafka_client.signing import ForeignTally, SigningKey, Verifier, tag_of
from falkirk.platform.machine_time import MachineTime
from tests.integration.live import Wire
from tests.support import wait_until

IDENTITY, KEY = "deadbeef", SigningKey(secret=bytes(32), since_birth=True)


class Gate:
    """A service and its line, in a separate loop; the test plays the application."""

    def __init__(
        self,
        wire: Wire,
        *,
        window_s: float = 3_600.0,
        answers: bool = True,
        pace: Pace = PACE,
        clock: MachineTime = time,
    ) -> None:
        self.wire, self.requests, self.answers = wire, f"requests-{wire.tag}", f"answers-{wire.tag}"
        for topic in (self.requests, self.answers):
            wire.topics.create(topic, 2, KEEP)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.foreign: list[ForeignTally] = []
        self.service = RequestService(lambda entry, value: self.line.send(entry, value), clock)
        connection = Connection.of(wire.bootstrap)
        self.line = KafkaBridge(
            connection, self._requests(), self._answers() if answers else None, window_s, self.service, self._loop,
            clock, pace,
        )  # fmt: skip
        self.line.start()
        wait_until(lambda: self.service._registry is not None, 60, "the service to be opened")

    def ask(self, request_id: str, *, wants_answer: bool = True, timeout_s: float = 60.0) -> Callable[[], Any]:
        """Ask; return a function that returns the response once the client has it."""
        asking = self.service.ask(request_id, value(request_id), wants_answer=wants_answer, timeout_s=timeout_s)
        return asyncio.run_coroutine_threadsafe(asking, self._loop).result

    def sent(self) -> list[str]:
        """Return the ids in the topic."""
        return [(record.key or b"").decode() for record in self.wire.records(self.requests) if record.value]

    def await_sent(self, number: int) -> None:
        wait_until(lambda: len(self.sent()) >= number, 30, f"{number} requests in the topic")

    def _requests(self) -> Requests:
        key = KEY.of(self.requests, "requests")
        return Requests(topic=self.requests, key=key, on_foreign=self.foreign.append)

    def _answers(self) -> Answers:
        verifier = Verifier(self.answers, IDENTITY, KEY)
        return Answers(topic=self.answers, verifier=lambda: verifier, on_foreign=self.foreign.append)

    def answer(self, request_id: str, *, at_ms: int = 0) -> None:
        """Answer as the application does, in partition 0. Args: at_ms: by the clock of the answer's machine."""
        told, text = value(request_id), f"{IDENTITY}/1/0.0.7/0/".encode()
        tag = tag_of(KEY.of(self.answers, 1), text, 0, request_id.encode(), told)
        self.last_header = text + tag.encode()
        self.put_answer(request_id, told, self.last_header, at_ms=at_ms)

    def put_answer(self, request_id: str, told: bytes, header: bytes | None, *, at_ms: int = 0) -> None:
        headers: list[tuple[str, str | bytes | None]] = [] if header is None else [("falkirk", header)]
        self.wire.producer.produce(
            self.answers, told, request_id.encode(), partition=0, headers=headers, timestamp=at_ms
        )
        assert self.wire.producer.flush(30) == 0

    def progress(self, *, acknowledged: bool = False) -> None:
        """Say that all is accepted that is in the topic now."""
        ends = self.wire.topics.end_positions(self.requests)
        self.line.update(Progress(accepted=ends, acknowledged=ends if acknowledged else {}))

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self.line.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def value(request_id: str) -> bytes:
    return json.dumps({"id": request_id}).encode()
