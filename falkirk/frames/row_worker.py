"""Row worker: a process that calls a user's function for each row of a live region, over a Unix socket.

The Java module starts it and speaks to it (PythonWorker.java). A message is its size in four bytes, and then its bytes.
The first one is a pickled function that answers requests. Answers have the order of the requests. They leave as soon as
no request waits, so a single row does not wait for others, and many rows share the calls of the operating system.

Before an answer, a byte says what it is: ANSWER; REFUSAL: the function must not be called again, and the text says why;
LAST_ANSWER: the process has grown and ends, so the next request needs another one.
"""

import contextlib
import gc
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql import types as T

from falkirk.frames.row_codec import RowCodec
from falkirk.frames.user_function import (
    TEXT_MAX,
    Fit,
    poison_text,
    reason_of,
    results_of,
    row_text,
    traceback_text,
)

ANSWER, REFUSAL, LAST_ANSWER = b"\0", b"\1", b"\2"
_SIZE = struct.Struct(">i")
#: In place of the size of a state: there is none; it is as before.
_NONE, _KEPT = -1, -2
#: The size of a read, and of the answers that wait while requests do.
_READ_BYTES, _WAITING_BYTES = 1 << 16, 1 << 16
#: After each so many answers, the process compares its memory with that after the first so many.
_LOOK_ANSWERS = 1_000
#: A process that has grown by more is replaced.
GROWN_BYTES_MAX = 1 << 30
_PARENT_S = 1.0


class RefusedRow(Exception):
    """The user's function failed on a row, and the row must not become a dead letter."""


def answer_of(returns: T.StructType) -> T.StructType:
    """Return the columns of an answer: the results of a row, or what its dead letter says.

    Args: returns: the columns of a result.
    """
    return T.StructType([
        T.StructField("results", T.ArrayType(returns)), T.StructField("reason", T.StringType()),
        T.StructField("value", T.StringType()), T.StructField("traceback", T.StringType()),
    ])  # fmt: skip


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class _Codecs:
    """The parts of a worker that can't be pickled. It has them besides the function."""

    given: RowCodec
    shown: RowCodec
    answers: RowCodec
    fit: Fit
    make: Callable[..., Row]


@dataclass(kw_only=True)
class RowCalls:
    """Calls a user's function for each request, which is a row as bytes. It is pickled without its codecs.

    Args: function: of a row. given: the columns of rows. returns: those of results. zone: of timestamps. fails: see
        `RefusedRow`.
    """

    function: Callable[[Row], object]
    given: T.StructType
    returns: T.StructType
    zone: str
    fails: bool
    _codecs: _Codecs | None = field(default=None, init=False, repr=False)

    def __call__(self, request: bytes) -> bytes:
        """Return the answer to a request. Raises: RefusedRow."""
        return self._answer(request, self.function)

    def _answer(self, request: bytes, call: Callable[[Row], object], after: Callable[[], None] = _nothing) -> bytes:
        """Return the answer to a row. Args: after: is called when the results fit. Raises: RefusedRow."""
        codecs = self._codecs or self._made()
        row = None
        try:
            row = codecs.given.decode(request)
            found = results_of(call(codecs.make(*row.values())))
            results = [codecs.fit(each) for each in found]
            answer = {"results": results, "reason": None, "value": None, "traceback": None}
            encoded = codecs.answers.encode(answer)
            after()
            return encoded
        except Exception:
            text = traceback_text()
            if row is None:  # it has a value that Python can't represent
                row = codecs.shown.decode(request)
            if self.fails:
                raise RefusedRow(poison_text(row, text)) from None
            return codecs.answers.encode(
                {"results": None, "reason": reason_of(text), "value": row_text(row), "traceback": text[-TEXT_MAX:]}
            )

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_codecs": None}

    def _made(self) -> _Codecs:
        zone = ZoneInfo(self.zone)
        self._codecs = _Codecs(
            given=RowCodec(self.given, zone),
            shown=RowCodec(self.given, zone, _beyond),
            answers=RowCodec(answer_of(self.returns), zone),
            fit=Fit("result", self.returns),
            make=Row(*self.given.names),
        )
        return self._codecs


