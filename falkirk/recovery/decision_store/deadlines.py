"""Deadlines: one thread shuts down each connection of this process whose block takes too long.

A thread for each block cost two thirds of the CPU time of a short transaction in PostgreSQL.
"""

import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Deadlines:
    """The blocks that are under way, and the thread that ends those that take too long.

    The thread wakes at the first deadline that it knew of when it fell asleep, even if that block has ended. So a later
    deadline wakes nobody.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due_s: dict[socket.socket, float] = {}
        #: When the thread looks next, on the monotonic clock.
        self._looks_s = math.inf
        self._thread: threading.Thread | None = None

    @contextmanager
    def ending_after(self, seconds: float, connection: int) -> Iterator[None]:
        """Shut a connection down if the block takes longer: a caller that waits for an answer then gets an error.

        Args: connection: the file descriptor of its socket.
        """
        end = _duplicate(connection)  # the number may belong to another socket by then
        due_s = time.monotonic() + seconds
        try:
            with self._changed:
                self._due_s[end] = due_s
                if due_s < self._looks_s:
                    self._look_at(due_s)
            yield
        finally:
            with self._changed:  # after that the thread does not use the socket
                self._due_s.pop(end, None)
            end.close()

    def _look_at(self, due_s: float) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="falkirk-deadlines", daemon=True)
            thread.start()  # it may fail: then the next block tries again
            self._thread = thread
        else:
            self._changed.notify()
        self._looks_s = due_s

    def _run(self) -> None:
        with self._changed:
            while True:
                now_s = time.monotonic()
                for end in [end for end, due_s in self._due_s.items() if due_s <= now_s]:
                    del self._due_s[end]
                    with suppress(OSError):  # the other side did so first
                        end.shutdown(socket.SHUT_RDWR)
                self._looks_s = min(self._due_s.values(), default=math.inf)
                self._changed.wait(None if self._looks_s == math.inf else self._looks_s - now_s)


def _duplicate(connection: int) -> socket.socket:
    """Return another socket of a connection. Args: connection: the file descriptor of its socket."""
    number = os.dup(connection)
    try:
        return socket.socket(fileno=number)
    except BaseException:
        os.close(number)
        raise


#: Those of this process. A forked process has no thread of its parent, so it begins with none.
DEADLINES = Deadlines()
os.register_at_fork(after_in_child=DEADLINES.__init__)  # type: ignore[misc]
