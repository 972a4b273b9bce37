"""Service: accepts the requests of one source and lets their clients wait. It runs in one event loop.

The bridge (falkirk/http_source/bridge.py), which talks to Kafka, reports the progress of each request. When the
bridge restarts after a failure, it closes the service. All waiting clients are then asked to retry, because their
requests may or may not be in the topic. The bridge reads the topic back and opens the service again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping

from falkirk.http_source.elapsed import Elapsed
from falkirk.http_source.errors import RequestError, passing_error
from falkirk.http_source.registry import RequestEntry, RequestRegistry, digest_of
from falkirk.platform.machine_time import MachineTime
from falkirk.theory.ids import Offset, Offsets

#: At most this many clients may wait at the same time; others are asked to retry.
WAITING_MAX = 2_000
#: All requests and answers in memory may use this many bytes.
MEMORY_BYTES_MAX = 256 << 20
#: A client may use at most this many times the room that it leaves to others. The first client may thus use three
#: quarters of the room, and a later client always finds some.
SHARE = 3
#: New clients get `BROKER_AWAY` once the broker has not accepted a request for this long.
AWAY_S = 5.0


class RequestService:
    """The requests of one source.

    Args: send: sends a new request and its value to the topic; must not block.
    """

    def __init__(self, send: Callable[[RequestEntry, bytes], None], clock: MachineTime = time) -> None:
        self._send, self._clock = send, clock
        self._registry: RequestRegistry | None = None
        self._elapsed = Elapsed(0)
        self._closed_for = passing_error("NOT_READY", "the application is starting.", retry_after_s=2)
        self._waiting: dict[RequestEntry, list[asyncio.Future[None]]] = {}
        self._waits = 0
        self._waits_of: Counter[str] = Counter()

    # -- clients ------------------------------------------------------------------------------------------------------

    async def ask(
        self, request_id: str, value: bytes, *, wants_answer: bool, timeout_s: float, client: str = ""
    ) -> RequestEntry:
        """Send the request if it is new, and return it when its client can get its response.

        Args: client: the client's address; each address has a share of the room.
        Raises: RequestError.
        """
        registry = self._opened()
        entry = registry.find(request_id, digest_of(value))
        if entry is not None and entry.is_done(wants_answer=wants_answer):
            return entry
        if self._waits >= WAITING_MAX:
            raise passing_error("CLIENTS_TOO_MANY", f"{self._waits} clients are already waiting.")
        if self._waits_of[client] >= SHARE * (WAITING_MAX - self._waits):
            raise _over_share(f"{self._waits_of[client]} requests of {client or 'this client'} are already waiting.")
        if entry is None:
            entry = self._take(registry, request_id, value, client)
        self._waits += 1
        self._waits_of[client] += 1
        try:
            async with asyncio.timeout(timeout_s):
                while not entry.is_done(wants_answer=wants_answer):
                    await self._change_of(entry)
                    if self._registry is not registry:
                        raise self._closed_for
        except TimeoutError:
            if self._is_away(registry):
                raise _away() from None
            raise passing_error(
                "RESULT_AWAITED",
                f"the request has no result after {timeout_s:g} s; it may still be running.",
                status=504,
            ) from None
        finally:
            self._waits -= 1
            self._waits_of[client] -= 1
            if not self._waits_of[client]:
                del self._waits_of[client]
        return entry

    def _opened(self) -> RequestRegistry:
        if self._registry is None:
            raise self._closed_for
        return self._registry

    def _take(self, registry: RequestRegistry, request_id: str, value: bytes, client: str) -> RequestEntry:
        if self._is_away(registry):
            raise _away()
        mine = registry.weight_of(client)
        others = registry.weight_bytes - mine
        # A client may use SHARE / (SHARE + 1) of the memory that other clients do not use.
        share = max(0, MEMORY_BYTES_MAX - others) * SHARE // (SHARE + 1)
        if mine > share:
            registry.evict(client, share)
        if registry.weight_bytes > MEMORY_BYTES_MAX:
            raise passing_error("REQUESTS_TOO_MANY", "the memory for requests is full.", retry_after_s=30)
        if registry.weight_of(client) > share:
            raise _over_share(
                f"requests of {client or 'this client'} take {registry.weight_of(client):,} bytes of memory."
            )
        at_ms, stamped_ms = self._elapsed.now_ms(), int(self._clock.time() * 1000)
        entry = registry.add(request_id, value, at_ms=at_ms, stamped_ms=stamped_ms, client=client)
        self._send(entry, value)
        return entry

    async def _change_of(self, entry: RequestEntry) -> None:
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

    def _is_away(self, registry: RequestRegistry) -> bool:
        since_ms = registry.oldest_unsent_ms()
        return since_ms is not None and self._elapsed.now_ms() - since_ms > AWAY_S * 1000

    # -- reports of the bridge; a closed service ignores them ---------------------------------------------------------

    def open(self, registry: RequestRegistry, elapsed: Elapsed) -> None:
        """Accept requests from now on; `registry` has the known requests, and `elapsed` is the source's time."""
        self._registry, self._elapsed = registry, elapsed

    def close(self, reason: RequestError) -> None:
        """Accept no requests until the service is opened again, and send all waiting clients away with this reason."""
        self._registry, self._closed_for = None, reason
        self._tell(list(self._waiting))

    def sent(self, places: Mapping[str, tuple[int, Offset]]) -> None:
        """Record the places of requests, given in order of offset."""
        if (registry := self._registry) is None:
            return
        self._tell([registry.sent(request_id, *place) for request_id, place in places.items()])

    def answered(self, answers: list[tuple[str, bytes, int, tuple[int, Offset]]]) -> None:
        """Record answers, given as (id, value, timestamp, (partition, offset))."""
        if (registry := self._registry) is None:
            return
        self._tell([e for a in answers if (e := registry.answered(*a)) is not None])

    def accepted(self, upto: Mapping[int, Offset], *, is_silent: bool) -> None:
        """Record the positions below which all results of requests are published.

        Args: is_silent: all answers below these positions have been reported.
        """
        if (registry := self._registry) is None:
            return
        self._tell(registry.accept(upto))
        if is_silent:
            self._tell(registry.silence(upto))

    def forget(self, before_ms: int, acknowledged: Mapping[int, Offset]) -> Offsets:
        """Forget requests that are over and older than this time; return the result of `RequestRegistry.disposable`."""
        if self._registry is None:
            return {}
        self._registry.forget(before_ms)
        return self._registry.disposable(acknowledged)

    def _tell(self, entries: list[RequestEntry]) -> None:
        for entry in entries:
            for future in self._waiting.pop(entry, ()):
                if not future.done():
                    future.set_result(None)


def _over_share(message: str) -> RequestError:
    return passing_error("QUOTA_EXCEEDED", message, status=429, retry_after_s=5)


def _away() -> RequestError:
    return passing_error("BROKER_AWAY", "Kafka does not accept requests at present.", retry_after_s=5)
