"""The Python side of calls by live regions: messages, answers, and its reports of rows on which a function fails."""

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psutil
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import types as T

from falkirk.platform import private
from falkirk.steps.dataframes.user_function import Fit, fitted
from falkirk.steps.live import row_worker
from falkirk.steps.live.row_calls import RefusedRow, RowCalls, StateCalls, TimerCalls, answer_of
from falkirk.steps.live.row_codec import RowCodec
from falkirk.steps.live.row_worker import ANSWER, LAST_ANSWER, REFUSAL, serve
from tests.support import is_alive, wait_until

GIVEN = T.StructType([
    T.StructField("n", T.IntegerType()), T.StructField("s", T.StringType()), T.StructField("at", T.TimestampType()),
])  # fmt: skip
RETURNS = T.StructType([T.StructField("x", T.DoubleType()), T.StructField("s", T.StringType())])


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def messages(data: bytes) -> Iterator[bytes]:
    while data:
        size = struct.unpack_from(">i", data)[0]
        yield data[4 : 4 + size]
        data = data[4 + size :]


def served(chunks: list[bytes]) -> list[bytes]:
    """Return the answers of a worker that gets chunks of bytes, and then the end of the socket."""
    mine, other = socket.socketpair()

    def serving() -> None:
        with other:
            serve(other)

    thread = threading.Thread(target=serving)
    thread.start()
    with mine:
        for chunk in chunks:
            mine.sendall(chunk)
        mine.shutdown(socket.SHUT_WR)
        found = b""
        while more := mine.recv(1 << 16):
            found += more
    thread.join()
    return list(messages(found))


def reverse(request: bytes) -> bytes:
    if request == b"no":
        raise RefusedRow("it said no")
    return request[::-1]


@settings(deadline=None)  # on a machine that may be busy
@given(st.lists(st.binary(max_size=9), max_size=9), st.lists(st.integers(0, 200), max_size=9))
def test_answers_have_the_order_of_requests_however_the_bytes_arrive(requests: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(framed, [cloudpickle.dumps(reverse), *requests]))
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[a:b] for a, b in pairwise(places)]
    refused = [REFUSAL + b"it said no" if each == b"no" else ANSWER + each[::-1] for each in requests]
    assert served(chunks) == [ANSWER, *refused]


@pytest.mark.parametrize("rest", [b"\0", framed(b"cut off")[:-1], struct.pack(">i", 2**31 - 1) + b"x"])
def test_a_message_that_is_cut_off_has_no_answer(rest: bytes) -> None:
    data = framed(cloudpickle.dumps(reverse)) + framed(b"abc")
    assert served([data + rest]) == [ANSWER, ANSWER + b"cba"]
    assert served([data[:9]]) == []


def test_a_function_that_can_not_be_loaded_is_refused() -> None:
    [refusal] = served([framed(b"no pickle")])
    assert refusal.startswith(REFUSAL + b"the function can't be loaded")


def test_a_process_that_has_grown_ends_after_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_worker, "has_grown", lambda answers: answers == 2)
    data = b"".join(map(framed, [cloudpickle.dumps(reverse), b"ab", b"cd", b"ef"]))
    assert served([data]) == [ANSWER, ANSWER + b"ba", LAST_ANSWER + b"dc"]


def test_growth_is_counted_from_the_first_answers_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        ru_maxrss = 0

    monkeypatch.setattr(row_worker.resource, "getrusage", lambda who: Usage)
    monkeypatch.setattr(row_worker.sys, "platform", "linux")
    Usage.ru_maxrss = 5 << 20  # a model of 5 GiB that the function has loaded
    assert not row_worker.has_grown(1_000)
    assert not row_worker.has_grown(1_500)
    Usage.ru_maxrss += 1 << 20
    assert not row_worker.has_grown(2_000)
    Usage.ru_maxrss += 1
    assert not row_worker.has_grown(2_999), "it looks now and then"
    assert row_worker.has_grown(3_000)


