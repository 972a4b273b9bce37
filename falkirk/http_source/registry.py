"""Registry: the state of the requests of one source: their ids, their places in the topic, and their answers.

The topic of requests is the durable copy. A new gateway rebuilds the registry from this topic and from the topic of
answers. This module uses neither Kafka nor threads nor a clock.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from falkirk.http_source.errors import RequestError
from falkirk.theory.ids import Offset, Offsets

#: The memory that a request uses in addition to its id and its answer.
_WEIGHT_BYTES = 700
#: Of a request without positions: the clock of a machine that writes answers may be behind by this much. An answer
#: older than its request belongs to an earlier, forgotten request with the same id.
SKEW_MS = 10_000


@dataclass(slots=True, eq=False)
class RequestEntry:
    """A request.

    Args:
        id: the request's id. digest: identifies the request's body.
        at_ms: when it was first posted, in the source's elapsed time (elapsed.py).
        stamped_ms: its record's timestamp, since 1970.
        answers_from: the positions in the topic of answers below which no answer is its own. None: a gateway of an
            earlier version of Falkirk, or nobody of this home, wrote it, so timestamps are compared instead.
        place: its partition and offset; None: it is not in the topic yet.
        answer: None: there is no answer yet.
        is_accepted: all its results are published. is_silent: all are published, and none of them is an answer.
        client: the address that posted it first; empty: the request was read back, so the address is unknown.
        is_evicted: it has an answer, which was dropped from memory. The request still never runs again.
        is_foreign: no gateway of this home wrote it. Its time proves nothing.
    """

    id: str
    digest: bytes
    at_ms: int
    stamped_ms: int
    answers_from: Offsets | None = None
    place: tuple[int, Offset] | None = None
    answer: bytes | None = None
    is_accepted: bool = False
    is_silent: bool = False
    client: str = ""
    is_evicted: bool = False
    is_foreign: bool = False
    is_forgotten: bool = False

    @property
    def is_answered(self) -> bool:
        """Whether the request has an answer."""
        return self.answer is not None or self.is_evicted

    @property
    def is_over(self) -> bool:
        """Whether nothing more can become known about the request."""
        return self.is_accepted and (self.is_answered or self.is_silent)

    def is_done(self, *, wants_answer: bool) -> bool:
        """Return whether the client can get its response: the answer, or the acceptance if it wants no answer."""
        return self.is_answered or self.is_silent if wants_answer else self.is_accepted


class RequestRegistry:
    """The requests of one source. The places of one partition are reported in order of offset."""

    def __init__(self) -> None:
        self._entries: dict[str, RequestEntry] = {}
        #: Requests on their way to the topic, oldest first, with the size of the sent value.
        self._sending: dict[str, tuple[RequestEntry, int]] = {}
        self._known: dict[int, deque[RequestEntry]] = {}
        self._unaccepted: dict[int, deque[RequestEntry]] = {}
        self._speaking: dict[int, deque[RequestEntry]] = {}
        self._accepted: Offsets = {}
        self._silent: Offsets = {}
        #: For each partition, the offset after the last forgotten request.
        self._forgotten: Offsets = {}
        #: For each client, the memory that its requests use, and its answered requests, oldest first.
        self._weights: Counter[str] = Counter()
        self._answered: dict[str, deque[RequestEntry]] = {}
        self.weight_bytes = 0

    def weight_of(self, client: str) -> int:
        """Return how many bytes of memory the requests of a client use."""
        return self._weights[client]

    def _weigh(self, entry: RequestEntry, added_bytes: int) -> None:
        self.weight_bytes += added_bytes
        self._weights[entry.client] += added_bytes
        if not self._weights[entry.client]:
            del self._weights[entry.client]

    def find(self, request_id: str, digest: bytes) -> RequestEntry | None:
        """Return the request with this id, or None if it is not known.

        Raises: RequestError: `REQUEST_DIFFERS`.
        """
        entry = self._entries.get(request_id)
        if entry is not None and entry.digest != digest:
            raise RequestError(
                "REQUEST_DIFFERS",
                f"request {request_id!r} was posted before with another body.",
                status=409,
                hint="Use a new id for each request. Repeat an id only to retry the same request.",
            )
        return entry

    def own(self, request_id: str) -> RequestEntry | None:
        """Return the request with this id if a gateway of this home wrote it."""
        entry = self._entries.get(request_id)
        return None if entry is None or entry.is_foreign else entry

    def keep(self, entry: RequestEntry) -> None:
        """Let an id belong to a request again, after another one has used it."""
        self._entries[entry.id] = entry

    def add(self, request_id: str, value: bytes, *, at_ms: int, stamped_ms: int, client: str = "") -> RequestEntry:
        """Add a request that is about to be sent."""
        entry = RequestEntry(id=request_id, digest=digest_of(value), at_ms=at_ms, stamped_ms=stamped_ms, client=client)
        self._entries[request_id] = entry
        self._sending[request_id] = (entry, len(value))
        self._weigh(entry, _weight(entry) + len(value))
        return entry

    def oldest_unsent_ms(self) -> int | None:
        """Return when the oldest request that is still on its way was posted; None: no request is on its way."""
        return next((entry.at_ms for entry, _ in self._sending.values()), None)

    def sent(self, request_id: str, partition: int, offset: Offset) -> RequestEntry:
        """Record the place of a request. Its results may already be published, and known to be published."""
        entry, size = self._sending.pop(request_id)
        self._weigh(entry, -size)
        entry.place = (partition, offset)
        for where in (self._known, self._unaccepted, self._speaking):
            where.setdefault(partition, deque()).append(entry)
        self._settle()
        return entry

    def answered(
        self, request_id: str, answer: bytes, stamped_ms: int, place: tuple[int, Offset]
    ) -> RequestEntry | None:
        """Record an answer. Return its request if the request is known and this is its first answer.

        Args: place: the partition and the offset of the answer.
        """
        entry = self._entries.get(request_id)
        if entry is None or entry.is_answered or not _can_answer(stamped_ms, place, entry):
            return None
        entry.answer = answer
        self._weigh(entry, len(answer))
        self._answered.setdefault(entry.client, deque()).append(entry)
        return entry

    def evict(self, client: str, upto_bytes: int) -> None:
        """Drop answers of a client from memory, oldest first, until its requests use at most `upto_bytes`.

        The registry still knows the requests, so a retry does not run again.
        """
        answered = self._answered.get(client, deque())
        while answered and self._weights[client] > upto_bytes:
            entry = answered.popleft()
            if entry.answer is not None and not entry.is_forgotten:
                self._weigh(entry, -len(entry.answer))
                entry.answer, entry.is_evicted = None, True

    def accept(self, upto: Mapping[int, Offset]) -> list[RequestEntry]:
        """Record the position below which all results of requests are published; return the newly accepted requests."""
        _raise(self._accepted, upto)
        return self._settle()

    def silence(self, upto: Mapping[int, Offset]) -> list[RequestEntry]:
        """Record the position below which requests are accepted and all answers were read; return those without one."""
        _raise(self._silent, upto)
        return self._settle()

    def _settle(self) -> list[RequestEntry]:
        """Return the requests that the reported positions newly accept, or newly show to have no answer."""
        accepted = _take(self._unaccepted, self._accepted)
        for entry in accepted:
            entry.is_accepted = True
        silent = [entry for entry in _take(self._speaking, self._silent) if not entry.is_answered]
        for entry in silent:
            entry.is_silent = True
        return [*accepted, *silent]

    def forget(self, before_ms: int) -> None:
        """Forget requests posted before this time, in each partition up to the first that is not over.

        They may stay in the topic for much longer, if a reader rarely saves a checkpoint.
        """
        for entries in self._known.values():
            while entries and entries[0].at_ms < before_ms and entries[0].is_over:
                entry = entries.popleft()
                assert entry.place is not None, "a known request is in the topic"
                self._forgotten[entry.place[0]] = Offset(entry.place[1] + 1)
                self._weigh(entry, -_weight(entry) - len(entry.answer or b""))
                entry.is_forgotten = True
                if self._entries.get(entry.id) is entry:
                    del self._entries[entry.id]
        for client, answered in list(self._answered.items()):
            while answered and answered[0].is_forgotten:
                answered.popleft()
            if not answered:
                del self._answered[client]

    def disposable(self, acknowledged: Mapping[int, Offset]) -> Offsets:
        """Return, for each partition, the offset below which all requests are forgotten and no reader needs them."""
        below = {p: min(offset, acknowledged.get(p, Offset(0))) for p, offset in self._forgotten.items()}
        return {p: offset for p, offset in below.items() if offset}

    def answers_from(self) -> Offsets:
        """Return, for each partition of the topic of answers, the lowest position of a request's answer.

        A request without positions has none here: see `oldest_stamp_ms`.
        """
        lowest: Offsets = {}
        for entry in self._entries.values():
            for partition, offset in (entry.answers_from or {}).items():
                lowest[partition] = min(offset, lowest.get(partition, offset))
        return lowest

    def oldest_stamp_ms(self) -> int | None:
        """Return the oldest timestamp of the requests without `answers_from`; None: there are no such requests."""
        stamps = (entry.stamped_ms for entry in self._entries.values() if entry.answers_from is None)
        return min(stamps, default=None)

    def newest_ms(self) -> int | None:
        """Return when the newest request was posted; None: there are no requests.

        The requests of others count only if there is no request of this home, which they could make old.
        """
        own = max((entry.at_ms for entry in self._entries.values() if not entry.is_foreign), default=None)
        return max((entry.at_ms for entry in self._entries.values()), default=None) if own is None else own


def digest_of(value: bytes) -> bytes:
    """Return a digest that identifies a body."""
    return blake2b(value, digest_size=16).digest()


def read_back(
    records: Iterable[tuple[str, bytes, int | None, int, int, Offset, Offsets | None]], now_ms: int = 1 << 62
) -> RequestRegistry:
    """Return the registry of a topic's records: (id, value, at_ms, stamped_ms, partition, offset, answers_from).

    If an id was used again, the last use counts. A record without at_ms was not written by this home. It is as young as
    the newest request before it, and takes no id from a request of this home. Without such a request it goes by its
    timestamp, since it may have been written by an earlier version of Falkirk.

    Args: now_ms: no foreign record is younger.
    """
    registry, newest_ms = RequestRegistry(), None
    for request_id, value, at_ms, stamped_ms, partition, offset, answers_from in records:
        if at_ms is not None:
            newest_ms = max(at_ms, newest_ms or 0)
        own = registry.own(request_id) if at_ms is None else None
        known_ms = min(stamped_ms, now_ms) if newest_ms is None else newest_ms
        entry = registry.add(request_id, value, at_ms=known_ms if at_ms is None else at_ms, stamped_ms=stamped_ms)
        entry.is_foreign, entry.answers_from = at_ms is None, None if at_ms is None else answers_from
        registry.sent(request_id, partition, offset)
        if own is not None:
            registry.keep(own)
    return registry


def _raise(positions: Offsets, upto: Mapping[int, Offset]) -> None:
    for partition, offset in upto.items():
        positions[partition] = max(offset, positions.get(partition, Offset(0)))


def _take(queues: Mapping[int, deque[RequestEntry]], below: Mapping[int, Offset]) -> list[RequestEntry]:
    """Remove and return the requests below these positions."""
    taken = []
    for queue in queues.values():
        while queue and _is_before(queue[0], below):
            taken.append(queue.popleft())
    return taken


def _is_before(entry: RequestEntry, positions: Mapping[int, Offset]) -> bool:
    assert entry.place is not None
    partition, offset = entry.place
    return offset < positions.get(partition, 0)


def _can_answer(stamped_ms: int, place: tuple[int, Offset], entry: RequestEntry) -> bool:
    """Return whether an answer is one to this request, and not one to an earlier request with its id."""
    if entry.answers_from is not None:
        partition, offset = place
        return offset >= entry.answers_from.get(partition, 0)
    # A request without a place was not sent yet, so it has no answer.
    return entry.place is not None and stamped_ms >= entry.stamped_ms - SKEW_MS


def _weight(entry: RequestEntry) -> int:
    return _WEIGHT_BYTES + 2 * len(entry.id)
