"""Line: what is between the desk of a source and Kafka: one thread that sends, one that follows what comes of it.

To begin it takes over the topic of requests, reads it back, and so knows what every former gateway knew. When anything
is not as it should be, it begins again: there is one way to recover, and it is the way to start.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import ParamSpec, TypeVar

from falkirk.errors import FalkirkError, LogError
from falkirk.logs.connection import Connection
from falkirk.logs.signing import Disbelieved, Foreign, ForeignTally, Verifier
from falkirk.logs.topics import Topics
from falkirk.push.book import SKEW_MS, Book, Entry, read_back
from falkirk.push.desk import Desk
from falkirk.push.elapsed import Elapsed, elapsed_of
from falkirk.push.errors import RequestError, passing_error
from falkirk.push.reader import Reader, positions_at, read_until
from falkirk.push.sender import Sender

log = logging.getLogger("falkirk")

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: So many requests are sent in one transaction at most.
_TOGETHER = 500
_LOOK_S = 0.1
#: How often what nobody needs any more is dropped from the topic.
_TRIM_S = 10.0
_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the host says of a topic of requests: up to where all that came of them is outside, and up to where nothing
    will ever be read again, per partition."""

    accepted: dict[int, int]
    acknowledged: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Where answers come.

    Args: topic. verifier: returns what tells the application's answers from those that somebody else wrote. on_foreign:
        takes the latter.
    """

    topic: str
    verifier: Callable[[], Verifier]
    on_foreign: Callable[[ForeignTally], None]


class Line:
    """The line of one source.

    Args: topic: where requests go. answers: where they are answered, if they are. loop: the desk's.
    """

    def __init__(
        self, connection: Connection, topic: str, answers: Answers | None, window_s: float, desk: Desk,
        loop: asyncio.AbstractEventLoop,
    ) -> None:  # fmt: skip
        self._foreign = ForeignTally()
        self._connection, self._topic, self._answers, self._window_s = connection, topic, answers, window_s
        self._desk, self._loop = desk, loop
        self._topics = Topics(connection)
        self._stopping, self._over = threading.Event(), threading.Event()
        self._queue: SimpleQueue[tuple[Entry, bytes]] = SimpleQueue()
        self._progress: Progress | None = None
        self._failure: Exception | None = None
        self._elapsed: Elapsed | None = None
        #: Below which places the topic has nothing any more.
        self._dropped: dict[int, int] = {}
        self._thread = threading.Thread(target=self._work, name=f"falkirk-push-{topic}", daemon=True)

    def start(self) -> None:
        """Begin; the desk is opened once all is read back."""
        self._thread.start()

    def send(self, entry: Entry, value: bytes) -> None:
        """Send a request, by and by."""
        self._queue.put((entry, value))

    def take(self, progress: Progress) -> None:
        """Take note of what the host says."""
        self._progress = progress

    def stop(self) -> None:
        """Stop. What is on its way is there or not: the next gateway will see."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    # -- the life of it -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                self._serve()
            except Exception as error:  # whatever it is, those who wait must not wait for nothing
                if not isinstance(error, LogError):
                    log.exception("requests in %s: beginning again", self._topic)
                # Done before a new queue is there: what the open desk has taken is in the old one.
                self._call(self._desk.close, _reason(error))
                self._stopping.wait(_PAUSE_S)

    def _serve(self) -> None:
        self._queue, self._failure = SimpleQueue(), None
        self._over.clear()
        sender = Sender(self._connection, self._topic, self._is_over)
        book = self._read_back()
        self._elapsed = elapsed = _resumed(self._elapsed, book)
        reader = self._read_answers(book) if self._answers is not None else None
        if self._stopping.is_set():
            return
        self._post(self._desk.open, book, elapsed)
        thread = threading.Thread(
            target=self._send_all, args=(sender,), name=f"falkirk-send-{self._topic}", daemon=True
        )
        thread.start()
        try:
            self._follow(reader, elapsed)
        finally:
            self._over.set()
            if reader is not None:
                reader.close()
            thread.join()

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self._over.is_set()

    def _read_back(self) -> Book:
        """Return the book of all that is in the topic, which nobody else writes from now on."""
        first, ends = self._topics.first_positions(self._topic), self._topics.readable_positions(self._topic)
        reader = Reader(self._connection, self._topic, first)
        try:
            return read_back(
                (
                    (m.key() or b"").decode(errors="replace"),
                    m.value() or b"",
                    elapsed_of(m.headers(), m.timestamp()[1]),
                    m.timestamp()[1],
                    m.partition(),
                    m.offset(),
                )
                for m in read_until(reader, ends, self._stopping.is_set)
            )
        finally:
            reader.close()

    def _read_answers(self, book: Book) -> Reader:
        """Return a reader of all answers that the requests of a book can have."""
        assert self._answers is not None
        ends = self._topics.readable_positions(self._answers.topic)
        oldest_ms = book.oldest_stamp_ms()
        since_ms = int(time.time() * 1000) if oldest_ms is None else oldest_ms
        first = positions_at(self._connection, self._answers.topic, since_ms - SKEW_MS, ends)
        return Reader(self._connection, self._answers.topic, first)

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send_all(self, sender: Sender) -> None:
        queue = self._queue
        try:
            while not self._is_over():
                batch = _taken(queue)
                if batch:
                    self._post(self._desk.sent, sender.send(batch))
        except Exception as error:
            self._failure = error

    # -- following ----------------------------------------------------------------------------------------------------

    def _follow(self, reader: Reader | None, elapsed: Elapsed) -> None:
        told: dict[int, int] = {}
        claim: tuple[dict[int, int], dict[int, int]] | None = None
        trimmed_s = time.monotonic()
        while not self._stopping.is_set():
            if self._failure is not None:
                raise self._failure
            if reader is not None:
                self._tell(reader)
            else:
                self._stopping.wait(_LOOK_S)
            progress = self._progress
            if progress is not None and claim is None and progress.accepted != told:
                told = progress.accepted
                self._post(self._accepted, told, reader is None)
                if reader is not None:
                    # An answer to what is accepted is before these ends; behind them there is none.
                    claim = (told, self._ends_of_answers())
            if claim is not None and reader is not None and reader.is_at(claim[1]):
                self._post(self._accepted, claim[0], True)
                claim = None
            if progress is not None and time.monotonic() - trimmed_s > _TRIM_S:
                self._trim(progress, elapsed)
                trimmed_s = time.monotonic()

    def _ends_of_answers(self) -> dict[int, int]:
        assert self._answers is not None
        return self._topics.readable_positions(self._answers.topic)

    def _accepted(self, upto: dict[int, int], is_silent: bool) -> None:
        self._desk.accepted(upto, is_silent=is_silent)

    def _tell(self, reader: Reader) -> None:
        assert self._answers is not None
        messages = reader.poll(_LOOK_S)
        if not messages:
            return
        verifier, answers = self._answers.verifier(), list[tuple[str, bytes, int]]()
        known = self._foreign.count
        for m in messages:
            found, key = verifier.verify_message(m), m.key()
            if isinstance(found, Disbelieved):
                self._foreign.add(Foreign(partition=m.partition(), offset=m.offset(), reason=found))
            elif key is not None:
                answers.append((key.decode(errors="replace"), m.value() or b"null", m.timestamp()[1]))
        if self._foreign.count > known:
            self._answers.on_foreign(self._foreign)
        if answers:
            self._post(self._desk.answered, answers)

    def _trim(self, progress: Progress, elapsed: Elapsed) -> None:
        before_ms = elapsed.now_ms() - int(self._window_s * 1000)
        below = self._call(self._desk.forget, before_ms, progress.acknowledged)
        if below != self._dropped:
            self._topics.delete_below(self._topic, below)
            self._dropped = below

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _post(self, function: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
        self._loop.call_soon_threadsafe(lambda: function(*args, **kwargs))

    def _call(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        async def run() -> _T:
            return function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()


def _taken(queue: "SimpleQueue[tuple[Entry, bytes]]") -> list[tuple[Entry, bytes]]:
    """Return what waits to be sent, once anything does or some time has passed."""
    batch: list[tuple[Entry, bytes]] = []
    with contextlib.suppress(Empty):
        batch.append(queue.get(timeout=_LOOK_S))
        while len(batch) < _TOGETHER:
            batch.append(queue.get_nowait())
    return batch


def _resumed(known: Elapsed | None, book: Book) -> Elapsed:
    """Return the source's time: this process's own, unless another gateway has taken requests meanwhile."""
    newest_ms = book.newest_ms()
    if known is not None and (newest_ms is None or newest_ms <= known.now_ms()):
        return known
    return Elapsed(int(time.time() * 1000) if newest_ms is None else newest_ms)


def _reason(error: Exception) -> RequestError:
    if isinstance(error, FalkirkError):
        return passing_error(error.condition, error.message, retry_after_s=5)
    return passing_error("GATEWAY_FAILED", f"what takes requests has failed ({type(error).__name__}).", retry_after_s=5)
