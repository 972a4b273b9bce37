"""Random input at each entrance of Falkirk's Python side: the result is a dead letter, a refusal or a 4xx status.

Each property lists all allowed outcomes. Anything else is an exception that would end the process.
"""

import asyncio
import contextlib
import errno
import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from aiohttp import web
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import falkirk as fk
from falkirk.errors.location import SourceLocation
from falkirk.http_source.connections import QuietLogger
from falkirk.http_source.elapsed import Elapsed
from falkirk.http_source.fits import encode, parse_body
from falkirk.http_source.registry import RequestRegistry
from falkirk.http_source.server import Counter, web_application
from falkirk.http_source.service import RequestService
from falkirk.kafka_client.header import Header, header_value
from falkirk.recovery.ownership.claim import Owner
from falkirk.user_tools.redrive.letters import parse_letter
from falkirk.user_tools.redrive.sending import parse_note
from tests.strategies import DEEP, LONG, documents, examples, objects, values
from tests.support import outcome

WHERE = SourceLocation(file="shop.py", line=1)
SOURCES = {"clicks": "events"}
quick = settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


# -- Kafka ------------------------------------------------------------------------------------------------------------


@quick
@given(
    st.none() | st.binary(max_size=30), documents(objects("reason", "topic", "partition", "offset", "value", "source"))
)
@example(None, DEEP)
@example(None, b'{"reason": "x", "topic": "events", "partition": true, "offset": 1}')
@example(None, b'{"reason": "x", "topic": "events", "partition": 99999999999, "offset": 1}')
@example(None, b'{"reason": "x", "topic": "events", "partition": 0, "offset": -5}')
@example(b"k", b'{"reason": "x", "topic": "events", "partition": 0, "offset": 1, "value": {"a": 1}}')
@example(None, b'{"reason": "x", "topic": "events", "partition": 0, "offset": 1, "value": "\\ud800"}')
@example(None, b'{"reason": "the function failed: x", "source": [], "partition": 0, "offset": 1}')
def test_a_dead_letter_is_an_input_that_can_be_asked_for_or_nothing(key: bytes | None, value: bytes) -> None:
    letter = parse_letter("counts", key, value, SOURCES)
    assert isinstance(letter.is_whole, bool)
    if letter.kind == "input":
        assert letter.origin is not None
        topic, partition, offset = letter.origin
        assert topic == "events"
        assert type(partition) is type(offset) is int
        assert 0 <= partition < 2**31
        assert 0 <= offset < 2**63
        if letter.is_whole and letter.value is not None:
            letter.value.encode()  # this is how it is sent again


@quick
@given(documents(st.lists(st.tuples(st.text(max_size=5), st.integers(), st.integers()), max_size=3)))
@example(DEEP)
@example(b"[[[], 1, 2]]")
@example(b"[1]")
def test_notes_of_what_was_sent_again_are_places(value: bytes) -> None:
    assert all(len(place) == 3 and isinstance(place[0], str) for place in parse_note(value) or ())


numbers = st.one_of(st.integers().map(str), st.sampled_from([LONG, "", "²", "-1", "+1", " 1", "1_0"]))
header_texts = st.builds(
    lambda application, parts, state: "/".join([application, parts[0], ".".join(parts[1:]), state]),
    st.sampled_from(["deadbeef", "DEADBEEF", "", "dead/beef"]), st.lists(numbers, min_size=4, max_size=6), numbers,
)  # fmt: skip


@quick
@given(st.one_of(st.binary(max_size=60), header_texts.map(lambda text: text.encode(errors="replace"))))
@example(b"deadbeef/" + LONG.encode() + b"/0.0.1/0")
@example(b"deadbeef/1/0.0.1/" + LONG.encode())
@example(b"deadbeef/1/0.0." + LONG.encode() + b"/0")
def test_a_header_is_one_of_ours_or_malformed(value: bytes) -> None:
    header = outcome(lambda: Header.decode(value))
    assert header == "HEADER_MALFORMED" or Header.decode(header.encode()) == header


@quick
@given(st.none() | st.lists(st.tuples(st.text(max_size=8) | st.just("falkirk"), st.none() | st.binary(max_size=9))))
def test_any_headers_can_be_looked_through(headers: list[tuple[str, bytes | None]] | None) -> None:
    found = header_value(headers)
    assert found is None or ("falkirk", found) in (headers or [])


@quick
@given(st.text(max_size=30) | st.lists(numbers, max_size=5).map(".".join))
def test_the_stamp_of_a_header_is_one_or_malformed(text: str) -> None:
    header = outcome(lambda: Header.decode(f"deadbeef/0/{text}/0".encode()))
    assert header == "HEADER_MALFORMED" or Header.decode(header.encode()).stamp == header.stamp


OWNER = ("machine", "pid", "began", "host", "home", "generation", "at_s")


