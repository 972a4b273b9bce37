"""Bridge: connects the service of a source to Kafka. One thread sends requests; another follows their results.

At the start, the bridge takes over the topic of requests and reads it back. So it knows everything that former gateways
knew. After any failure it starts again in the same way.
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
from falkirk.http_source.answers_from import answers_from_of
from falkirk.http_source.elapsed import Elapsed, elapsed_of
from falkirk.http_source.errors import RequestError, passing_error
from falkirk.http_source.registry import SKEW_MS, RequestEntry, RequestRegistry, read_back
from falkirk.http_source.sender import RequestSender
from falkirk.http_source.service import RequestService
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import Message
from falkirk.kafka_client.reader import Reader, positions_at, read_until
from falkirk.kafka_client.signing import Foreign, ForeignTally, RejectedHeader, Verifier
from falkirk.kafka_client.topics import Topics
from falkirk.platform.machine_time import MachineTime
from falkirk.theory.ids import Offset, Offsets

log = logging.getLogger("falkirk")

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: At most this many requests are sent in one transaction.
_TOGETHER = 500
UNSIGNED_REQUEST = RejectedHeader("no elapsed time that a gateway of this home has signed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The host's report about a topic of requests, with one offset per partition.

    Args: accepted: below it, all results of requests are published. acknowledged: below it, no reader reads again.
    """

    accepted: Offsets
    acknowledged: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """The topic of requests.

    Args: topic: its name. key: signs the requests. on_foreign: takes the count of foreign records.
    """

    topic: str
    key: bytes
    on_foreign: Callable[[ForeignTally], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The topic of answers.

    Args: topic: its name. verifier: returns the check that tells the application's answers from foreign records.
        on_foreign: takes the count of foreign records.
    """

    topic: str
    verifier: Callable[[], Verifier]
    on_foreign: Callable[[ForeignTally], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a bridge does its work, in seconds.

    Args: poll_s: looks for requests and answers. trim_s: deletes records that nobody needs any more from the topic.
        pause_s: passes between a failure and the next start.
    """

    poll_s: float = 0.1
    trim_s: float = 10.0
    pause_s: float = 1.0


PACE = Pace()


class KafkaBridge:
    """The bridge of one source.

    Args: requests: where the requests are. answers: where the answers are, or None if requests have no answers. loop:
        the event loop of the service. clock: stamps requests of earlier versions, and measures elapsed time.
    """

    def __init__(
        self, connection: Connection, requests: Requests, answers: Answers | None, window_s: float,
        service: RequestService, loop: asyncio.AbstractEventLoop, clock: MachineTime = time, pace: Pace = PACE,
    ) -> None:  # fmt: skip
        self._clock, self._pace = clock, pace
        self._foreign = ForeignTally()
        self._connection, self._requests, self._answers, self._window_s = connection, requests, answers, window_s
        self._topic = topic = requests.topic
        self._service, self._loop = service, loop
        self._topics = Topics(connection)
        self._stopping, self._over = threading.Event(), threading.Event()
        self._queue: SimpleQueue[tuple[RequestEntry, bytes]] = SimpleQueue()
        self._progress: Progress | None = None
        self._failure: Exception | None = None
        self._elapsed: Elapsed | None = None
        #: For each partition, the offset below which the topic's records are deleted.
        self._dropped: Offsets = {}
        self._thread = threading.Thread(target=self._work, name=f"falkirk-push-{topic}", daemon=True)

    def start(self) -> None:
        """Start. The service opens once the topic is read back."""
        self._thread.start()

    def send(self, entry: RequestEntry, value: bytes) -> None:
        """Queue a request to be sent soon."""
        self._queue.put((entry, value))

    def update(self, progress: Progress) -> None:
        """Use the host's newest report."""
        self._progress = progress

    def stop(self) -> None:
        """Stop. A request on its way may or may not be in the topic; the next gateway finds out."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    # -- the thread of the bridge --------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                self._serve()
            except Exception as error:  # after any error, clients must get an answer
                if not isinstance(error, LogError):
                    log.exception("the bridge for topic %s failed and starts again", self._topic)
                # Close the service before there is a new queue: the open service's requests are in the old queue.
                self._call(self._service.close, _reason(error))
                self._stopping.wait(self._pace.pause_s)

    def _serve(self) -> None:
        self._queue, self._failure = SimpleQueue(), None
        self._over.clear()
        sender = RequestSender(self._connection, self._topic, self._requests.key, self._is_over)
        registry = self._read_back()
        self._elapsed = elapsed = _resumed(self._elapsed, registry, self._clock)
        reader, earlier = (None, {}) if self._answers is None else self._read_answers(registry)
        if self._stopping.is_set():
            return
        self._post(self._service.open, registry, elapsed)
        thread = threading.Thread(
            target=self._send_all, args=(sender, reader, earlier), name=f"falkirk-send-{self._topic}", daemon=True
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

    def _read_back(self) -> RequestRegistry:
        """Return the registry of all requests in the topic, to which only this sender can write from now on."""
        first, ends = self._topics.first_positions(self._topic), self._topics.readable_positions(self._topic)
        reader, foreign = Reader(self._connection, self._topic, first), ForeignTally()
        try:
            messages = read_until(reader, ends, self._stopping.is_set)
            registry = read_back((self._known(m, foreign) for m in messages), int(self._clock.time() * 1000))
        finally:
            reader.close()
        if foreign.count:
            self._requests.on_foreign(foreign)
        return registry

    def _known(
        self, m: Message, foreign: ForeignTally
    ) -> tuple[str, bytes, int | None, int, int, Offset, Offsets | None]:
        """Return a request as `read_back` takes it, and count it if no gateway of this home wrote it."""
        headers, key, value = m.headers(), m.key(), m.value()
        at_ms = elapsed_of(headers, self._requests.key, key, value)
        answers_from = answers_from_of(headers, self._requests.key, key, value)
        if at_ms is None:
            foreign.add(Foreign(partition=m.partition(), offset=m.offset(), reason=UNSIGNED_REQUEST))
        request_id = (key or b"").decode(errors="replace")
        return request_id, value or b"", at_ms, m.timestamp()[1], m.partition(), m.offset(), answers_from

    def _read_answers(self, registry: RequestRegistry) -> tuple[Reader, Offsets]:
        """Return a reader of all answers that the requests in the registry can have, and the topic's present ends."""
        assert self._answers is not None
        ends = self._topics.readable_positions(self._answers.topic)
        oldest_ms, known = registry.oldest_stamp_ms(), registry.answers_from()
        # A partition that a request does not know was added later, so all its records are newer than the request.
        first = {p: min(end, known.get(p, Offset(0))) for p, end in ends.items()} if known else ends
        if oldest_ms is not None:
            older = positions_at(self._connection, self._answers.topic, oldest_ms - SKEW_MS, ends)
            first = {p: min(offset, older.get(p, offset)) for p, offset in first.items()}
        return Reader(self._connection, self._answers.topic, first), ends

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send_all(self, sender: RequestSender, reader: Reader | None, earlier: Offsets) -> None:
        """Send queued requests until the bridge ends. Args: earlier: the ends of the answers at the bridge's start."""
        queue = self._queue
        try:
            while not self._is_over():
                batch = _taken(queue, self._pace.poll_s)
                if batch:
                    if reader is not None:  # earlier requests that are forgotten have their answers below these
                        read = dict(reader.positions)
                        answers_from = {p: max(end, read.get(p, end)) for p, end in earlier.items()}
                        for entry, _ in batch:
                            entry.answers_from = answers_from
                    self._post(self._service.sent, sender.send(batch))
        except Exception as error:
            self._failure = error

    # -- following ----------------------------------------------------------------------------------------------------

    def _follow(self, reader: Reader | None, elapsed: Elapsed) -> None:
        posted: Offsets = {}
        claim: tuple[Offsets, Offsets] | None = None
        trimmed_s = self._clock.monotonic()
        while not self._stopping.is_set():
            if self._failure is not None:
                raise self._failure
            if reader is not None:
                self._tell(reader)
            else:
                self._stopping.wait(self._pace.poll_s)
            progress = self._progress
            if progress is not None and claim is None and progress.accepted != posted:
                posted = progress.accepted
                self._post(self._accepted, posted, reader is None)
                if reader is not None:
                    # All answers to accepted requests are before these ends.
                    claim = (posted, self._ends_of_answers())
            if claim is not None and reader is not None and reader.is_at(claim[1]):
                self._post(self._accepted, claim[0], True)
                claim = None
            if progress is not None and self._clock.monotonic() - trimmed_s > self._pace.trim_s:
                self._trim(progress, elapsed)
                trimmed_s = self._clock.monotonic()

    def _ends_of_answers(self) -> Offsets:
        assert self._answers is not None
        return self._topics.readable_positions(self._answers.topic)

    def _accepted(self, upto: Offsets, is_silent: bool) -> None:
        self._service.accepted(upto, is_silent=is_silent)

    def _tell(self, reader: Reader) -> None:
        assert self._answers is not None
        messages = reader.poll(self._pace.poll_s)
        if not messages:
            return
        verifier, answers = self._answers.verifier(), list[tuple[str, bytes, int, tuple[int, Offset]]]()
        known = self._foreign.count
        for m in messages:
            found, key = verifier.verify_message(m), m.key()
            if isinstance(found, RejectedHeader):
                self._foreign.add(Foreign(partition=m.partition(), offset=m.offset(), reason=found))
            elif key is not None:
                place = m.partition(), m.offset()
                answers.append((key.decode(errors="replace"), m.value() or b"null", m.timestamp()[1], place))
        if self._foreign.count > known:
            self._answers.on_foreign(self._foreign)
        if answers:
            self._post(self._service.answered, answers)

    def _trim(self, progress: Progress, elapsed: Elapsed) -> None:
        before_ms = elapsed.now_ms() - int(self._window_s * 1000)
        below = self._call(self._service.forget, before_ms, progress.acknowledged)
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


def _taken(queue: "SimpleQueue[tuple[RequestEntry, bytes]]", poll_s: float) -> list[tuple[RequestEntry, bytes]]:
    """Return the requests that wait to be sent; an empty list if none arrives within a short time."""
    batch: list[tuple[RequestEntry, bytes]] = []
    with contextlib.suppress(Empty):
        batch.append(queue.get(timeout=poll_s))
        while len(batch) < _TOGETHER:
            batch.append(queue.get_nowait())
    return batch


def _resumed(known: Elapsed | None, registry: RequestRegistry, clock: MachineTime = time) -> Elapsed:
    """Return the source's time: this process's own, unless another gateway has accepted requests meanwhile."""
    newest_ms = registry.newest_ms()
    if known is not None and (newest_ms is None or newest_ms <= known.now_ms()):
        return known
    return Elapsed(int(clock.time() * 1000) if newest_ms is None else newest_ms, clock.monotonic)


def _reason(error: Exception) -> RequestError:
    if isinstance(error, FalkirkError):
        return passing_error(error.condition, error.message, retry_after_s=5)
    return passing_error("GATEWAY_FAILED", f"the gateway has failed ({type(error).__name__}).", retry_after_s=5)
