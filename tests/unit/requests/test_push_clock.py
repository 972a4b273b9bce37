"""Changes of the machine's clock: no remembered request runs twice, and none is remembered forever."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.http_source import bridge as module
from falkirk.http_source import registry as registry_module
from falkirk.http_source.bridge import Answers, KafkaBridge, Pace, Progress, Requests, _resumed
from falkirk.http_source.elapsed import Elapsed, elapsed_of, header_of
from falkirk.http_source.errors import RequestError
from falkirk.http_source.registry import SKEW_MS, RequestEntry, RequestRegistry, digest_of, read_back
from falkirk.http_source.service import RequestService
from falkirk.kafka_client.connection import Connection
from tests.clock import SetClock
from tests.support import wait_until

WINDOW_S = 3600.0
KEY = b"the key of the topic"
REQUESTS = Requests(topic="t", key=KEY, on_foreign=lambda found: None)


def signed(name: str, at_ms: int) -> list[tuple[str, bytes]]:
    """Return the headers of a request with the value `v`."""
    return [header_of(at_ms, KEY, name.encode(), b"v")]


class Topic:
    """A topic of requests."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.trimmed = 0
        self.clock = SetClock()

    def first_positions(self, topic: str) -> dict[int, int]:
        return {0: 0}

    def readable_positions(self, topic: str) -> dict[int, int]:
        return {0: len(self.ids)}

    def send(self, requests: list[tuple[RequestEntry, bytes]]) -> dict[str, tuple[int, int]]:
        begin = len(self.ids)
        self.ids += [entry.id for entry, _ in requests]
        return {each: (0, begin + i) for i, each in enumerate(self.ids[begin:])}

    def delete_below(self, topic: str, positions: dict[int, int]) -> None:
        self.trimmed = positions[0]


Story = Callable[[KafkaBridge, Callable[[str], Awaitable[str]]], Awaitable[None]]


class AnswersReader:
    """A reader of answers: each request gets one, whose timestamp is the present time. At the start there are none."""

    def __init__(self, topic: Topic, first: Mapping[int, int]) -> None:
        self._topic, self.positions = topic, dict(first)

    def poll(self, timeout_s: float) -> list[Any]:
        threading.Event().wait(timeout_s)
        begin, now_ms = self.positions[0], int(self._topic.clock.time() * 1000)
        ids = self._topic.ids[begin:]
        self.positions[0] += len(ids)
        return [
            SimpleNamespace(
                key=lambda e=e: e.encode(), value=lambda e=e: e.encode(), timestamp=lambda: (0, now_ms),
                partition=lambda: 0, offset=lambda i=i: begin + i,
            )
            for i, e in enumerate(ids)
        ]  # fmt: skip

    def is_at(self, ends: Mapping[int, int]) -> bool:
        return self.positions[0] >= ends.get(0, 0)

    def close(self) -> None:
        """Do nothing."""


def play(topic: Topic, monkeypatch: pytest.MonkeyPatch, story: Story, *, answers: bool = False) -> None:
    """Run a story with a bridge whose requests are accepted and acknowledged at once.

    Args: answers: requests have answers. Else they are only accepted.
    """
    monkeypatch.setattr(module, "RequestSender", lambda *_: topic)
    monkeypatch.setattr(module, "Topics", lambda connection: topic)
    monkeypatch.setattr(module, "Reader", lambda connection, name, first: AnswersReader(topic, first))

    async def run() -> None:
        bridges: list[KafkaBridge] = []
        service = RequestService(lambda entry, value: bridges[0].send(entry, value), topic.clock)
        verifier = cast(Any, lambda: SimpleNamespace(verify_message=lambda message: None))
        found = Answers(topic="answers", verifier=verifier, on_foreign=lambda tally: None) if answers else None
        bridge = KafkaBridge(
            cast(Connection, None), REQUESTS, found, WINDOW_S, service, asyncio.get_running_loop(), topic.clock,
            Pace(trim_s=0.02, poll_s=0.01),
        )  # fmt: skip
        bridges.append(bridge)
        bridge.update(Progress(accepted={0: 0 if answers else 1 << 60}, acknowledged={0: 1 << 60}))
        bridge.start()

        async def ask(request_id: str) -> str:
            while True:
                try:
                    entry = await service.ask(request_id, b"v", wants_answer=answers, timeout_s=5.0)
                except RequestError as error:
                    if error.condition != "NOT_READY":
                        return error.condition
                    await asyncio.to_thread(threading.Event().wait, 0.01)
                else:
                    return "done" if entry.answer is None else entry.answer.decode()

        try:
            await story(bridge, ask)
        finally:
            await asyncio.to_thread(bridge.stop)

    asyncio.run(run())