@quick
@given(documents(st.fixed_dictionaries(dict.fromkeys(OWNER, values))), st.booleans())
@example(DEEP, False)
def test_a_claim_of_anybody_can_be_looked_after(value: bytes, is_of_this_machine: bool) -> None:
    from falkirk.platform import processes

    if is_of_this_machine:
        with contextlib.suppress(ValueError, TypeError):
            value = json.dumps({**json.loads(value), "machine": processes.machine()}).encode()
    owner = Owner.read(value)
    assert owner.has_ended() in (True, False, None)
    assert str(owner)


# -- HTTP -------------------------------------------------------------------------------------------------------------

COLUMNS: dict[str, DataType] = {
    "id": StringType(), "n": LongType(), "at": TimestampType(), "d": DateType(), "f": FloatType(), "b": BinaryType(),
    "l": ArrayType(IntegerType()), "m": MapType(StringType(), DoubleType()),
}  # fmt: skip
SCHEMA = StructType([StructField(name, kind, nullable=name != "id") for name, kind in COLUMNS.items()])


@quick
@given(documents(objects(*SCHEMA.names)))
@example(DEEP)
@example(b'{"id": "1", "n": ' + LONG.encode() + b"}")
@example(b'{"id": "1", "at": "9999-12-31T23:59:59-23:59"}')
def test_a_body_fits_or_is_refused_with_400(body: bytes) -> None:
    sent = outcome(lambda: encode(parse_body(body), SCHEMA))
    assert sent == "BODY_INVALID" or parse_body(sent)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server whose requests nobody answers; it reports at once that they take too long."""
    http = fk.Http("/queries", schema="id STRING", answers="replies", timeout="20 ms", where=WHERE)
    ready, loop = threading.Event(), asyncio.new_event_loop()
    found: list[int] = []

    async def serve() -> None:
        service = RequestService(lambda entry, value: None)
        service.open(RequestRegistry(), Elapsed(0))
        app = web_application({"/queries": Counter(http=http, service=service, schema=SCHEMA)}, "secret")
        runner = web.AppRunner(app, access_log=None, logger=QuietLogger())
        await runner.setup()
        listening = await loop.create_server(cast(Any, runner.server), "127.0.0.1", 0)
        found.append(listening.sockets[0].getsockname()[1])
        ready.set()
        await stopping.wait()
        listening.close()
        await runner.cleanup()

    stopping = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(30)
    yield found[0]
    loop.call_soon_threadsafe(stopping.set)
    thread.join()
    loop.close()


def asked(port: int, request: bytes) -> bytes:
    """Send bytes, and nothing more; return the first line of the answer."""
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            return connection.makefile("rb").readline()
        except OSError as error:  # the server has closed the connection, before it was shut down as well
            if not isinstance(error, ConnectionError) and error.errno != errno.ENOTCONN:
                raise
            return b""


header_bytes = st.binary(max_size=20).map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b""))
header_lines = st.tuples(
    st.sampled_from([b"Prefer", b"Request-Id", b"Content-Type", b"Authorization", b"Content-Encoding", b"Expect"]),
    header_bytes | st.sampled_from([b"wait=" + LONG.encode(), b"wait=-1, return=minimal", b"gzip", b"100-continue"]),
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Draw a request that is similar to a valid one."""
    body = draw(documents(objects("id", "n")))
    method = draw(st.sampled_from([b"POST", b"POST", b"POST", b"GET", b"PUT", b"\xff", b""]))
    path = draw(st.sampled_from([b"/queries", b"/queries", b"/queries?x=%ff", b"/%00", b"*", b"//", b"/\xff"]))
    length = draw(st.sampled_from([str(len(body)).encode(), str(len(body)).encode(), b"-1", b"9" * 30, b"x", b"0"]))
    headers = [(b"Host", b"x"), (b"Authorization", b"Bearer secret"), (b"Content-Length", length)]
    headers += draw(st.lists(header_lines, max_size=2))
    return b"%s %s HTTP/1.1\r\n" % (method, path) + b"".join(b"%s: %s\r\n" % h for h in headers) + b"\r\n" + body


@quick
@given(requests() | st.binary(max_size=80))
@example(b"POST /queries HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nContent-Length: 100000\r\n\r\n" + DEEP)
@example(
    b"POST /queries HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nContent-Length: 30\r\n"
    b'Content-Encoding: gzip\r\n\r\n{"n": null, "id": "1"'
)
@example(b"POST /%00 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: \x93\r\n\r\n{}")
def test_a_request_is_answered_by_a_refusal_or_not_at_all(
    port: int, caplog: pytest.LogCaptureFixture, request_: bytes
) -> None:
    caplog.clear()
    line = asked(port, request_)
    assert line[:9] in (b"", b"HTTP/1.1 ", b"HTTP/1.0 "), line
    status = int(line[9:12] or b"0")
    # 503: the server is busy at the moment. 504: the request was accepted, and has no answer yet.
    assert status in (0, 100, 503, 504) or 400 <= status < 500, line
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