def asked(function: Callable[[Any], object], row: dict[str, Any], *, fails: bool = False) -> dict[str, Any]:
    calls = RowCalls(function=function, given=GIVEN, returns=RETURNS, zone="UTC", fails=fails)
    copy: RowCalls = cloudpickle.loads(cloudpickle.dumps(calls))
    assert copy(RowCodec(GIVEN).encode(row)) == calls(RowCodec(GIVEN).encode(row))
    return RowCodec(answer_of(RETURNS)).decode(calls(RowCodec(GIVEN).encode(row)))


ROW = {"n": 3, "s": "abc", "at": None}


@pytest.mark.parametrize(
    ("function", "results"),
    [
        (lambda row: None, []),
        (lambda row: {"x": row.n, "s": row.s}, [{"x": 3.0, "s": "abc"}]),
        (lambda row: [{"x": row.n / 2}, {"s": "y"}], [{"x": 1.5, "s": None}, {"x": None, "s": "y"}]),
        (lambda row: ({"x": i} for i in range(row.n)), [{"x": float(i), "s": None} for i in range(3)]),
    ],
)
def test_a_function_gives_rows(function: Callable[[Any], object], results: list[dict[str, Any]]) -> None:
    assert asked(function, ROW) == {
        "results": results,
        "reason": None,
        "value": None,
        "traceback": None,
        "is_timer": None,
    }


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda row: int(f"{row.n}x"), "the function failed: ValueError: invalid literal for int() with base 10: '3x'"),
        (lambda row: 5, "the function failed: TypeError: 'int' object is not iterable"),
        (lambda row: {"y": 1}, "the function failed: ValueError: result has no column 'y'; it has x, s"),
        (lambda row: ({"x": 1 // (1 - i)} for i in range(3)), "the function failed: ZeroDivisionError"),
    ],
)
def test_a_row_on_which_it_fails_becomes_a_dead_letter(function: Callable[[Any], object], reason: str) -> None:
    answer = asked(function, ROW)
    assert answer["reason"].startswith(reason)
    assert answer["value"] == '{"n": 3, "s": "abc", "at": null}'
    assert answer["traceback"].startswith("Traceback (most recent call last)")
    assert answer["results"] is None


def test_a_row_that_must_not_become_a_dead_letter_is_refused() -> None:
    with pytest.raises(RefusedRow) as caught:
        asked(lambda row: 1 // 0, ROW, fails=True)
    assert str(caught.value).startswith('the function failed on {"n": 3, "s": "abc", "at": null}\nTraceback')


def test_a_time_that_python_can_not_represent_is_in_the_dead_letter() -> None:
    calls = RowCalls(function=lambda row: row, given=GIVEN, returns=RETURNS, zone="UTC", fails=False)
    far = b"\1" + struct.pack(">i", 3) + b"\0" + b"\1" + struct.pack(">q", 253_402_300_800_000_000)
    answer = RowCodec(answer_of(RETURNS)).decode(calls(far))
    assert answer["reason"].startswith("the function failed: OverflowError")
    assert "10000-01-01 00:00:00" in answer["value"]


@given(
    st.sampled_from([T.BooleanType(), T.StringType(), T.DoubleType(), T.ByteType(), T.ShortType(), T.IntegerType(),
                     T.LongType()]),
    st.none() | st.booleans() | st.text(max_size=3) | st.floats() | st.integers(-(2**65), 2**65)
    | st.sampled_from([-(2**63), 2**63 - 1, 2**31, -129, "\ud800", b"x"]),
)  # fmt: skip
def test_values_are_those_that_spark_gets_through_arrow(kind: T.DataType, value: Any) -> None:
    fit = Fit("result", T.StructType([T.StructField("x", kind)]))

    def outcome(act: Callable[[], dict[str, Any]]) -> str:
        try:
            codec = RowCodec(T.StructType([T.StructField("x", kind)]))
            return codec.encode(act()).hex()
        except (TypeError, ValueError, OverflowError, pa.ArrowException):
            return "refused"

    by_arrow = outcome(lambda: fitted("result", fit._arrow, {"x": value})[1].to_pylist()[0])
    assert outcome(lambda: fit({"x": value})) == by_arrow


STATE = T.StructType([T.StructField("sum", T.LongType()), T.StructField("last", T.StringType())])
NONE, KEPT = struct.pack(">i", -1), struct.pack(">i", -2)


def folded(function: Callable[[Any, Any], object], state: bytes, row: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Return the state after a row, as PythonState.java has it, and the answer."""
    calls = StateCalls(
        function=function, given=GIVEN, returns=RETURNS, zone="UTC", fails=False, keys=("s",), state=STATE
    )
    copy: StateCalls = cloudpickle.loads(cloudpickle.dumps(calls))
    answer = copy(state + RowCodec(GIVEN).encode(row))
    size = 4 + max(0, struct.unpack_from(">i", answer)[0])
    return answer[:size], RowCodec(answer_of(RETURNS)).decode(answer[size:])


def summed(row: Any, state: Any) -> Any:
    total = row.n + (0 if state is None else state.sum)
    if total > 9:
        return None, None
    return {"x": total, "s": None if state is None else state.last}, {"sum": total, "last": row.s, "s": "the key"}


def test_a_function_gets_the_state_that_it_returned() -> None:
    first, answer = folded(summed, NONE, ROW)
    assert answer["results"] == [{"x": 3.0, "s": None}]
    second, answer = folded(summed, first, {**ROW, "s": "x"})
    assert answer["results"] == [{"x": 6.0, "s": "abc"}]
    assert second != first
    third, answer = folded(summed, second, {**ROW, "n": 4})
    assert (third, answer["results"]) == (NONE, [])


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda row, state: ({"x": 1}, {"sum": 1 // 0}), "ZeroDivisionError"),
        (lambda row, state: {"x": 1}, "is not (results, state)"),
        (lambda row, state: ({"x": 1}, {"other": 1}), "state has no column 'other'"),
        (lambda row, state: ({"x": "no number"}, {"sum": 1}), "the function failed: "),
        (lambda row, state: ({"x": 1}, {"sum": "no number"}), "the function failed: "),
    ],
)
def test_a_state_stays_when_the_function_fails(function: Callable[[Any, Any], object], reason: str) -> None:
    before, _ = folded(summed, NONE, ROW)
    after, answer = folded(function, before, ROW)
    assert after == KEPT
    assert reason in answer["reason"]
    assert answer["results"] is None


BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
TIMER_KEPT, NO_TIMER = -(2**63), -(2**63) + 1


def timed(
    function: Callable[[Any, Any], object], on_timer: Callable[[Any, Any, Any], object], state: bytes, asked: Any
) -> tuple[int, bytes, dict[str, Any]]:
    """Return the timer and the state after a row or a time, and the answer."""
    calls = TimerCalls(
        function=function, given=GIVEN, returns=RETURNS, zone="Asia/Tokyo", fails=False, keys=("S",), state=STATE,
        on_timer=on_timer,
    )  # fmt: skip
    copy: TimerCalls = cloudpickle.loads(cloudpickle.dumps(calls))
    time, row = (NO_TIMER, RowCodec(GIVEN).encode(asked)) if isinstance(asked, dict) else (asked, b"")
    answer = copy(struct.pack(">q", time) + state + row)
    (timer, size), rest = struct.unpack_from(">qi", answer), answer[8:]
    size = 4 + max(0, size)
    if isinstance(asked, dict) and state == NONE:
        assert calls.alone(row) == rest[size:]
    return timer, rest[:size], RowCodec(answer_of(RETURNS)).decode(rest[size:])


def micros(time: datetime) -> int:
    return round((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1_000_000


def never(*_: object) -> object:
    raise AssertionError("this function is not called")


def test_a_timer_is_set_kept_and_cleared() -> None:
    def waiting(row: Any, state: Any) -> Any:
        after = {"sum": row.n + (0 if state is None else state.sum), "last": row.s}
        return (None, after, *([] if row.n == 1 else [None if row.n == 2 else BEGAN + timedelta(minutes=row.n)]))

    found, state = [], NONE
    for n in (1, 2, 3):
        timer, state, answer = timed(waiting, never, state, {**ROW, "n": n})
        assert answer["results"] == []
        found.append(timer)
    assert found == [TIMER_KEPT, NO_TIMER, micros(BEGAN + timedelta(minutes=3))]
    assert timed(lambda row, s: (None, s, BEGAN.replace(tzinfo=None)), never, state, ROW)[0] == micros(BEGAN)

    def rung(key: Any, time: Any, state: Any) -> Any:
        assert (key.S, time, str(time.tzinfo)) == ("abc", BEGAN, "Asia/Tokyo")
        return {"x": state.sum}, {"sum": 0}, BEGAN + timedelta(seconds=1)

    timer, after, answer = timed(never, rung, state, micros(BEGAN))
    assert (timer, answer["results"]) == (micros(BEGAN) + 1_000_000, [{"x": 6.0, "s": None}])
    assert timed(never, lambda key, time, state: (None, None), after, micros(BEGAN))[:2] == (TIMER_KEPT, NONE)


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ((None, {"sum": 1}, 17), "17 is not the time of a timer"),
        ((None, None, BEGAN), "a timer needs a state"),
        ((None, {"sum": 1}, BEGAN), "is not after the one that fired at 2026-03-01T00:00:00+00:00"),
        (None, "is not (results, state) or (results, state, timer)"),
        ((None, {"sum": "x"}, BEGAN + timedelta(1)), "the function failed: "),
    ],
)
def test_a_timer_whose_function_fails_has_fired(returned: Any, reason: str) -> None:
    _, before, _ = timed(lambda row, state: (None, {"sum": 1}), never, NONE, ROW)
    timer, after, answer = timed(never, lambda *_: returned, before, micros(BEGAN))
    assert (timer, after) == (TIMER_KEPT, KEPT)
    assert reason in answer["reason"]
    assert answer["is_timer"] is True, "no record has failed"
    assert timed(lambda *_: 17, never, NONE, ROW)[2]["is_timer"] is False
    assert answer["value"] == '{"key": {"s": "abc"}, "timer": "2026-03-01 09:00:00+09:00"}'


def test_a_function_without_timers_returns_a_pair() -> None:
    _, answer = folded(lambda row, state: (None, None, None), NONE, ROW)
    assert answer["reason"].endswith("(None, None, None) is not (results, state)")


def test_a_worker_ends_when_its_fork_server_has_died() -> None:
    """The function never returns, so the end of the socket alone would not end it."""
    address = str(private.temporary_folder() / f"test-{os.getpid()}")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(1)
        try:
            server = subprocess.Popen([sys.executable, "-m", "falkirk.steps.live.row_worker"], stdin=subprocess.PIPE)
            assert server.stdin is not None
            server.stdin.write(f"{address}\n".encode())
            server.stdin.flush()
            connection, _ = listening.accept()
            with connection:
                worker = psutil.Process(struct.unpack(">icq", connection.recv(13))[2])
                assert worker.ppid() == server.pid

                def forever(request: bytes) -> bytes:
                    while True:
                        pass

                connection.sendall(framed(cloudpickle.dumps(forever)) + framed(b"abc"))
                assert connection.recv(5) == framed(ANSWER)
                server.kill()
                server.communicate()
                wait_until(lambda: not is_alive(worker), 30, "its end")
        finally:
            os.unlink(address)
