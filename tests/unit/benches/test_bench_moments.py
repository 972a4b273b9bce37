"""Jobs that wait for event time: each record names the one that causes its result, as a plain reading of them shows."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from benchmarks.job import BEGAN, Records
from benchmarks.jobs import JOBS
from benchmarks.latency import VARIANTS
from benchmarks.moments import AHEAD_US, DELAY_US, MOMENTS, WINDOW_US, partition_of

NUMBER = 400
#: The results that each record causes, by the numbers that they have.
Caused = Iterator[tuple[str, list[str]]]


def read(records: Records) -> Iterator[tuple[str, dict[str, Any], int, int]]:
    """Yield the identity, the value, the partition and the time of each record."""
    for identity, key, value, _ in records:
        row = json.loads(value)
        assert key == row["word"]
        passed = datetime.fromisoformat(row["at"]) - BEGAN
        yield identity, row, partition_of(key), round(passed.total_seconds() * 1_000_000)


def windows(records: Records) -> Caused:
    opened = defaultdict[int, dict[tuple[int, str], str]](dict)
    for identity, row, partition, time in read(records):
        mine = opened[partition]
        closed = [window for window in mine if window[0] <= time - DELAY_US]
        yield identity, [mine.pop(window) for window in closed]
        mine[(time // WINDOW_US + 1) * WINDOW_US, row["word"]] = row["n"]


def timers(records: Records) -> Caused:
    waiting = defaultdict[int, dict[str, tuple[int, str]]](dict)
    for identity, row, partition, time in read(records):
        mine = waiting[partition]
        due = [word for word, (at, _) in mine.items() if at <= time - DELAY_US]
        yield identity, [mine.pop(word)[1] for word in due]
        assert row["word"] not in mine, "it would replace a timer"
        mine[row["word"]] = time + AHEAD_US, row["n"]


def passed(records: Records, *, table: bool) -> Caused:
    """Read records that wait for the times of all partitions: of their own topic, or of each other record's."""
    greatest, waiting = dict[int, int](), list[tuple[int, str]]()
    for place, (identity, row, partition, time) in enumerate(read(records)):
        if not table or place % 2 == 1:
            greatest[partition] = time
        least = min(greatest.values()) - DELAY_US if len(greatest) == 2 else -1
        if not table or place % 2 == 0:
            waiting.append((time, row["n"]))
        yield identity, [n for at, n in waiting if at < least]
        waiting = [each for each in waiting if each[0] >= least]


READ: dict[str, Callable[[Records], Caused]] = {
    "final_windows": windows, "timers": timers, "in_order": lambda records: passed(records, table=False),
    "asof": lambda records: passed(records, table=True),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("rate", [100.0, 33.0])
def test_the_record_that_causes_a_result_is_known_in_advance(name: str, rate: float) -> None:
    make = JOBS[name].records
    assert make is not None
    records = make(NUMBER, rate)
    counts = {identity: count for identity, _, _, count in records}
    found = Counter[str]()
    for identity, results in READ[name](records):
        assert set(results) <= {identity}
        found[identity] += len(results)
    assert found == counts
    assert found.total() > NUMBER / 4


def test_a_record_without_a_wait_causes_its_own_result() -> None:
    for name in ("union", "union_count", "clock_timers"):
        make = JOBS[name].records
        assert make is not None
        for identity, _, value, count in make(10, 100.0):
            assert (json.loads(value)["n"], count) == (identity, 1)


def test_jobs_run_the_variants_that_they_can() -> None:
    assert [v for v in VARIANTS if JOBS["keyed_count"].has(v)] == list(VARIANTS)
    assert [v for v in VARIANTS if JOBS["final_windows"].has(v)] == ["repeated", "exactly-once", "twins"]
    assert {name for name, job in JOBS.items() if not job.has("twins")} == {
        "join", "union", "union_count", "asof", "clock_timers", "in_order",
    }  # fmt: skip
    assert all(JOBS[job.name] is job for job in MOMENTS)
