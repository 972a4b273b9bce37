"""Book: what is known of the requests of one source: which there are, where they are in their topic, what came of them.

The topic of requests is the memory: what is in this book can be read from it, and from the topic of answers, again.
Nothing here knows of Kafka, threads or a clock.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from falkirk.push.errors import RequestError

#: What a request weighs beside its id and its answer.
_WEIGHT_BYTES = 700
#: Clocks of machines that write answers may be behind by this much. An answer that is older than its request is that of
#: an earlier one with the same id, which was forgotten.
SKEW_MS = 10_000

Positions = Mapping[int, int]


@dataclass(slots=True, eq=False)
class Entry:
    """A request.

    Args:
        id, digest: of what was asked. at_ms: when it was first asked, in the source's own time (elapsed.py).
        stamped_ms: its record's timestamp, since 1970: those of answers are compared with it.
        place: its partition and offset; None: it is on its way there.
        answer: None: there is none yet.
        is_accepted: all that came of it is outside. is_silent: and there is no answer among it.
        client: who asked first; empty: it was read back, and nobody remembers.
        is_evicted: there was an answer, which is no longer in memory. The request never runs again all the same.
    """

    id: str
    digest: bytes
    at_ms: int
    stamped_ms: int
    place: tuple[int, int] | None = None
    answer: bytes | None = None
    is_accepted: bool = False
    is_silent: bool = False
    client: str = ""
    is_evicted: bool = False
    is_forgotten: bool = False

    @property
    def is_answered(self) -> bool:
        """Whether its answer came."""
        return self.answer is not None or self.is_evicted

    @property
    def is_over(self) -> bool:
        """Whether all that will ever be known of it is."""
        return self.is_accepted and (self.is_answered or self.is_silent)

    def is_done(self, *, wants_answer: bool) -> bool:
        """Tell whether what its client waits for is there."""
        return self.is_answered or self.is_silent if wants_answer else self.is_accepted


class Book:
    """The requests of one source. Places of one partition are told in their order."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        #: On their way to the topic, oldest first, with the size of what is sent.
        self._sending: dict[str, tuple[Entry, int]] = {}
        self._known: dict[int, deque[Entry]] = {}
        self._unaccepted: dict[int, deque[Entry]] = {}
        self._speaking: dict[int, deque[Entry]] = {}
        self._accepted: dict[int, int] = {}
        self._silent: dict[int, int] = {}
        #: Per partition, the place behind all that was forgotten.
        self._forgotten: dict[int, int] = {}
        #: What of each client is remembered, and its answers, oldest first.
        self._weights: Counter[str] = Counter()
        self._answered: dict[str, deque[Entry]] = {}
        self.weight_bytes = 0

    def weight_of(self, client: str) -> int:
        """Return how many bytes the requests of a client take."""
        return self._weights[client]

    def _weigh(self, entry: Entry, added_bytes: int) -> None:
        self.weight_bytes += added_bytes
        self._weights[entry.client] += added_bytes
        if not self._weights[entry.client]:
            del self._weights[entry.client]

    def find(self, request_id: str, digest: bytes) -> Entry | None:
        """Return the request of an id, if it is known.

        Raises: RequestError: `REQUEST_DIFFERS`.
        """
        entry = self._entries.get(request_id)
        if entry is not None and entry.digest != digest:
            raise RequestError(
                "REQUEST_DIFFERS",
                f"request {request_id!r} was asked before, with another body.",
                status=409,
                hint="Give each request an id of its own; the same id is for asking the same again.",
            )
        return entry

    def add(self, request_id: str, value: bytes, *, at_ms: int, stamped_ms: int, client: str = "") -> Entry:
        """Add a request that is about to be sent."""
        entry = Entry(id=request_id, digest=digest_of(value), at_ms=at_ms, stamped_ms=stamped_ms, client=client)
        self._entries[request_id] = entry
        self._sending[request_id] = (entry, len(value))
        self._weigh(entry, _weight(entry) + len(value))
        return entry

    def oldest_unsent_ms(self) -> int | None:
        """Return when the oldest of those was asked that are still on their way; None: there are none."""
        return next((entry.at_ms for entry, _ in self._sending.values()), None)

    def sent(self, request_id: str, partition: int, offset: int) -> Entry:
        """Take note of where a request is. What came of it may be outside, and known to be, already."""
        entry, size = self._sending.pop(request_id)
        self._weigh(entry, -size)
        entry.place = (partition, offset)
        for where in (self._known, self._unaccepted, self._speaking):
            where.setdefault(partition, deque()).append(entry)
        self._settle()
        return entry

    def answered(self, request_id: str, answer: bytes, stamped_ms: int) -> Entry | None:
        """Take note of an answer; return its request, if it is known and this is its first."""
        entry = self._entries.get(request_id)
        if entry is None or entry.is_answered or stamped_ms < entry.stamped_ms - SKEW_MS:
            return None
        entry.answer = answer
        self._weigh(entry, len(answer))
        self._answered.setdefault(entry.client, deque()).append(entry)
        return entry

    def evict(self, client: str, upto_bytes: int) -> None:
        """Drop answers of a client from memory, the oldest first, until its requests take no more than so many bytes.
        The requests themselves are remembered: one that is asked again does not run again."""
        answered = self._answered.get(client, deque())
        while answered and self._weights[client] > upto_bytes:
            entry = answered.popleft()
            if entry.answer is not None and not entry.is_forgotten:
                self._weigh(entry, -len(entry.answer))
                entry.answer, entry.is_evicted = None, True

    def accept(self, upto: Positions) -> list[Entry]:
        """Take note of up to where all that came of the requests is outside; return those for which that is new."""
        _raise(self._accepted, upto)
        return self._settle()

    def silence(self, upto: Positions) -> list[Entry]:
        """Take note of up to where the requests are accepted and all answers to them were seen; return those that have
        none."""
        _raise(self._silent, upto)
        return self._settle()

    def _settle(self) -> list[Entry]:
        """Return the entries of which anything new is known by the positions that were told."""
        accepted = _take(self._unaccepted, self._accepted)
        for entry in accepted:
            entry.is_accepted = True
        silent = [entry for entry in _take(self._speaking, self._silent) if not entry.is_answered]
        for entry in silent:
            entry.is_silent = True
        return [*accepted, *silent]

    def forget(self, before_ms: int) -> None:
        """Forget the requests that were asked before that time, up to the first of which not all is known. They may be
        in the topic for long after, for a reader that seldom saves."""
        for entries in self._known.values():
            while entries and entries[0].at_ms < before_ms and entries[0].is_over:
                entry = entries.popleft()
                assert entry.place is not None, "it is known to be in the topic"
                self._forgotten[entry.place[0]] = entry.place[1] + 1
                self._weigh(entry, -_weight(entry) - len(entry.answer or b""))
                entry.is_forgotten = True
                if self._entries.get(entry.id) is entry:
                    del self._entries[entry.id]
        for client, answered in list(self._answered.items()):
            while answered and answered[0].is_forgotten:
                answered.popleft()
            if not answered:
                del self._answered[client]

    def disposable(self, acknowledged: Positions) -> dict[int, int]:
        """Return, per partition, below which place nobody reads any more, and all is forgotten."""
        below = {p: min(offset, acknowledged.get(p, 0)) for p, offset in self._forgotten.items()}
        return {p: offset for p, offset in below.items() if offset}

    def oldest_stamp_ms(self) -> int | None:
        """Return the oldest timestamp of all; None: there are none."""
        return min((entry.stamped_ms for entry in self._entries.values()), default=None)

    def newest_ms(self) -> int | None:
        """Return when the newest of all was asked; None: there are none."""
        return max((entry.at_ms for entry in self._entries.values()), default=None)