async def trims(bridge: KafkaBridge) -> None:
    """Wait until the bridge has looked a few times for requests to forget."""
    seen: list[object] = []
    forget, enough = bridge._service.forget, asyncio.Event()

    def counted(*arguments: Any) -> Any:
        seen.append(arguments)
        if len(seen) > 3:
            enough.set()
        return forget(*arguments)

    bridge._service.forget = counted  # type: ignore[method-assign]
    await asyncio.wait_for(enough.wait(), 30)


@pytest.mark.parametrize(
    ("jump_s", "by_machine", "sent"),
    [(2 * WINDOW_S, False, "ab"), (-2 * WINDOW_S, False, "ab"), (2 * WINDOW_S, True, "aba")],
)
def test_a_request_that_is_repeated_after_the_clock_was_set_runs_once(
    monkeypatch: pytest.MonkeyPatch, jump_s: float, by_machine: bool, sent: str
) -> None:
    """By the machine's clock, the gateway would forget a request, and a retry would run twice."""
    topic = Topic()
    if by_machine:
        monkeypatch.setattr(Elapsed, "now_ms", lambda self: int(topic.clock.time() * 1000))

    async def story(bridge: KafkaBridge, ask: Callable[[str], Awaitable[str]]) -> None:
        assert await ask("a") == "done"
        topic.clock.ahead_s = jump_s
        assert await ask("b") == "done"
        await trims(bridge)
        assert await ask("a") == "done"

    play(topic, monkeypatch, story)
    assert topic.ids == [*sent]
    assert bool(topic.trimmed) is by_machine


def by_timestamp(stamped_ms: int, place: object, entry: RequestEntry) -> bool:
    return stamped_ms >= entry.stamped_ms - SKEW_MS


@pytest.mark.parametrize("by_position", [True, False])
def test_a_client_gets_its_answer_although_the_clock_was_set_back_meanwhile(
    monkeypatch: pytest.MonkeyPatch, by_position: bool
) -> None:
    """By its timestamp, the answer is older than its request, and might be that of an earlier request with its id."""
    topic, found = Topic(), list[str]()
    if not by_position:
        monkeypatch.setattr(registry_module, "_can_answer", by_timestamp)

    async def story(bridge: KafkaBridge, ask: Callable[[str], Awaitable[str]]) -> None:
        found.append(await ask("a"))
        send = bridge.send

        def set_back(entry: RequestEntry, value: bytes) -> None:
            topic.clock.ahead_s = -WINDOW_S
            send(entry, value)

        monkeypatch.setattr(bridge, "send", set_back)
        asked = asyncio.ensure_future(ask("b"))
        await asyncio.to_thread(wait_until, lambda: "b" in topic.ids, 30, "the request to be sent")
        bridge.update(Progress(accepted={0: 2}, acknowledged={0: 0}))
        found.append(await asked)

    play(topic, monkeypatch, story, answers=True)
    assert found == (["a", "b"] if by_position else ["a", "done"])


def test_the_next_gateway_goes_by_what_the_topic_says_and_not_by_a_clock_that_was_set() -> None:
    """Between two requests the clock is set forward by more than the window.

    By its timestamp, the first request is old.
    """
    minute, hour = 60_000, 3_600_000
    stamped = {"a": 10 * hour, "b": 15 * hour}
    headers = {name: signed(name, at_ms) for name, at_ms in (("a", 10 * hour), ("b", 10 * hour + minute))}
    now = [0.0]
    registry = read_back(
        (n, b"v", elapsed_of(headers[n], KEY, n.encode(), b"v"), stamped[n], 0, i, None) for i, n in enumerate("ab")
    )
    newest_ms = registry.newest_ms()
    assert newest_ms is not None
    elapsed = Elapsed(newest_ms, lambda: now[0])
    registry.accept({0: 2})
    registry.silence({0: 2})
    remembered = []
    for now_s in (0.0, 3_000.0, 3_541.0, 3_601.0):
        now[0] = now_s
        registry.forget(elapsed.now_ms() - hour)
        remembered.append([n for n in "ab" if registry.find(n, digest_of(b"v")) is not None])
    assert remembered == [["a", "b"], ["a", "b"], ["b"], []]


