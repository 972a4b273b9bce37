"""Changes of the machine's clock: no remembered request runs twice, and none is remembered forever."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from falkirk.kafka.connection import Connection
from falkirk.push import bridge as module
from falkirk.push.bridge import KafkaBridge, Progress, _resumed
from falkirk.push.elapsed import Elapsed, elapsed_of, header_of
from falkirk.push.errors import RequestError
from falkirk.push.registry import Entry, RequestRegistry, digest_of, read_back
from falkirk.push.service import RequestService

WINDOW_S = 3600.0


class Topic:
    """A topic of requests."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.trimmed = 0

    def send(self, requests: list[tuple[Entry, bytes]]) -> dict[str, tuple[int, int]]:
        begin = len(self.ids)
        self.ids += [entry.id for entry, _ in requests]
        return {each: (0, begin + i) for i, each in enumerate(self.ids[begin:])}

    def delete_below(self, topic: str, positions: dict[int, int]) -> None:
        self.trimmed = positions[0]


Story = Callable[[KafkaBridge, Callable[[str], Awaitable[str]]], Awaitable[None]]


def play(topic: Topic, monkeypatch: pytest.MonkeyPatch, story: Story) -> None:
    """Run a story with a line whose requests are accepted and acknowledged at once."""
    monkeypatch.setattr(module, "Sender", lambda *_: topic)
    monkeypatch.setattr(module, "Topics", lambda connection: topic)
    monkeypatch.setattr(module, "_TRIM_S", 0.02)
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    monkeypatch.setattr(KafkaBridge, "_read_back", lambda self: RequestRegistry())

    async def run() -> None:
        lines: list[KafkaBridge] = []
        desk = RequestService(lambda entry, value: lines[0].send(entry, value))
        line = KafkaBridge(cast(Connection, None), "t", None, WINDOW_S, desk, asyncio.get_running_loop())
        lines.append(line)
        line.take(Progress(accepted={0: 1 << 60}, acknowledged={0: 1 << 60}))
        line.start()

        async def ask(request_id: str) -> str:
            while True:
                try:
                    await desk.ask(request_id, b"v", wants_answer=False, timeout_s=5.0)
                except RequestError as error:
                    if error.condition != "NOT_READY":
                        return error.condition
                    await asyncio.to_thread(threading.Event().wait, 0.01)
                else:
                    return "done"

        try:
            await story(line, ask)
        finally:
            await asyncio.to_thread(line.stop)

    asyncio.run(run())


async def trims(line: KafkaBridge) -> None:
    """Wait until the line has looked a few times for requests to forget."""
    seen: list[object] = []
    forget, enough = line._desk.forget, asyncio.Event()

    def counted(*arguments: Any) -> Any:
        seen.append(arguments)
        if len(seen) > 3:
            enough.set()
        return forget(*arguments)

    line._desk.forget = counted  # type: ignore[method-assign]
    await asyncio.wait_for(enough.wait(), 30)


@pytest.mark.parametrize("jump_s", [2 * WINDOW_S, -2 * WINDOW_S])
def test_a_request_that_is_repeated_after_the_clock_was_set_runs_once(
    monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    topic, real = Topic(), time.time

    async def story(line: KafkaBridge, ask: Callable[[str], Awaitable[str]]) -> None:
        assert await ask("a") == "done"
        monkeypatch.setattr(time, "time", lambda: real() + jump_s)
        assert await ask("b") == "done"
        await trims(line)
        assert await ask("a") == "done"

    play(topic, monkeypatch, story)
    assert topic.ids == ["a", "b"]
    assert topic.trimmed == 0


def test_the_next_gateway_goes_by_what_the_topic_says_and_not_by_a_clock_that_was_set() -> None:
    """Between two requests the clock is set forward by more than the window.

    By its timestamp, the first request is old.
    """
    minute, hour = 60_000, 3_600_000
    stamped = {"a": 10 * hour, "b": 15 * hour}
    headers = {name: [header_of(at_ms)] for name, at_ms in (("a", 10 * hour), ("b", 10 * hour + minute))}
    now = [0.0]
    book = read_back((n, b"v", elapsed_of(headers[n], stamped[n]), stamped[n], 0, i) for i, n in enumerate("ab"))
    newest_ms = book.newest_ms()
    assert newest_ms is not None
    elapsed = Elapsed(newest_ms, lambda: now[0])
    book.accept({0: 2})
    book.silence({0: 2})
    remembered = []
    for now_s in (0.0, 3_000.0, 3_541.0, 3_601.0):
        now[0] = now_s
        book.forget(elapsed.now_ms() - hour)
        remembered.append([n for n in "ab" if book.find(n, digest_of(b"v")) is not None])
    assert remembered == [["a", "b"], ["a", "b"], ["b"], []]


def test_requests_of_an_older_falkirk_go_by_their_timestamps() -> None:
    assert elapsed_of(None, 5) == 5
    assert elapsed_of([("other", b"1"), (header_of(1)[0], b"no number")], 5) == 5
    assert elapsed_of([("other", b"1"), header_of(7)], 5) == 7


def test_a_line_that_begins_again_forgets_no_time_that_has_passed() -> None:
    """Otherwise a line that fails from time to time would remember requests forever."""
    book = read_back([("a", b"v", 1_000, 1_000, 0, 0)])
    now = [0.0]
    known = Elapsed(5_000, lambda: now[0])
    assert _resumed(known, book) is known
    assert _resumed(known, RequestRegistry()) is known
    later = _resumed(Elapsed(500, lambda: now[0]), book)
    assert 1_000 <= later.now_ms() < 60_000, "another gateway has accepted requests meanwhile"
    assert _resumed(None, RequestRegistry()).now_ms() > 1_700_000_000_000
