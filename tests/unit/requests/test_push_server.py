"""Requests over HTTP with a fake topic: which responses clients get, and when."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from pyspark.sql.types import StringType, StructField, StructType

import falkirk as fk
from falkirk.http_source import service as services
from falkirk.http_source.elapsed import Elapsed
from falkirk.http_source.errors import passing_error
from falkirk.http_source.registry import RequestEntry, RequestRegistry, read_back
from falkirk.http_source.server import BODY_BYTES_MAX, Counter, web_application
from falkirk.http_source.service import AWAY_S, RequestService

TOKEN = "secret"
HTTP = fk.Http("/queries", schema="id STRING NOT NULL, word STRING", answers="replies", timeout="20 seconds")
SCHEMA = StructType([StructField("id", StringType(), nullable=False), StructField("word", StringType())])


class Log:
    """A topic of requests that keeps its requests until the test answers them."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.sent: list[tuple[str, bytes]] = []
        self.service = RequestService(lambda entry, value: self.take(entry, value))
        self.takes = True
        self.elapsed = Elapsed(0, lambda: self.now_s)
        self.service.open(RequestRegistry(), self.elapsed)

    def take(self, entry: RequestEntry, value: bytes) -> None:
        self.sent.append((entry.id, value))
        if self.takes:
            self.service.sent({entry.id: (0, len(self.sent) - 1)})

    def answer(self, request_id: str, value: bytes = b'{"n":1}') -> None:
        self.service.answered([(request_id, value, int(time.time() * 1000), (0, 0))])


class Client:
    """A client with the token, on a separate event loop."""

    def __init__(self, http: TestClient[Any, Any], log: Log) -> None:
        self.http, self.log = http, log

    async def post(self, json: Any = None, *, headers: dict[str, str] | None = None, **options: Any) -> ClientResponse:
        all_headers = {"Authorization": f"Bearer {TOKEN}"} | (headers or {})
        return await self.http.post("/queries", json=json, headers=all_headers, **options)

    async def waiting(self, number: int = 1, **options: Any) -> list["asyncio.Task[ClientResponse]"]:
        """Return tasks that post the request "a", once all of them wait."""
        tasks = [asyncio.ensure_future(self.post({"id": "a"}, **options)) for _ in range(number)]
        while self.log.service._waits < number:
            await turn()
        return tasks


def served(story: Callable[[Client], Awaitable[None]], http: fk.Http = HTTP) -> None:
    """Run a story with a client of a server."""

    async def run() -> None:
        log = Log()
        app = web_application({"/queries": Counter(http=http, service=log.service, schema=SCHEMA)}, TOKEN)
        async with TestClient(TestServer(app)) as client:
            async with asyncio.timeout(30):
                await story(Client(client, log))

    asyncio.run(run())


async def turn() -> None:
    """Let other tasks of the loop run."""
    nobody: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    await asyncio.wait([nobody], timeout=0.005)


async def refusal(response: ClientResponse) -> tuple[int, str]:
    return response.status, (await response.json())["condition"]


def test_a_client_gets_its_answer_when_it_is_there_and_the_same_again_later() -> None:
    async def story(client: Client) -> None:
        (asking,) = await client.waiting()
        client.log.service.accepted({0: 1}, is_silent=False)
        await turn()
        assert not asking.done(), "a request can be accepted before it is answered"
        client.log.answer("a")
        response = await asking
        assert (response.status, await response.json(), response.headers["Request-Id"]) == (200, {"n": 1}, "a")
        assert (await (await client.post({"id": "a"})).json()) == {"n": 1}
        assert len(client.log.sent) == 1

    served(story)


def test_clients_that_ask_the_same_meanwhile_share_one_request() -> None:
    async def story(client: Client) -> None:
        asking = await client.waiting(3)
        client.log.answer("a")
        assert [(await r).status for r in asking] == [200, 200, 200]
        assert client.log.sent == [("a", b'{"id":"a"}')]
        assert await refusal(await client.post({"id": "a", "word": "x"})) == (409, "REQUEST_DIFFERS")

    served(story)


