"""The judges of generated applications accept right results, and refuse each kind of wrong ones."""

import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from falkirk.checker import TopicRecord
from tests.chaos.shapes import expected_of_extra, found_of_extra, judge_extra, judge_regrouped

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
Rows = list[dict[str, Any]]


class Fake:
    """Topics with one partition each."""

    def __init__(self, **topics: Rows) -> None:
        self._topics = topics

    def rows(self, name: str) -> Rows:
        return self._topics[name]

    def records(self, name: str) -> list[TopicRecord]:
        return [
            TopicRecord(
                topic=name, partition=0, offset=offset, timestamp_ms=None, key=None, value=json.dumps(row).encode()
            )
            for offset, row in enumerate(self._topics[name])
        ]


def events() -> Rows:
    return [
        {"id": f"e{n}", "word": f"w{n % 3}", "n": n, "at": (BEGAN + timedelta(seconds=n)).isoformat()}
        for n in range(30)
    ]


def regrouped(shape: str) -> Rows:
    """Return the right results of `hopped`."""
    numbers: Counter[str] = Counter()
    versions: Counter[str] = Counter()
    chains: dict[str, int] = defaultdict(int)
    rows = []
    for event in events():
        numbers[event["word"]] += 1
        begins = BEGAN + timedelta(seconds=(BEGAN.timestamp() + event["n"]) // 7 * 7 - BEGAN.timestamp())
        group = f"t{event['n'] % 4}" if shape == "teams" else begins.strftime("%Y-%m-%d %H:%M:%S")
        lot = f"lot|{event['word']}|{numbers[event['word']]}"
        versions[group] += 1
        chains[group] += zlib.crc32(lot.encode())
        rows.append({"word": group, "n": event["n"], "version": versions[group], "lot": lot, "chain": chains[group]})
    return rows


@pytest.mark.parametrize("shape", ["teams", "windows"])
def test_two_keyed_steps_in_a_row(shape: str) -> None:
    passed, right = {event["id"] for event in events()}, regrouped(shape)
    judge_regrouped(Fake(events=events(), hopped=right), shape, passed)

    def refused(change: Callable[[Rows], object]) -> None:
        rows = regrouped(shape)
        change(rows)
        with pytest.raises(AssertionError, match="hopped"):
            judge_regrouped(Fake(events=events(), hopped=rows), shape, passed)

    refused(lambda rows: rows.append(rows[3]))
    refused(lambda rows: rows.pop())
    refused(lambda rows: rows[5].update(word="t9"))
    refused(lambda rows: rows[5].update(lot="lot|w2|9"))
    refused(lambda rows: rows[29].update(chain=1))
    refused(lambda rows: rows.reverse())


def viewed() -> dict[str, Rows]:
    lots = [{"id": f"e{n}", "part": 0, "lot": str(n), "word": "w"} for n in range(6)]
    sums = [{"word": "w", "epoch": epoch, "version": epoch * 3} for epoch in (1, 2)]
    extra = [lot | {"epoch": 1 + n // 3, "of": 1 + n // 3, "seen": 3 + n // 3 * 3} for n, lot in enumerate(lots)]
    return {"lots": lots, "sums": sums, "extra": extra}


def test_a_join_with_a_view() -> None:
    shape = "joined with a view"
    right = Fake(**viewed())
    judge_extra(right, shape)
    assert expected_of_extra(right, shape) == found_of_extra(right, shape) == 6

    for change in ({"seen": 4}, {"lot": "9"}, {"of": 2, "seen": 6}, {"id": "e1"}):
        topics = viewed()
        topics["extra"][0].update(change)
        with pytest.raises(AssertionError, match="extra"):
            judge_extra(Fake(**topics), shape)


def test_a_join_of_streams() -> None:
    shape, pairs = "streams joined", [{key: event[key] for key in ("id", "word", "n")} for event in events()]
    judge_extra(Fake(events=events(), extra=pairs), shape)
    for wrong in ([*pairs, pairs[0]], pairs[1:], [pairs[0] | {"n": 7}, *pairs[1:]]):
        with pytest.raises(AssertionError, match="extra"):
            judge_extra(Fake(events=events(), extra=wrong), shape)


def test_windows_of_event_time() -> None:
    """The newest event is at 29 s and may be 1 s late, so the windows up to 25 s are complete."""
    shape, whole = "windows of event time", defaultdict(list)
    for event in events():
        whole[event["word"], int(BEGAN.timestamp() + event["n"]) // 5].append(event["n"])
    rows = [
        {"word": word, "window": window, "events": len(numbers), "total": sum(numbers)}
        for (word, window), numbers in whole.items()
        if window < BEGAN.timestamp() // 5 + 5
    ]
    right = Fake(events=events(), extra=rows)
    judge_extra(right, shape)
    assert expected_of_extra(right, shape) == found_of_extra(right, shape) == 15
    for wrong in ([*rows, rows[0]], rows[1:], [rows[0] | {"total": 0}, *rows[1:]]):
        with pytest.raises(AssertionError):
            judge_extra(Fake(events=events(), extra=wrong), shape)
