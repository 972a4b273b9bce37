"""Foreign records: looks for records of others in the topics of a running application, and has the status name them.

A start reads the tails of outputs, and finds the records of others there. Between two starts nobody reads them. So a
thread looks at the newest records of each topic from time to time. It reads at most a sample, because an output may
have more records than one reader can follow: a writer of one record is found by chance, and one that keeps writing is
found soon. Internal logs and requests are checked as well: there, the records of others count as input.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from falkirk.errors import FalkirkError
from falkirk.http_source.bridge import UNSIGNED_REQUEST
from falkirk.http_source.elapsed import elapsed_of
from falkirk.kafka_client.internal import internal_topic
from falkirk.kafka_client.ranges import Message, read_messages
from falkirk.kafka_client.signing import Foreign, ForeignTally, RejectedHeader, Verifier
from falkirk.plan.plan import Plan
from falkirk.runtime.spark.context import Storage
from falkirk.theory.ids import LogId, Offset, Offsets

log = logging.getLogger("falkirk")

#: The time between two looks.
_POLL_S = 30.0
#: The largest number of records of a partition that one look reads.
SAMPLE = 500
_Judge = Callable[[Message], RejectedHeader | None]
"""Returns why a message is not this home's own; None: it is."""


def judges_of(plan: Plan, place: Storage) -> dict[str, _Judge]:
    """Return how the records of each topic that an application writes are judged."""
    requests = {source.topic.topic for source in plan.push}
    written: set[str] = {internal_topic(place.home.application, place.home.identity, "redriven")}
    written |= {topic for unit in plan.units for topic in unit.written}
    judges = {topic: _by_header(place.verifier(topic)) for topic in sorted(written)}
    return judges | {topic: _by_time(place.signing_key.of(topic, "requests")) for topic in sorted(requests)}


def _by_header(verifier: Verifier) -> _Judge:
    def judge(message: Message) -> RejectedHeader | None:
        if verifier.is_old(message.partition(), message.offset()):
            return None
        found = verifier.verify_message(message)
        return found if isinstance(found, RejectedHeader) else None

    return judge


def _by_time(key: bytes) -> _Judge:
    def judge(message: Message) -> RejectedHeader | None:
        at_ms = elapsed_of(message.headers(), key, message.key(), message.value())
        return UNSIGNED_REQUEST if at_ms is None else None

    return judge


class ForeignWatch:
    """Looks at the topics of one application. Args: judges: as of `judges_of`."""

    def __init__(self, place: Storage, judges: Mapping[str, _Judge]) -> None:
        self._place, self._judges = place, judges
        #: Up to where each topic was checked.
        self._seen: dict[str, Offsets] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="falkirk-foreign", daemon=True)

    def start(self) -> None:
        """Begin to check."""
        self._thread.start()

    def stop(self) -> None:
        """Stop. A check that waits for a broker may take a while longer, and changes nothing."""
        self._stopping.set()

    def _work(self) -> None:
        while not self._stopping.is_set():
            self.check()
            self._stopping.wait(_POLL_S)

    def check(self) -> None:
        """Check the newest records of each topic."""
        for topic in self._judges:
            if self._stopping.is_set():
                return
            try:
                self._check(LogId(topic))
            except FalkirkError as error:  # the next check may succeed; the reader that needs the topic reports it
                log.debug("%s was not checked: %s", topic, error.message)

    def _check(self, topic: LogId) -> None:
        if topic not in self._seen and not self._place.topics.exists(topic):
            return
        ends = self._place.topics.end_positions(topic)
        seen = self._seen.setdefault(topic, ends)
        first = {p: Offset(min(end, max(seen.get(p, 0), end - SAMPLE))) for p, end in ends.items()}
        if first != ends:
            oldest = self._place.topics.first_positions(topic)
            first = {p: Offset(min(ends[p], max(position, oldest.get(p, 0)))) for p, position in first.items()}
            found = self._judged(topic, read_messages(self._place.connection, topic, first, ends, stall_s=10.0))
            if found is not None:
                self._place.note_foreign(topic, found, refuse=False)
        self._seen[topic] = ends  # not before: if the broker stalls, the next check reads these records

    def _judged(self, topic: LogId, messages: Iterable[Message]) -> ForeignTally | None:
        """Return the tally of a topic with the foreign ones among these messages; None: none is foreign."""
        rejected = [(m, why) for m in messages if (why := self._judges[topic](m)) is not None]
        if not rejected:
            return None
        tally, known = ForeignTally(), self._place.foreign.get(topic)
        if known is not None:
            tally.count, tally.first = known.count, known.first
        for message, reason in rejected:
            tally.add(Foreign(partition=message.partition(), offset=message.offset(), reason=reason))
        return tally
