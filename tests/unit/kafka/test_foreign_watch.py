"""Records of others are named while the application runs, in each topic that it writes."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.errors import LogError
from falkirk.http_source.elapsed import header_of
from falkirk.kafka_client.signing import ForeignTally, SigningKey, Verifier, tag_of
from falkirk.plan.plan import Plan
from falkirk.runtime.spark import foreign
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.foreign import ForeignWatch, judges_of

KEY = SigningKey(secret=bytes(32), since_birth=True)
TEXT = b"deadbeef/1/0.0.7/0/"
MARKED = b"deadbeef/1/0.0.7/0/000000000000000000000000"


class Topics:
    """Topics of one partition, as lists of headers, each with the value `v`."""

    def __init__(self) -> None:
        self.records: dict[str, list[list[tuple[str, bytes]]]] = {}
        self.is_away = self.stalls = False
        self.read = 0

    def exists(self, topic: str) -> bool:
        return topic in self.records

    def end_positions(self, topic: str) -> dict[int, int]:
        if self.is_away:
            raise LogError("BROKER_AWAY", "away")
        return {0: len(self.records[topic])}

    def first_positions(self, topic: str) -> dict[int, int]:
        return {0: 0}

    def messages(self, connection: object, topic: str, first: Any, last: Any, *, stall_s: float) -> list[Any]:
        if self.stalls:
            raise LogError("BROKER_AWAY", "no record came for 10 s")
        self.read += last[0] - first[0]
        return [
            SimpleNamespace(
                partition=lambda: 0, offset=lambda o=o: o, headers=lambda o=o: self.records[topic][o],
                key=lambda: b"k", value=lambda: b"v",
            )
            for o in range(first[0], last[0])
        ]  # fmt: skip


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Topics:
    made = Topics()
    monkeypatch.setattr(foreign, "read_messages", made.messages)
    return made


def place_of(topics: Topics) -> Storage:
    place = SimpleNamespace(
        topics=topics, connection=None, foreign=dict[str, ForeignTally](), signing_key=KEY,
        home=SimpleNamespace(application="shop", identity="deadbeef"),
        verifier=lambda topic: Verifier(topic, "deadbeef", KEY),
    )  # fmt: skip
    place.note_foreign = lambda topic, found, refuse: place.foreign.update({topic: found})
    return cast(Storage, place)


def topic(name: str) -> Any:
    return SimpleNamespace(topic=name)


PLAN = SimpleNamespace(
    push=[SimpleNamespace(topic=topic("requests"))],
    units=[
        SimpleNamespace(written=("hop", "dead")),
        SimpleNamespace(written=("held", "dead2", "out")),
        SimpleNamespace(written=("dead3",)),
    ],
)
NOTES = "falkirk.shop.deadbeef.redriven"
ALL = ("hop", "dead", "held", "dead2", "out", "dead3", NOTES, "requests")


def own(name: str) -> list[tuple[str, bytes]]:
    """Return the headers of a record of this home."""
    if name == "requests":
        return [header_of(5, KEY.of(name, "requests"), b"k", b"v")]
    return [("falkirk", TEXT + tag_of(KEY.of(name, "1"), TEXT, 0, b"k", b"v").encode())]


def test_each_topic_that_an_application_writes_is_looked_at(topics: Topics) -> None:
    place = place_of(topics)
    topics.records = {name: [own(name)] for name in ALL}
    watch = ForeignWatch(place, judges_of(cast(Plan, PLAN), place))
    topics.records["out"] += [[("falkirk", MARKED)]]  # a start has found this one
    watch.check()
    assert topics.read == 0
    for name in ALL:
        topics.records[name] += [own(name), [], [("falkirk", MARKED), ("falkirk-elapsed-ms", b"5")], own(name)]
    watch.check()
    assert {name: tally.count for name, tally in place.foreign.items()} == dict.fromkeys(ALL, 2)
    first = place.foreign["hop"].first
    assert first is not None
    assert (first.offset, first.reason.text) == (2, "no header of Falkirk")
    watch.check()
    topics.records["out"] += [[]]
    watch.check()
    assert place.foreign["out"].count == 3


def test_a_look_reads_a_sample_and_outlives_errors(topics: Topics) -> None:
    place = place_of(topics)
    topics.records = {"hop": []}
    watch = ForeignWatch(place, judges_of(cast(Plan, PLAN), place))
    watch.check()
    topics.records["hop"] += [[]] * 10 * foreign.SAMPLE
    topics.is_away = True
    watch.check()
    assert not place.foreign
    topics.is_away = False
    watch.check()
    assert topics.read == foreign.SAMPLE
    assert place.foreign["hop"].count == foreign.SAMPLE


def test_a_broker_that_stalls_during_a_look_hides_no_record(topics: Topics) -> None:
    """Before, the next look began after the records that this one could not read."""
    place = place_of(topics)
    topics.records = {"hop": []}
    watch = ForeignWatch(place, judges_of(cast(Plan, PLAN), place))
    watch.check()
    topics.records["hop"] += [[]]
    topics.stalls = True
    watch.check()
    topics.stalls = False
    watch.check()
    assert place.foreign["hop"].count == 1
