"""The checker's models of event time give the results of the tests' own models, which read records and not rows."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from falkirk.checker.timed import First, Late, TimedRow, WindowResult, WindowShape, first_rows, window_results
from tests import duplicates, windows
from tests.duplicates import DELAY_S, HOSTILE

SECOND = 1_000_000
Records = Mapping[int, list[dict[str, Any]]]


def micros(at: datetime) -> int:
    return round(at.timestamp()) * SECOND


def rows(records: Records) -> Iterator[TimedRow]:
    """Yield records as rows. Those with a number that 7 divides only move the time."""
    for partition, mine in records.items():
        greatest: datetime | None = None
        for offset, record in enumerate(mine):
            if record["at"] is None or record["at"] in HOSTILE:
                continue
            at = datetime.fromisoformat(record["at"])
            greatest = at if greatest is None else max(greatest, at)
            yield TimedRow(
                place=(0, partition, offset), key=record["id"],
                watermark=micros(greatest - timedelta(seconds=DELAY_S)), time=micros(at) if record["n"] % 7 else None,
            )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_first_rows(seed: int) -> None:
    records = duplicates.drawn(seed, 400)
    wanted = duplicates.expected(records)
    found = list(first_rows(rows(records)))
    n = [records[each.place[1]][each.place[2]]["n"] for each in found]
    assert [m for m, each in zip(n, found, strict=True) if isinstance(each, First)] == wanted.results
    late = {m for m, reason in wanted.letters.items() if reason == "late"}
    assert {m for m, each in zip(n, found, strict=True) if isinstance(each, Late)} == late


@pytest.mark.parametrize("updates", [False, True])
@pytest.mark.parametrize("kind", windows.KINDS)
def test_windows(kind: str, updates: bool) -> None:
    size, slide = (each * SECOND for each in windows.KINDS[kind])
    for seed in range(20):
        records = duplicates.drawn(seed, 300, ids=6)
        wanted = windows.expected(records, kind)
        found = list(window_results(rows(records), WindowShape(size=size, slide=slide, updates=updates)))
        results = [each for each in found if isinstance(each, WindowResult)]
        causes = [each.cause for each in results]
        assert causes == sorted(set(causes)), "each result has a place, and they are in the order of their causes"
        assert sorted(shown(each, records) for each in results) == sorted(wanted.updates if updates else wanted.final)
        late = {records[each.place[1]][each.place[2]]["n"] for each in found if isinstance(each, Late)}
        assert late == {n for n, reason in wanted.letters.items() if reason == "late"}


def shown(result: WindowResult, records: Records) -> windows.Result:
    mine = [records[partition][offset] for _, partition, offset in result.members]
    [key] = {record["id"] for record in mine}
    total = sum(record["n"] for record in mine)
    return key, result.start // SECOND, result.end // SECOND, len(mine), total


def test_windows_begin_at_their_offset() -> None:
    shape = WindowShape(size=6, slide=4, offset=1)
    assert [[*shape.starts(time)] for time in (1, 2, 3, 5, -1)] == [[-3, 1], [-3, 1], [1], [1, 5], [-3]]


def test_a_session_that_two_others_join_has_their_rows_in_order() -> None:
    times = (0, 20, 10, 21)
    read = [TimedRow(place=(0, 0, n), watermark=0, time=time, key="a") for n, time in enumerate(times)]
    found = list(window_results(read, WindowShape(size=10, slide=0, updates=True)))
    last = found[-1]
    assert isinstance(last, WindowResult)
    assert (last.start, last.end) == (0, 31)
    assert [member[2] for member in last.members] == [0, 1, 2, 3]