@dataclass(kw_only=True)
class StateCalls(RowCalls):
    """Calls a user's function with each row and the state of its key: PythonState.java has the form of requests.

    Args: function: takes a row and a state. keys: the columns of the key. state: the other columns of states.
    """

    function: Callable[..., object]
    keys: tuple[str, ...]
    state: T.StructType
    _states: tuple[RowCodec, Fit, Callable[..., Row]] | None = field(default=None, init=False, repr=False)

    def __call__(self, request: bytes) -> bytes:
        """Return the answer to a request. If the function fails, the state stays. Raises: RefusedRow."""
        codec, fit, make = self._states or self._made_states()
        size, rest = _SIZE.unpack_from(request)[0], request[_SIZE.size :]
        before = None if size == _NONE else make(*codec.decode(rest[:size]).values())
        kept, returned = _SIZE.pack(_KEPT), None

        def call(row: Row) -> object:
            nonlocal returned
            returned = self.function(row, before)
            if not isinstance(returned, tuple) or len(returned) != 2:
                raise TypeError(f"{returned!r} is not (results, state)")
            return returned[0]

        def keep() -> None:
            nonlocal kept
            assert isinstance(returned, tuple), "the function has returned it"
            state = returned[1].asDict() if isinstance(returned[1], Row) else returned[1]
            if isinstance(state, Mapping):  # the key is not part of the state, but may be in it, as in batches
                state = {name: value for name, value in state.items() if name not in self.keys}
            after = None if state is None else codec.encode(fit(state))
            kept = _SIZE.pack(_NONE) if after is None else _SIZE.pack(len(after)) + after

        answer = self._answer(rest[max(0, size) :], call, keep)
        return kept + answer

    def alone(self, request: bytes) -> bytes:
        """Return the answer to a row as the only one of its key, without the state. Raises: RefusedRow."""
        answer = self(_SIZE.pack(_NONE) + request)
        return answer[_SIZE.size + max(0, _SIZE.unpack_from(answer)[0]) :]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_codecs": None, "_states": None}

    def _made_states(self) -> tuple[RowCodec, Fit, Callable[..., Row]]:
        self._states = RowCodec(self.state, ZoneInfo(self.zone)), Fit("state", self.state), Row(*self.state.names)
        return self._states


def _beyond(kind: T.DataType, number: int) -> str:
    """Return the text of a time that Python can't represent."""
    is_date = isinstance(kind, T.DateType)
    plain = pa.date32() if is_date else pa.timestamp("us", "UTC" if isinstance(kind, T.TimestampType) else None)
    try:
        return str(pa.array([number], pa.int32() if is_date else pa.int64()).cast(plain).cast(pa.string())[0])
    except pa.ArrowException:
        return "out of range"


# -- the process ---------------------------------------------------------------------------------------------------


def serve(connection: socket.socket) -> None:
    """Answer requests until the socket is closed."""
    waiting, out = _Messages(connection), bytearray()
    messages = iter(waiting)
    setup = next(messages, None)
    if setup is None:
        return
    try:
        calls: Callable[[bytes], bytes] = cloudpickle.loads(setup)
    except Exception:
        _send(connection, out, REFUSAL, f"the function can't be loaded\n{traceback_text()}".encode())
        return
    gc.collect()
    gc.freeze()
    _send(connection, out, ANSWER, b"")
    for number, request in enumerate(messages, 1):
        kind = LAST_ANSWER if has_grown(number) else ANSWER
        try:
            answer = calls(request)
        except RefusedRow as refusal:
            kind, answer = REFUSAL, str(refusal).encode(errors="replace")
        _add(out, kind, answer)
        if kind != ANSWER or not waiting.has_another() or len(out) > _WAITING_BYTES:
            connection.sendall(out)
            out.clear()
        if kind == LAST_ANSWER:
            return


class _Messages:
    """The messages that arrive on a socket, in order. One that is cut off by the end of the socket is left out."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._read, self._at = connection, bytearray(), 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            while not self.has_another():
                more = self._connection.recv(_READ_BYTES)
                if not more:
                    return
                del self._read[: self._at]
                self._at = 0
                self._read += more
            first = self._at + _SIZE.size
            self._at = first + self._size()
            yield bytes(self._read[first : self._at])

    def has_another(self) -> bool:
        """Return whether a whole message has arrived."""
        there = len(self._read) - self._at
        return there >= _SIZE.size and there >= _SIZE.size + self._size()

    def _size(self) -> int:
        size: int = _SIZE.unpack_from(self._read, self._at)[0]
        return size


def _add(out: bytearray, kind: bytes, answer: bytes) -> None:
    out += _SIZE.pack(len(kind) + len(answer))
    out += kind
    out += answer


def _send(connection: socket.socket, out: bytearray, kind: bytes, answer: bytes) -> None:
    _add(out, kind, answer)
    connection.sendall(out)
    out.clear()


_first_bytes = 0


def has_grown(answers: int) -> bool:
    """Return whether the process has grown too much since its first answers. Args: answers: their number so far."""
    global _first_bytes
    if answers % _LOOK_ANSWERS:
        return False
    now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if answers == _LOOK_ANSWERS:
        _first_bytes = now
    return now - _first_bytes > GROWN_BYTES_MAX


def _end_with(parent: int) -> None:
    """End this process when its parent has died. A function that never returns would outlive it otherwise."""
    while os.getppid() == parent:
        time.sleep(_PARENT_S)
    os._exit(1)


def main(address: str) -> None:
    """Serve the JVM that listens at an address."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the JVM decides when it ends
    os.dup2(2, 1)  # the output of the function goes to the log
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(ConnectionError):
        connection.connect(address)
        serve(connection)


if __name__ == "__main__":
    from falkirk.frames import row_worker  # so that its classes have one module, however they are pickled

    row_worker.main(sys.argv[1])
