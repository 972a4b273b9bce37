"""Shapes that a generated application may have, and their judges, which read only the topics.

A seed chooses the shape of two processors: `hopped`, which is live, and `extra`, which has epochs. Either may have a
declaration of the user that is true. Falkirk alone would hold such a processor's results, or its batches.
"""

import json
import random
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from falkirk.checker import TopicRecord

#: Seconds of a window in a live step, and of one that is an epoch; and by how much an event may be late.
LIVE_WINDOW_S, WINDOW_S, LATE_S = 7, 5, 1
HOPPED = ("words", "teams", "windows")
EXTRA = ("joined with a view", "streams joined", "windows of event time")


class TopicReader(Protocol):
    """The contents of the topics of an application."""

    def records(self, name: str) -> list[TopicRecord]:
        """Return the records of a topic."""

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the values of a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """The shapes of an application. Args: vouched: the processors with a true declaration."""

    hopped: str
    extra: str
    vouched: tuple[str, ...]

    @classmethod
    def of(cls, seed: int) -> "Shapes":
        """Return the shapes that a seed chooses."""
        draw = random.Random(f"shapes {seed}")
        hopped, extra = draw.choice(HOPPED), draw.choice(EXTRA)
        return cls(hopped=hopped, extra=extra, vouched=tuple(n for n in ("hopped", "extra") if draw.random() < 0.5))

    def environment(self) -> dict[str, str]:
        """Return the variables by which apps/drawn.py knows the shapes."""
        return {
            "DRAWN_HOPPED": self.hopped, "DRAWN_EXTRA": self.extra, "DRAWN_VOUCHED": " ".join(self.vouched),
        }  # fmt: skip


def _in_order(topics: TopicReader, name: str) -> list[dict[str, Any]]:
    ordered = sorted(topics.records(name), key=lambda record: (record.partition, record.offset))
    return [json.loads(record.value or b"null") for record in ordered]


def _at_s(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["at"]).timestamp()


# -- two keyed steps in a row ------------------------------------------------------------------------------------------


def judge_regrouped(topics: TopicReader, shape: str, passed: set[str]) -> None:
    """Check the number of each event among those of its word, and that the results of each group follow one another.

    Args: shape: the shape of the second keyed step. passed: the ids of the events that reach it.
    """
    numbers: Counter[str] = Counter()
    expected = {}
    for event in _in_order(topics, "events"):
        if event["id"] in passed:
            numbers[event["word"]] += 1
            expected[event["n"]] = (event, f"|{event['word']}|{numbers[event['word']]}")
    rows = _in_order(topics, "hopped")
    assert Counter(row["n"] for row in rows) == Counter(expected.keys()), "hopped: not each event once"
    versions: Counter[str] = Counter()
    chains: dict[str, int] = defaultdict(int)
    for row in rows:
        event, number = expected[row["n"]]
        group = row["word"]
        assert group == _group(shape, event), f"hopped: {row} is in another group than {event}"
        assert row["lot"].endswith(number), f"hopped: {row} contradicts the first keyed step: {number}"
        versions[group] += 1
        chains[group] += zlib.crc32(row["lot"].encode())
        assert (row["version"], row["chain"]) == (versions[group], chains[group]), f"hopped: {row} contradicts"


def _group(shape: str, event: dict[str, Any]) -> str:
    if shape == "teams":
        return f"t{event['n'] % 4}"
    begins_s = _at_s(event) // LIVE_WINDOW_S * LIVE_WINDOW_S
    return datetime.fromtimestamp(begins_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


# -- views, joins, windows of event time -------------------------------------------------------------------------------


def expected_of_extra(topics: TopicReader, shape: str) -> int:
    """Return how many results the extra processor has when it has read all events."""
    if shape == "joined with a view":
        return len(topics.rows("lots"))
    return len(topics.rows("events")) if shape == "streams joined" else len(_due(topics))


def found_of_extra(topics: TopicReader, shape: str) -> int:
    """Return how many of the results that `expected_of_extra` counts are published."""
    rows = topics.rows("extra")
    if shape != "windows of event time":
        return len(rows)
    return len(_due(topics) & {(row["word"], row["window"]) for row in rows})


def judge_extra(topics: TopicReader, shape: str) -> None:
    """Check each result of the extra processor, and that no result is there twice."""
    rows = topics.rows("extra")
    if shape == "joined with a view":
        _judge_view(topics, rows)
    elif shape == "streams joined":
        events = {event["id"]: event for event in topics.rows("events")}
        assert Counter(row["id"] for row in rows) == Counter(events.keys()), "extra: not each pair once"
        for row in rows:
            event = events[row["id"]]
            assert (row["word"], row["n"]) == (event["word"], event["n"]), f"extra: {row} is no pair of {event}"
    else:
        found = {(row["word"], row["window"]): (row["events"], row["total"]) for row in rows}
        assert len(found) == len(rows), "extra: a window is published twice"
        assert _due(topics) <= found.keys()
        expected = _windows(topics)
        assert found == {key: expected[key] for key in found}


def _judge_view(topics: TopicReader, rows: list[dict[str, Any]]) -> None:
    """Check that each row read the view at one epoch, the same for all rows of one epoch."""
    lots = {(row["id"], row["part"]): row["lot"] for row in topics.rows("lots")}
    assert Counter((row["id"], row["part"]) for row in rows) == Counter(lots.keys()), "extra: not each row once"
    sums = {(row["word"], row["epoch"]): row["version"] for row in topics.rows("sums")}
    views: dict[int, set[int]] = defaultdict(set)
    for row in rows:
        assert row["lot"] == lots[row["id"], row["part"]], f"extra: {row} contradicts the lot that it read"
        if (of := row.get("of")) is not None:
            assert row["seen"] == sums[row["word"], of], f"extra: {row} contradicts the view that it read"
            views[row["epoch"]].add(of)
    assert views
    assert all(len(epochs) == 1 for epochs in views.values()), f"extra: an epoch read two epochs of a view: {views}"


def _windows(topics: TopicReader) -> dict[tuple[str, int], tuple[int, int]]:
    """Return for each word and window how many events it has, and the sum of their numbers."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for event in topics.rows("events"):
        key = event["word"], int(_at_s(event) // WINDOW_S)
        count, total = found.get(key, (0, 0))
        found[key] = count + 1, total + event["n"]
    return found


def _due(topics: TopicReader) -> set[tuple[str, int]]:
    """Return the words and windows that are certainly complete: all partitions have a later event."""
    newest: dict[int, float] = {}
    for record in topics.records("events"):
        newest[record.partition] = max(newest.get(record.partition, 0.0), _at_s(json.loads(record.value or b"null")))
    passed_s = min(newest.values()) - LATE_S
    return {(word, window) for word, window in _windows(topics) if (window + 1) * WINDOW_S <= passed_s}