def test_without_deduplication_a_retry_is_sent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestRegistry, "find", lambda self, request_id, digest: None)

    async def story(client: Client) -> None:
        asking = await client.waiting(2)
        assert len(client.log.sent) == 2
        for task in asking:
            task.cancel()

    served(story)


def test_one_that_wants_no_answer_is_acknowledged_when_all_is_outside() -> None:
    async def story(client: Client) -> None:
        (asking,) = await client.waiting(headers={"Prefer": "return=minimal"})
        client.log.answer("a")
        client.log.service.accepted({0: 0}, is_silent=False)
        await turn()
        assert not asking.done()
        client.log.service.accepted({0: 1}, is_silent=False)
        response = await asking
        assert (response.status, await response.read()) == (204, b"")

    served(story)


def test_a_source_without_answers_acknowledges() -> None:
    async def story(client: Client) -> None:
        (asking,) = await client.waiting()
        client.log.service.accepted({0: 1}, is_silent=True)
        assert (await asking).status == 204

    served(story, fk.Http("/queries", schema="id STRING NOT NULL, word STRING"))


def test_a_request_of_which_nothing_comes_is_told_so() -> None:
    async def story(client: Client) -> None:
        (asking,) = await client.waiting()
        client.log.service.accepted({0: 1}, is_silent=True)
        assert (await asking).status == 204

    served(story)


def test_an_id_comes_from_the_header_the_column_or_chance() -> None:
    async def story(client: Client) -> None:
        now = {"Prefer": "wait=0"}
        first = await client.post({"word": "x"}, headers=now | {"Request-Id": "h"})
        assert (first.headers["Request-Id"], client.log.sent[-1]) == ("h", ("h", b'{"id":"h","word":"x"}'))
        made = await client.post({"word": "x"}, headers=now)
        assert made.headers["Request-Id"] == (await made.json())["id"] == client.log.sent[-1][0]
        for body, headers in (
            ({"id": "a"}, {"Request-Id": "b"}), ({"id": ""}, {}), ({"id": 7}, {}), ({"id": "x" * 201}, {}),
            ({"id": "a\nb"}, {}),
        ):  # fmt: skip
            assert await refusal(await client.post(body, headers=headers)) == (400, "REQUEST_ID_INVALID")
        assert len(client.log.sent) == 2

    served(story)


def test_what_is_wrong_with_a_request_is_told_before_anything_is_sent() -> None:
    async def story(client: Client) -> None:
        for data in (b"x", b"[]", b'{"id": "a", "word": 1}', b'{"id": "a", "wrod": "x"}'):
            assert await refusal(await client.post(data=data)) == (400, "BODY_INVALID")
        large = b'{"id": "a", "word": "' + b"x" * BODY_BYTES_MAX + b'"}'
        assert await refusal(await client.post(data=large)) == (413, "BODY_TOO_LARGE")
        for token in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", "Bearer \xff"):
            response = await client.http.post("/queries", json={"id": "a"}, headers={"Authorization": token})
            assert await refusal(response) == (401, "TOKEN_WRONG")
            assert response.headers["WWW-Authenticate"] == "Bearer"
        mine = {"Authorization": f"bearer {TOKEN}"}
        assert await refusal(await client.http.post("/other", json={}, headers=mine)) == (404, "PATH_UNKNOWN")
        got = await client.http.get("/queries", headers=mine)
        assert (await refusal(got), got.headers["Allow"]) == ((405, "METHOD_UNKNOWN"), "POST")
        assert not client.log.sent

    served(story)


