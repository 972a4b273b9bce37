"""Parallel: runs calls in threads that keep no process from ending, because a call may wait for a server."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

#: How many calls of `in_parallel` run at once.
_AT_ONCE = 8


class BackgroundCall(Generic[T]):
    """A call in a thread of its own, which begins at once. Args: name: of the thread."""

    def __init__(self, call: Callable[[], T], name: str = "falkirk-work") -> None:
        self._call, self._found, self._error = call, list[T](), list[BaseException]()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found.append(self._call())
        except BaseException as error:  # for the thread that asks
            self._error.append(error)

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; return whether it has ended."""
        self._thread.join(timeout_s)
        return self.is_done

    def result(self) -> T:
        """Return the result of the call; wait for it. Raises: its error."""
        self._thread.join()
        if self._error:
            raise self._error[0]
        return self._found[0]


def in_parallel(calls: Sequence[Callable[[], T]], at_once: int = _AT_ONCE) -> list[T]:
    """Return the results of calls, in their order. After an error, no further call begins. Raises: the first error."""
    left, found = list(enumerate(calls)), dict[int, T]()
    left.reverse()
    failed = threading.Event()

    def work() -> None:
        while not failed.is_set():
            try:
                place, call = left.pop()
            except IndexError:
                return
            try:
                found[place] = call()
            except BaseException:
                failed.set()
                raise

    errors = list[BaseException]()
    for each in [BackgroundCall(work) for _ in range(min(at_once, len(calls)))]:
        try:
            each.result()
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return [found[place] for place in range(len(calls))]
