"""The bridge between a service and Kafka: after a restart it sends no request that only the former service knows."""

import asyncio
import threading
import time
from typing import Any, cast

import pytest

from falkirk.errors import LogError
from falkirk.http_source import bridge as module
from falkirk.http_source.bridge import KafkaBridge, Pace, Requests
from falkirk.http_source.errors import RequestError
from falkirk.http_source.registry import RequestEntry, RequestRegistry, read_back
from falkirk.http_source.service import RequestService
from falkirk.kafka_client.connection import Connection

REQUESTS = Requests(topic="t", key=b"", on_foreign=lambda found: None)


class Topic:
    """A topic of requests, whose first sender fails on the request `bad`."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.senders = 0

    def sender(self, *_: Any) -> "Sender":
        self.senders += 1
        return Sender(self, is_first=self.senders == 1)

    def read_back(self) -> RequestRegistry:
        at_ms = int(time.time() * 1000)
        return read_back((each, b"v", at_ms, at_ms, 0, offset, None) for offset, each in enumerate(self.ids))


class Sender:
    def __init__(self, topic: Topic, *, is_first: bool) -> None:
        self._topic, self._is_first = topic, is_first

    def send(self, requests: list[tuple[RequestEntry, bytes]]) -> dict[str, tuple[int, int]]:
        ids = [entry.id for entry, _ in requests]
        if self._is_first and "bad" in ids:
            raise LogError("BROKER_AWAY", "away.")
        begin = len(self._topic.ids)
        self._topic.ids += ids
        return {each: (0, begin + i) for i, each in enumerate(ids)}


def test_what_is_asked_while_it_fails_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop is busy for longer than the bridge waits before its restart."""
    topic = Topic()
    monkeypatch.setattr(module, "RequestSender", topic.sender)
    monkeypatch.setattr(module, "Topics", lambda connection: None)
    monkeypatch.setattr(KafkaBridge, "_read_back", lambda self: topic.read_back())

    async def story() -> None:
        bridges: list[KafkaBridge] = []
        service = RequestService(lambda entry, value: bridges[0].send(entry, value))
        bridge = KafkaBridge(
            cast(Connection, None), REQUESTS, None, 3600, service, asyncio.get_running_loop(), pace=Pace(pause_s=0.1)
        )
        bridges.append(bridge)
        bridge.start()

        async def ask(request_id: str, timeout_s: float = 0.2) -> str:
            try:
                await service.ask(request_id, b"v", wants_answer=False, timeout_s=timeout_s)
            except RequestError as error:
                return error.condition
            return "done"

        async def sent(request_id: str) -> None:
            while await ask(request_id) != "RESULT_AWAITED":
                await asyncio.to_thread(threading.Event().wait, 0.05)

        try:
            await sent("first")
            failing = asyncio.ensure_future(ask("bad", 20.0))
            asyncio.get_running_loop().call_soon(time.sleep, 1.0)  # blocks the loop for a second
            meanwhile = asyncio.ensure_future(ask("a", 20.0))
            assert (await failing, await meanwhile) == ("BROKER_AWAY", "BROKER_AWAY")
            await sent("a")
            assert topic.ids == ["first", "a"]
        finally:
            await asyncio.to_thread(bridge.stop)

    asyncio.run(story())