def test_a_text_may_grow_when_it_is_sent_and_not_beyond_what_fits() -> None:
    async def story(client: Client) -> None:
        body = b'{"id":"a","word":"' + b"\\n" * (BODY_BYTES_MAX // 2 - 20) + b'"}'
        assert (await client.post(data=body, headers={"Prefer": "wait=0"})).status == 504
        assert len(client.log.sent[0][1]) <= BODY_BYTES_MAX

    served(story)


def test_one_that_waited_too_long_may_ask_again() -> None:
    async def story(client: Client) -> None:
        late = await client.post({"id": "a"}, headers={"Prefer": "respond-async, wait=0"})
        assert await refusal(late) == (504, "RESULT_AWAITED")
        assert (late.headers["Retry-After"], late.headers["Request-Id"]) == ("1", "a")
        client.log.answer("a")
        assert (await client.post({"id": "a"})).status == 200
        assert len(client.log.sent) == 1

    served(story)


def test_while_kafka_takes_nothing_others_are_told_at_once() -> None:
    async def story(client: Client) -> None:
        client.log.takes = False
        assert await refusal(await client.post({"id": "a"}, headers={"Prefer": "wait=0"})) == (504, "RESULT_AWAITED")
        client.log.now_s += AWAY_S + 1
        refused = await client.post({"id": "b"})
        assert (await refusal(refused), refused.headers["Retry-After"]) == ((503, "BROKER_AWAY"), "5")
        assert await refusal(await client.post({"id": "a"}, headers={"Prefer": "wait=0"})) == (503, "BROKER_AWAY")
        assert [request_id for request_id, _ in client.log.sent] == ["a"]

    served(story)


def test_there_is_room_for_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "WAITING_MAX", 2)
    monkeypatch.setattr(services, "MEMORY_BYTES_MAX", 2_500)

    async def story(client: Client) -> None:
        asking = await client.waiting(2)
        assert await refusal(await client.post({"id": "b"})) == (503, "CLIENTS_TOO_MANY")
        client.log.answer("a", b"1" * 500)
        await asyncio.gather(*asking)
        late = {"Prefer": "wait=0"}
        assert await refusal(await client.post({"id": "b"}, headers=late)) == (504, "RESULT_AWAITED")
        assert await refusal(await client.post({"id": "c"}, headers=late)) == (504, "RESULT_AWAITED")
        assert await refusal(await client.post({"id": "d"})) == (429, "QUOTA_EXCEEDED"), (
            "the client's share is three quarters"
        )
        assert await refusal(await client.post({"id": "b"}, headers=late)) == (504, "RESULT_AWAITED"), (
            "the request still waits"
        )
        assert await refusal(await client.post({"id": "a"})) == (410, "ANSWER_EVICTED"), "the request never runs again"
        assert [request_id for request_id, _ in client.log.sent] == ["a", "b", "c"]

    served(story)


def test_a_client_that_is_gone_makes_room() -> None:
    async def story(client: Client) -> None:
        (asking,) = await client.waiting()
        asking.cancel()
        while client.log.service._waits:
            await turn()
        assert not client.log.service._waiting

    served(story)


def test_nobody_waits_at_a_desk_that_closes_and_it_opens_with_what_is_known() -> None:
    async def story(client: Client) -> None:
        asking = await client.waiting(2)
        client.log.service.close(passing_error("BEING_STOPPED", "stopped.", retry_after_s=10))
        for task in asking:
            assert await refusal(await task) == (503, "BEING_STOPPED")
        assert await refusal(await client.post({"id": "a"})) == (503, "BEING_STOPPED")
        client.log.service.sent({"a": (0, 0)})
        client.log.answer("a")
        client.log.service.accepted({0: 1}, is_silent=True)
        assert client.log.service.forget(9_000_000, {0: 1}) == {}
        client.log.service.open(read_back([("a", b'{"id":"a"}', 1_000, 1_000, 0, 0, None)]), client.log.elapsed)
        (again,) = await client.waiting()
        client.log.answer("a")
        assert (await again).status == 200
        assert len(client.log.sent) == 1

    served(story)


def test_until_the_application_is_planned_clients_are_told_that_it_starts() -> None:
    async def run() -> None:
        app = web_application(
            {"/queries": Counter(http=HTTP, service=RequestService(lambda entry, value: None))}, TOKEN
        )
        async with TestClient(TestServer(app)) as client:
            response = await client.post("/queries", json={"id": "a"}, headers={"Authorization": f"Bearer {TOKEN}"})
            assert await refusal(response) == (503, "NOT_READY")

    asyncio.run(run())