def test_the_time_of_a_request_is_believed_if_its_gateway_has_signed_it() -> None:
    (header,) = signed("a", 7)
    name, text = header
    assert elapsed_of([("other", b"1"), header], KEY, b"a", b"v") == 7
    for headers, request, value in (
        (None, b"a", b"v"),
        ([(name, b"7")], b"a", b"v"),
        ([(name, None), (name, b"no number/" + text[2:])], b"a", b"v"),
        ([(name, b"8" + text[1:])], b"a", b"v"),
        ([header], b"b", b"v"),
        ([header], b"a", b"w"),
        ([(name, header_of(7, b"another key", b"a", b"v")[1])], b"a", b"v"),
    ):
        assert elapsed_of(headers, KEY, request, value) is None


def test_requests_of_an_older_falkirk_go_by_their_timestamps() -> None:
    book = read_back([("a", b"v", None, 5, 0, 0, None), ("b", b"v", None, 1 << 60, 0, 1, None)], now_ms=9)
    assert (book.newest_ms(), [book.find(n, digest_of(b"v")).at_ms for n in "ab"]) == (9, [5, 9])  # type: ignore[union-attr]


def test_a_time_that_nobody_checks_makes_requests_old() -> None:
    """Without the tag of a time, a record of another writer in the topic decides what is forgotten."""
    hour = 3_600_000
    book = read_back([("a", b"v", 10 * hour, 10 * hour, 0, 0, None), ("x", b"v", 20 * hour, 20 * hour, 0, 1, None)])
    known = _resumed(None, book)
    book.accept({0: 9})
    book.silence({0: 9})
    book.forget(known.now_ms() - hour)
    assert book.find("a", digest_of(b"v")) is None


@pytest.mark.parametrize("forged_ms", [0, 20 * 3_600_000, 10**14])
def test_a_forged_time_makes_no_request_old(forged_ms: int) -> None:
    """Another writer of the topic adds a record with another time. A retry must not run twice after the next start."""
    hour, forged = 3_600_000, (header_of(0, KEY, b"", b"")[0], str(forged_ms).encode())
    ours = [("a", signed("a", 10 * hour), 0), ("b", signed("b", 10 * hour + 60_000), 0)]
    theirs = [("a", [forged], 1), ("x", [forged], 1), ("y", None, 1)]
    for records in ([*theirs, *ours], [*ours, *theirs], [ours[0], *theirs, ours[1]]):
        book = read_back(
            (n, b"v", elapsed_of(headers, KEY, n.encode(), b"v"), forged_ms, partition, i, None)
            for i, (n, headers, partition) in enumerate(records)
        )
        known = _resumed(None, book)
        assert 10 * hour + 60_000 <= known.now_ms() < 10 * hour + 120_000
        book.accept({0: 9, 1: 9})
        book.silence({0: 9, 1: 9})
        book.forget(known.now_ms() - hour)
        for name in "ab":
            entry = book.find(name, digest_of(b"v"))
            assert entry is not None
            assert not entry.is_foreign


def test_a_line_that_begins_again_forgets_no_time_that_has_passed() -> None:
    """Otherwise a bridge that fails from time to time would remember requests forever."""
    registry = read_back([("a", b"v", 1_000, 1_000, 0, 0, None)])
    now = [0.0]
    known = Elapsed(5_000, lambda: now[0])
    assert _resumed(known, registry) is known
    assert _resumed(known, RequestRegistry()) is known
    later = _resumed(Elapsed(500, lambda: now[0]), registry)
    assert 1_000 <= later.now_ms() < 60_000, "another gateway has accepted requests meanwhile"
    assert _resumed(None, RequestRegistry()).now_ms() > 1_700_000_000_000
