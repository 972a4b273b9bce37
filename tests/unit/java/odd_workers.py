"""Workers of test_python_calls.py that do not keep to the protocol, as a program: `odd_workers.py FILES`."""

import os
import signal
import socket
import struct
import sys

from falkirk.steps.live import row_worker


def is_first(what: str) -> bool:
    """Return whether no worker has done this before."""
    try:
        return bool(os.open(sys.argv[1] + what, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False


def serve(connection: socket.socket) -> None:
    """Answer each request as it says."""

    def take(size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            taken += connection.recv(size - len(taken)) or sys.exit()
        return taken

    def message() -> bytes:
        return take(*struct.unpack(">i", take(4)))

    def send(answer: bytes) -> None:
        connection.sendall(struct.pack(">i", len(answer)) + answer)

    if b"slow" in message() and is_first("slow"):
        signal.pause()
    send(b"\0")
    while True:
        request = message()
        what = request if request.endswith(b"!") or is_first(request.decode()) else b""
        if what.startswith(b"torn"):
            connection.sendall(struct.pack(">i", 100) + b"\0 half of it")
            sys.exit()
        if what.startswith(b"size"):
            connection.sendall(struct.pack(">i", -5))
        elif what.startswith(b"kind"):
            send(b"\7" + request)
        elif what.startswith(b"late"):
            signal.pause()
        elif what.startswith(b"last"):
            send(b"\2" + request)
        elif what.startswith(b"pair"):  # one of two that were sent together
            other = message()
            send(b"\0" + request)
            send(b"\0" + other)
        elif what.startswith(b"slowly"):
            for byte in struct.pack(">i", len(request) + 1) + b"\0" + request:
                connection.sendall(bytes([byte]))
        else:
            send(b"\0" + request)


if __name__ == "__main__":
    row_worker.main(serve)
