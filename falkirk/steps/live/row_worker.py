"""Row workers: processes that call a user's function for each row of a live region, over a Unix socket.

The Java module starts a fork server, which is this module as a program (ForkServer.java), and asks it for a worker
by a line with the address of a socket. The server has imported all that workers need, so a fork takes milliseconds.
Workers do not outlive their server, and the server ends when its stdin does.

A message is its size in four bytes, and then its bytes (PythonWorker.java). The server sends the worker's process id.
Then the worker gets a pickled function that answers requests. Answers have the order of the requests. They leave as
soon as no request waits, so a single row does not wait for others, and many rows share the calls of the operating
system.

Before an answer, a byte says what it is: ANSWER; REFUSAL: the function must not be called again, and the text says why;
LAST_ANSWER: the process has grown and ends, so the next request needs another one; UNSUITABLE: the Python of this
machine can't run the function, and the text says why.
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
import traceback
from collections.abc import Callable, Iterator
from typing import NoReturn

from pyspark import cloudpickle

from falkirk.steps.dataframes.user_function import traceback_text
from falkirk.steps.live.row_calls import RefusedRow

ANSWER, REFUSAL, LAST_ANSWER, UNSUITABLE = b"\0", b"\1", b"\2", b"\3"
_SIZE, _PID = struct.Struct(">i"), struct.Struct(">q")
#: The size of a read, and of the answers that wait while requests do.
_READ_BYTES, _WAITING_BYTES = 1 << 16, 1 << 16
#: After each so many answers, the process compares its memory with that after the first so many.
_LOOK_ANSWERS = 1_000
#: A process that has grown by more is replaced.
GROWN_BYTES_MAX = 1 << 30
_PARENT_S = 1.0


def serve(connection: socket.socket, *, missing: bytes = REFUSAL) -> None:
    """Answer requests until the socket is closed. Args: missing: the answer if a module of the function is missing."""
    waiting, out = _Messages(connection), bytearray()
    messages = iter(waiting)
    setup = next(messages, None)
    if setup is None:
        return
    try:
        calls: Callable[[bytes], bytes] = cloudpickle.loads(setup)
    except Exception as error:
        kind = missing if isinstance(error, ModuleNotFoundError) else REFUSAL
        _send(connection, out, kind, f"the function can't be loaded\n{traceback_text()}".encode())
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


def _end_with(server: int) -> None:
    """End this process when the fork server has died. A function that never returns would outlive it otherwise."""
    while os.getppid() == server:
        time.sleep(_PARENT_S)
    os._exit(1)


def _work(connection: socket.socket, server: int, serve: Callable[[socket.socket], None]) -> NoReturn:
    """Serve the JVM at the other end, in a process that was just forked, and end it."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a function that reads stdin must not get addresses
        threading.Thread(target=_end_with, args=(server,), daemon=True).start()
        if (numpy_random := sys.modules.get("numpy.random")) is not None:
            numpy_random.seed()  # else all workers would draw the same numbers; `random` does this by itself
        with contextlib.suppress(ConnectionError):
            serve(connection)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _reap(*_: object) -> None:
    """Read the exit codes of dead workers: without this, the JVM takes them for living processes."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def main(serve: Callable[[socket.socket], None] = serve) -> None:
    """Run a fork server: fork a worker for each address on stdin. Args: serve: serves the JVM at a connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the JVM decides when it ends
    signal.signal(signal.SIGCHLD, _reap)
    os.dup2(2, 1)  # the output of functions goes to the log, line by line
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    gc.collect()
    gc.freeze()  # else a collection in a worker would copy the pages that it shares with the server
    server = os.getpid()
    with open(0, "rb", buffering=0, closefd=False) as addresses:  # a worker must not have read the next one
        for line in addresses:
            with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
                connection.connect(line.removesuffix(b"\n"))  # refused: the JVM waits no longer
                worker = os.fork()
                if worker == 0:
                    _work(connection, server, serve)
                _send(connection, bytearray(), ANSWER, _PID.pack(worker))


if __name__ == "__main__":
    from falkirk.steps.live import row_worker, udf_worker  # noqa: F401  # classes have one module, however they are pickled

    row_worker.main()
