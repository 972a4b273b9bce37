"""Random records in the topics of requests and answers, and random requests to the dashboard: nothing ends by them."""

import contextlib
import logging
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from falkirk.http_source import bridge as module
from falkirk.http_source.bridge import Answers, KafkaBridge, Requests, _resumed
from falkirk.http_source.elapsed import ELAPSED_HEADER, header_of
from falkirk.http_source.registry import RequestRegistry, digest_of, read_back
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.signing import ForeignTally, SigningKey, Verifier
from falkirk.runtime.spark.foreign import _by_header, _by_time
from tests.strategies import DEEP, LONG, documents, examples, objects
from tests.unit.dashboard.recorded import TOKEN, served, shop

quick = settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
KEY = SigningKey(secret=bytes(32), since_birth=True)
OURS_MS = 1_800_000_000_000

raw = st.none() | st.binary(max_size=20) | st.sampled_from([b"a", b"\xff", DEEP[:1_000], LONG.encode()])
times = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-1, 0, OURS_MS, 2**63 - 1])
names = st.sampled_from([ELAPSED_HEADER, "falkirk", ""]) | st.text(max_size=5)
headers = st.lists(st.tuples(names, raw | st.just(b"9" * 15 + b"/" + b"0" * 24)), max_size=3)


@st.composite
def messages(draw: st.DrawFn) -> Any:
    """Draw a record of somebody else."""
    key, value, at_ms, partition = draw(raw), draw(raw), draw(times), draw(st.integers(0, 1))
    given_headers = draw(st.none() | headers)
    return message(key, value, given_headers, at_ms, partition)


def message(key: Any, value: Any, found: Any, at_ms: int, partition: int = 0, offset: int = 0) -> Any:
    return SimpleNamespace(
        key=lambda: key, value=lambda: value, headers=lambda: found, timestamp=lambda: (1, at_ms),
        partition=lambda: partition, offset=lambda: offset, error=lambda: None,
    )  # fmt: skip


class Reader:
    """Reads all messages at once."""

    def __init__(self, found: list[Any]) -> None:
        self._found = found

    def poll(self, timeout_s: float) -> list[Any]:
        found, self._found = self._found, []
        return found


def bridge(found: list[ForeignTally]) -> KafkaBridge:
    requests = Requests(topic="t", key=KEY.of("t", "requests"), on_foreign=found.append)
    verifier = Verifier("answers", "deadbeef", KEY)
    answers = Answers(topic="answers", verifier=lambda: verifier, on_foreign=found.append)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Topics", lambda connection: None)
        return KafkaBridge(cast(Connection, None), requests, answers, 3_600.0, cast(Any, None), cast(Any, None))


@quick
@given(st.lists(messages(), max_size=6), st.integers(0, 6))
def test_records_of_others_among_requests_change_nothing_for_those_of_this_home(theirs: list[Any], at: int) -> None:
    ours = message(b"a", b"v", [header_of(OURS_MS, KEY.of("t", "requests"), b"a", b"v")], OURS_MS)
    theirs = [m for m in theirs if (m.key(), m.value()) != (b"a", b"v")]
    everything = [*theirs[:at], ours, *theirs[at:]]
    line, foreign = bridge([]), ForeignTally()
    for number, each in enumerate(everything):
        each.offset = lambda number=number: number
    book = read_back((line._known(m, foreign) for m in everything), OURS_MS + 10**9)
    entry = book.find("a", digest_of(b"v"))
    assert entry is not None
    assert (entry.at_ms, entry.is_foreign) == (OURS_MS, False)
    assert foreign.count == len(theirs)
    elapsed = _resumed(None, book)
    assert OURS_MS <= elapsed.now_ms() < OURS_MS + 60_000
    book.accept({0: 99, 1: 99})
    book.silence({0: 99, 1: 99})
    book.forget(elapsed.now_ms() - 3_600_000)
    assert book.find("a", digest_of(b"v")) is entry
    book.forget(elapsed.now_ms() + 2 * 10**9)
    assert book.find("a", digest_of(b"v")) is None
    assert book.weight_bytes >= 0


