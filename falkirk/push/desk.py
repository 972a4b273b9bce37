"""Desk: where the requests of one source are taken and their clients wait. It lives in one event loop.

What happens to a request is told to it by whoever talks to Kafka (falkirk/push/line.py). When that begins anew, after a
failure, the desk is closed: all who wait are told to ask again, since what was on its way may be there or not. It is
opened again with what is found there.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping

from falkirk.push.book import Book, Entry, digest_of
from falkirk.push.elapsed import Elapsed
from falkirk.push.errors import RequestError, passing_error

#: So many clients wait at the same time; others are told to come again.
WAITING_MAX = 2_000
#: What is remembered of all requests and answers may take so much memory.
MEMORY_BYTES_MAX = 256 << 20
#: A client may take so many times what is left for others: the first one three quarters, and whoever comes later always
#: finds room.
SHARE = 3
#: The broker is away for those who come when it has not taken a request for so long.
AWAY_S = 5.0


class Desk:
    """The requests of one source.

    Args: send: takes an entry that is new, and its value, on the way to the topic; must not block.
    """

    def __init__(self, send: Callable[[Entry, bytes], None]) -> None:
        self._send = send
        self._book: Book | None = None
        self._elapsed = Elapsed(0)
        self._closed_for = passing_error("NOT_READY", "the application is starting.", retry_after_s=2)
        self._waiting: dict[Entry, list[asyncio.Future[None]]] = {}
        self._waits = 0
        self._waits_of: Counter[str] = Counter()

    # -- clients ------------------------------------------------------------------------------------------------------

    async def ask(
        self, request_id: str, value: bytes, *, wants_answer: bool, timeout_s: float, client: str = ""
    ) -> Entry:
        """Return the request of that id once what its client waits for is there; send it if it is new.

        Args: client: the address that it comes from, by which room is shared.
        Raises: RequestError.
        """
        book = self._opened()
        entry = book.find(request_id, digest_of(value))
        if entry is not None and entry.is_done(wants_answer=wants_answer):
            return entry
        if self._waits >= WAITING_MAX:
            raise passing_error("CLIENTS_TOO_MANY", f"{self._waits} clients are waiting already.")
        if self._waits_of[client] >= SHARE * (WAITING_MAX - self._waits):
            raise _over_share(f"{self._waits_of[client]} requests of {client or 'this client'} are waiting already.")
        if entry is None:
            entry = self._take(book, request_id, value, client)
        self._waits += 1
        self._waits_of[client] += 1
        try:
            async with asyncio.timeout(timeout_s):
                while not entry.is_done(wants_answer=wants_answer):
                    await self._change_of(entry)
                    if self._book is not book:
                        raise self._closed_for
        except TimeoutError:
            if self._is_away(book):
                raise _away() from None
            raise passing_error(
                "RESULT_AWAITED", f"there is no result after {timeout_s:g} s; it is on its way.", status=504
            ) from None
        finally:
            self._waits -= 1
            self._waits_of[client] -= 1
            if not self._waits_of[client]:
                del self._waits_of[client]
        return entry

    def _opened(self) -> Book:
        if self._book is None:
            raise self._closed_for
        return self._book

    def _take(self, book: Book, request_id: str, value: bytes, client: str) -> Entry:
        if self._is_away(book):
            raise _away()
        mine = book.weight_of(client)
        others = book.weight_bytes - mine
        # Of the room that others leave it, a client may take so much that SHARE times the rest is as much.
        share = max(0, MEMORY_BYTES_MAX - others) * SHARE // (SHARE + 1)
        if mine > share:
            book.evict(client, share)
        if book.weight_bytes > MEMORY_BYTES_MAX:
            raise passing_error(
                "REQUESTS_TOO_MANY", "more requests are remembered than there is room for.", retry_after_s=30
            )
        if book.weight_of(client) > share:
            raise _over_share(f"requests of {client or 'this client'} take {book.weight_of(client):,} bytes of memory.")
        at_ms, stamped_ms = self._elapsed.now_ms(), int(time.time() * 1000)
        entry = book.add(request_id, value, at_ms=at_ms, stamped_ms=stamped_ms, client=client)
        self._send(entry, value)
        return entry

    async def _change_of(self, entry: Entry) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(entry, [])
        waiting.append(future)
        try:
            await future
        finally:
            if future in waiting:
                waiting.remove(future)
            if not waiting and self._waiting.get(entry) is waiting:
                del self._waiting[entry]

    def _is_away(self, book: Book) -> bool:
        since_ms = book.oldest_unsent_ms()
        return since_ms is not None and self._elapsed.now_ms() - since_ms > AWAY_S * 1000

    # -- what happens; to a closed desk nothing of it matters ---------------------------------------------------------

    def open(self, book: Book, elapsed: Elapsed) -> None:
        """Take requests from now on, knowing those of the book, in the source's own time."""
        self._book, self._elapsed = book, elapsed

    def close(self, reason: RequestError) -> None:
        """Take no requests until it is opened again, and let nobody wait."""
        self._book, self._closed_for = None, reason
        self._tell(list(self._waiting))

    def sent(self, places: Mapping[str, tuple[int, int]]) -> None:
        """Take note of where requests are, given in the order of their offsets."""
        if (book := self._book) is None:
            return
        self._tell([book.sent(request_id, *place) for request_id, place in places.items()])

    def answered(self, answers: list[tuple[str, bytes, int]]) -> None:
        """Take note of answers, as (id, value, timestamp)."""
        if (book := self._book) is None:
            return
        self._tell([e for a in answers if (e := book.answered(*a)) is not None])

    def accepted(self, upto: Mapping[int, int], *, is_silent: bool) -> None:
        """Take note of up to where what came of the requests is outside.

        Args: is_silent: all answers among it are told.
        """
        if (book := self._book) is None:
            return
        self._tell(book.accept(upto))
        if is_silent:
            self._tell(book.silence(upto))

    def forget(self, before_ms: int, acknowledged: Mapping[int, int]) -> dict[int, int]:
        """Forget what is over and was asked before that time; return what may be dropped from the topic: see
        `Book.disposable`."""
        if self._book is None:
            return {}
        self._book.forget(before_ms)
        return self._book.disposable(acknowledged)

    def _tell(self, entries: list[Entry]) -> None:
        for entry in entries:
            for future in self._waiting.pop(entry, ()):
                if not future.done():
                    future.set_result(None)


def _over_share(message: str) -> RequestError:
    return passing_error("QUOTA_EXCEEDED", message, status=429, retry_after_s=5)


def _away() -> RequestError:
    return passing_error("BROKER_AWAY", "Kafka does not take the request at present.", retry_after_s=5)
