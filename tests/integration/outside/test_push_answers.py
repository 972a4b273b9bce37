"""Which answers belong to a request is known by positions, whatever the clocks of the machines say."""

import time
from collections.abc import Callable

from falkirk.http_source.bridge import Pace
from tests.integration.gate import Gate
from tests.support import wait_until

HOUR_MS = 3_600_000


def test_the_next_gateway_finds_an_answer_although_the_clock_was_set_back_before_it(
    gates: Callable[..., Gate],
) -> None:
    """The gateway starts again before the client has its answer, whose timestamp is older than its request."""
    gate = gates()
    gate.ask("a")
    gate.await_sent(1)
    gate.close()
    gate.answer("a", at_ms=int(time.time() * 1000) - HOUR_MS)
    other = gates()
    waits = other.ask("a")
    other.progress()
    assert waits().answer == b'{"id": "a"}'
    assert other.sent() == ["a"]


def test_the_next_gateway_does_not_take_an_answer_to_an_earlier_request_with_the_same_id(
    gates: Callable[..., Gate],
) -> None:
    """The clock was ahead when the earlier request was answered, so its answer looks newer than the later request."""
    gate = gates(window_s=0.1, pace=Pace(trim_s=0.1))
    first = gate.ask("a")
    gate.await_sent(1)
    gate.answer("a", at_ms=int(time.time() * 1000) + HOUR_MS // 2)
    assert first().answer is not None
    gate.progress(acknowledged=True)
    wait_until(lambda: not gate.sent(), 30, "the request to be forgotten")
    gate.ask("a")
    gate.await_sent(1)
    gate.close()
    other = gates()
    waits = other.ask("a")
    other.progress()
    assert waits().is_silent, "the only answer is that of the earlier request"