def digest_of(value: bytes) -> bytes:
    """Return what tells bodies apart."""
    return blake2b(value, digest_size=16).digest()


def read_back(records: Iterable[tuple[str, bytes, int, int, int, int]]) -> Book:
    """Return the book of what is in a topic, given as (id, value, at_ms, stamped_ms, partition, offset).

    An id that was used again counts by its last use.
    """
    book = Book()
    for request_id, value, at_ms, stamped_ms, partition, offset in records:
        book.add(request_id, value, at_ms=at_ms, stamped_ms=stamped_ms)
        book.sent(request_id, partition, offset)
    return book


def _raise(positions: dict[int, int], upto: Positions) -> None:
    for partition, offset in upto.items():
        positions[partition] = max(offset, positions.get(partition, 0))


def _take(queues: Mapping[int, deque[Entry]], below: Positions) -> list[Entry]:
    """Take, and return, the entries before these positions."""
    taken = []
    for queue in queues.values():
        while queue and _is_before(queue[0], below):
            taken.append(queue.popleft())
    return taken


def _is_before(entry: Entry, positions: Positions) -> bool:
    assert entry.place is not None
    partition, offset = entry.place
    return offset < positions.get(partition, 0)


def _weight(entry: Entry) -> int:
    return _WEIGHT_BYTES + 2 * len(entry.id)
