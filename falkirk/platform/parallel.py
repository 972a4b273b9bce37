"""Parallel: runs calls in threads that keep no process from ending, because a call may wait for a server."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from falkirk.errors import FalkirkError

T = TypeVar("T")
log = logging.getLogger("falkirk")

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


class Looks(Generic[T]):
    """A measurement that is repeated, and for which nobody waits: each look runs in a thread of its own.

    An error of a look ends nothing else. Args: unknown: the value before the first look ends, and after one that fails.
    """

    def __init__(self, unknown: T) -> None:
        self._unknown = self._found = unknown
        self._look: BackgroundCall[T] | None = None
        self._has_warned = False

    @property
    def found(self) -> T:
        """The value of the newest look that has ended."""
        self._take_in()
        return self._found

    def begin(self, look: Callable[[], T]) -> bool:
        """Begin a look, unless the one before still waits; return whether it has begun."""
        self._take_in()
        if self._look is None:
            self._look = BackgroundCall(look, "falkirk-look")
            return True
        return False

    def _take_in(self) -> None:
        if self._look is None or not self._look.is_done:
            return
        try:
            self._found = self._look.result()
        except Exception as error:
            self._found = self._unknown
            if not isinstance(error, FalkirkError) and not self._has_warned:
                self._has_warned = True
                log.warning("a measurement failed, and nothing else depends on it: %r", error)
        self._look = None


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