@quick
@given(st.lists(messages(), max_size=6))
def test_records_of_others_among_answers_answer_nobody(theirs: list[Any]) -> None:
    foreign: list[ForeignTally] = []
    line, posted = bridge(foreign), list[object]()
    line._post = lambda *arguments, **named: posted.append(arguments)  # type: ignore[method-assign]
    line._tell(cast(Any, Reader(theirs)))
    assert posted == []
    assert [tally.count for tally in foreign] == ([len(theirs)] if theirs else [])


@quick
@given(messages())
def test_a_watch_judges_any_record(m: Any) -> None:
    for judge in (_by_header(Verifier("t", "deadbeef", KEY)), _by_time(KEY.of("t", "requests"))):
        assert judge(m) is not None


@quick
@given(st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3), st.none() | times, times), max_size=8), times)
def test_any_requests_can_be_read_back(found: list[tuple[str, bytes, int | None, int]], before_ms: int) -> None:
    book = read_back(((*each, 0, offset, None) for offset, each in enumerate(found)), OURS_MS)
    assert isinstance(book, RequestRegistry)
    book.accept({0: len(found)})
    book.silence({0: len(found)})
    book.forget(before_ms)
    book.forget(2**63)
    assert book.weight_bytes == 0
    assert book.disposable({0: len(found)}) == ({0: len(found)} if found else {})


# -- the dashboard ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a dashboard with a recorded application."""
    with served(*shop()) as (server, _, _):
        yield int(server.url.rpartition(":")[2])


header_values = st.binary(max_size=20).map(lambda found: found.replace(b"\r", b"").replace(b"\n", b""))
paths = st.sampled_from(
    [
        b"/",
        b"*",
        b"//[",
        *(b"/api/" + name for name in (b"stream", b"letters", b"failure", b"preview", b"rollback", b"%00")),
    ]
)
queries = st.sampled_from(
    [b"", b"?", b"?unit=sales", b"?cut=1", b"?cut=" + LONG.encode(), b"?cut=-1&cut=x", b"?a=%ff&" * 30]
)


@st.composite
def asked(draw: st.DrawFn) -> bytes:
    """Draw a request that is similar to a valid one."""
    body = draw(documents(objects("cut", "force", "shown")))[:2_000]
    method = draw(st.sampled_from([b"GET", b"GET", b"POST", b"POST", b"HEAD", b"PUT", b"\xff", b""]))
    length = draw(st.sampled_from([str(len(body)).encode()] * 3 + [b"-1", b"9" * 30, "²".encode(), b"x", b""]))
    lines = [(b"Host", draw(st.sampled_from([b"127.0.0.1", b"[", b"evil", b""]))), (b"Content-Length", length)]
    if draw(st.booleans()):
        lines.append((b"Authorization", b"Bearer " + TOKEN.encode()))
    names = st.sampled_from([b"Origin", b"Authorization", b"Cookie", b"Sec-Fetch-Site", b"Content-Type", b"Expect"])
    lines += draw(st.lists(st.tuples(names, header_values), max_size=2))
    head = b"%s %s%s HTTP/1.1\r\n" % (method, draw(paths), draw(queries))
    return head + b"".join(b"%s: %s\r\n" % line for line in lines) + b"\r\n" + body


@quick
@given(asked() | st.binary(max_size=80))
@example(b"POST /api/rollback HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n" + DEEP[:1_000])
def test_the_dashboard_answers_any_request(port: int, caplog: pytest.LogCaptureFixture, request_: bytes) -> None:
    caplog.clear()
    caplog.set_level(logging.DEBUG, logger="falkirk")
    with socket.create_connection(("127.0.0.1", port), 20) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(request_)
        connection.shutdown(socket.SHUT_WR)
        line = connection.makefile("rb").readline()
        if line.startswith(b"HTTP/"):
            status = int(line.split()[1])
            assert status in (200, 501) or 300 <= status < 500, line  # 501: a method that HTTP does not have
    failed = [r.exc_info[1] for r in caplog.records if r.message == "a request failed" and r.exc_info]
    assert not [error for error in failed if not isinstance(error, OSError)], failed
