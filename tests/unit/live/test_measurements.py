"""Measurements for a recovery objective: one start of a region, its intervals, and the choice at its next start."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.declare.policy import Lazy
from falkirk.runtime.supervision import host, measurements
from falkirk.runtime.supervision.host import Host
from falkirk.runtime.supervision.measurements import Launch, RegionMeasurements, StartMeasurement
from falkirk.runtime.supervision.supervised_region import SupervisedRegion
from falkirk.theory.ids import BatchId
from falkirk.theory.objective import GUESSES, Measurements
from tests.unit.regions import region_under

START = {(0, 0): 100, (0, 1): 0}
ENDS = {(0, 0): 10_100, (0, 1): 10_000}


def start(*, ends: Mapping[Any, int] = ENDS, began_s: float | None = 0.0) -> StartMeasurement:
    """A start at second 10, with 20,000 records that wait; the former host died at second 0."""
    return StartMeasurement(cast(Any, START), cast(Any, ends), 10.0, began_s)


def look(of: StartMeasurement, now_s: float, *positions: int) -> None:
    of.update(cast(Any, {(0, p): o for p, o in enumerate(positions)}), now_s)


def test_a_start_is_measured_from_the_death_to_the_first_record_and_on_to_the_last() -> None:
    measured = start()
    look(measured, 11.0)
    assert (measured.restart_s, measured.is_done) == (None, False)
    look(measured, 12.0, 600)  # half a second or less after the first record
    look(measured, 14.0, 10_100, 5_000)
    assert (measured.restart_s, measured.is_done) == (12.0, False)
    look(measured, 16.0, 10_900, 10_000)  # records that arrived meanwhile do not count
    assert measured.is_done
    look(measured, 99.0, 10_900, 10_000)
    known = measured.added_to(Measurements(), standby=False)
    assert (known.restart_s, known.standby_restart_s, known.replay_per_s) == (12.0, None, 20_000 / 5.0)
    assert measured.added_to(Measurements(), standby=True).standby_restart_s == 12.0


def test_a_short_replay_shows_a_least_rate_only() -> None:
    measured = start()
    look(measured, 10.5, 10_100, 10_000)
    assert measured.is_done
    assert measured.added_to(Measurements(), standby=False).replay_per_s == 40_000
    assert measured.added_to(Measurements(replay_per_s=90_000.0), standby=False).replay_per_s == 90_000
    few = start(ends={(0, 0): 103, (0, 1): 0})
    look(few, 10.5, 103)
    assert few.added_to(Measurements(), standby=False).replay_per_s is None, "six records a second are no slow replay"


def test_markers_at_the_end_that_no_reader_sees_do_not_prolong_a_replay() -> None:
    measured = start()
    look(measured, 13.0, 10_099, 9_999)
    assert measured.is_done
    stopped = start()  # a tenth of the records is skipped, so the region never gets there
    look(stopped, 12.0, 10_100, 0)
    look(stopped, 13.0, 10_100, 8_000)
    look(stopped, 60.0, 10_100, 8_000)
    assert not stopped.is_done
    assert stopped.added_to(Measurements(), standby=False).replay_per_s == 18_000 / 3.0, "until it last moved"


def test_without_records_that_waited_nothing_is_measured() -> None:
    measured = start(ends=START)
    assert measured.is_done
    look(measured, 60.0, 500, 7)
    assert measured.added_to(Measurements(), standby=False) == Measurements()
    alone = start(began_s=None)  # the region restarted alone
    look(alone, 12.0, 600)
    assert alone.restart_s is None


class Region:
    """A live region that the test moves, with its store. The clock stands until `now_s` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, goal: str | None = "5 seconds", reads_hop: bool = False):
        self.now_s, self.end, self.read, self.known, self.writes = 1000.0, 0, 0, Measurements(), 0
        self.made_at_s = 0.0
        source = SimpleNamespace(topic=SimpleNamespace(topic="events"))
        self.region = SimpleNamespace(
            name="counts", has_objective=goal is not None, reads_hop=reads_hop, sources=(source,), interval_s=5.0
        )
        store = SimpleNamespace(measurements=lambda name: self.known, record_measurements=self._record)
        topics = SimpleNamespace(end_positions=lambda topic: {0: self.end})
        clock = SimpleNamespace(time=lambda: self.now_s)
        context: Any = SimpleNamespace(home=SimpleNamespace(store=store), topics=topics, clock=clock)
        live: Any = SimpleNamespace(region=self.region, checkpoint_age_s=lambda: self.now_s - self.made_at_s)
        monkeypatch.setattr(measurements, "read_ends", lambda context, name: {(0, 0): self.read})
        self.of = RegionMeasurements(live, context, Launch(began_s=990.0))

    def _record(self, name: str, found: Measurements) -> None:
        assert name == "counts"
        self.known, self.writes = found, self.writes + 1

    def update(self, opening: Any, last: int, *, now_s: float, end: int, read: int, made_at_s: float = 0.0) -> None:
        self.now_s, self.end, self.read, self.made_at_s = now_s, end, read, made_at_s
        self.of.update(opening, BatchId(last))


def opening(offset: int, batch: int) -> Any:
    return SimpleNamespace(start={"events": {0: offset}}, restored_batch=batch)


def test_a_region_measures_its_start_its_input_and_its_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    region, first = Region(monkeypatch), opening(50, 3)
    region.update(first, 3, now_s=1000.0, end=1050, read=0)
    region.update(first, 3, now_s=1002.0, end=1100, read=550)
    region.update(first, 3, now_s=1004.0, end=1200, read=1050)
    assert region.known.restart_s == 12.0
    assert region.known.replay_per_s == 250.0
    assert region.known.input_per_s is None
    region.update(first, 4, now_s=1010.0, end=2050, read=2050, made_at_s=1009.0)
    assert (region.known.input_per_s, region.known.checkpoint_s) == (100.0, None), "the first batch also starts tasks"
    region.update(first, 6, now_s=1021.0, end=2380, read=2050, made_at_s=1020.0)
    assert region.known.input_per_s == pytest.approx(100.0, rel=0.01), "a greatest value"
    assert region.known.checkpoint_s == pytest.approx(0.5)
    writes = region.writes
    region.update(first, 6, now_s=1022.0, end=2380, read=2380, made_at_s=1020.0)
    assert region.writes == writes, "the store is written at checkpoints only"
    again = opening(2380, 6)
    region.update(again, 6, now_s=1100.0, end=3380, read=0)
    region.update(again, 6, now_s=1110.0, end=3380, read=3380)
    assert (region.known.restart_s, region.known.replay_per_s) == (12.0, 100.0), "it restarted alone, and slowly"


def test_a_hop_gets_the_input_of_the_outage_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    region, first = Region(monkeypatch, reads_hop=True), opening(0, 3)
    region.update(first, 3, now_s=1000.0, end=0, read=0)
    region.update(first, 4, now_s=1010.0, end=50_000, read=0, made_at_s=1010.0)
    assert region.known.input_per_s is None
    region.update(first, 5, now_s=1020.0, end=51_000, read=0, made_at_s=1020.0)
    assert region.known.input_per_s == 100.0


def test_a_region_without_an_objective_pays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    region = Region(monkeypatch, goal=None)
    region.of._context = cast(Any, None)
    for last in (3, 4, 5):
        region.update(opening(0, 3), last, now_s=1000.0 + last, end=100, read=100)
    assert region.writes == 0


@pytest.mark.parametrize("moved_s", [3600.0, -3600.0])
def test_a_machine_that_stands_still_and_a_clock_that_is_set_are_left_out(
    monkeypatch: pytest.MonkeyPatch, moved_s: float
) -> None:
    """One such time would make the objective count as missed for hours, since a worst value is forgotten slowly."""
    region, first = Region(monkeypatch), opening(0, 3)
    region.update(first, 3, now_s=1000.0, end=1000, read=0)
    at_s = 1002.0 + moved_s
    region.update(first, 3, now_s=at_s, end=1000, read=500)
    region.update(first, 4, now_s=at_s + 5, end=1500, read=1500, made_at_s=at_s + 5)
    assert region.known == Measurements(), "neither its start nor its first interval"
    region.update(first, 5, now_s=at_s + 11, end=2100, read=2100, made_at_s=at_s + 11)
    known = region.known
    assert (known.restart_s, known.replay_per_s, known.input_per_s, known.checkpoint_s) == (None, None, 100.0, 1.0)
    at_s += 12 + moved_s
    region.update(first, 6, now_s=at_s, end=2200, read=2200, made_at_s=at_s - 1 - moved_s)  # it was made before
    region.update(first, 7, now_s=at_s + 5, end=2700, read=2700, made_at_s=at_s + 5)
    assert region.known == known
    region.update(first, 8, now_s=at_s + 12, end=3400, read=3400, made_at_s=at_s + 12)
    assert region.known.checkpoint_s == 2.0


@pytest.mark.parametrize(("took_s", "found_s"), [(599.0, 599.0), (3612.0, None), (-1.0, None)])
def test_a_restart_in_which_the_machine_stood_still_is_not_measured(took_s: float, found_s: float | None) -> None:
    measured = StartMeasurement(cast(Any, START), cast(Any, ENDS), 1e9, 1e9 + 2 - took_s)
    look(measured, 1e9 + 2, 600)
    look(measured, 1e9 + 6, 10_100, 10_000)
    known = measured.added_to(Measurements(restart_s=8.0), standby=False)
    assert (measured.restart_s, known.replay_per_s) == (found_s, 20_000 / 6)
    assert known.restart_s == (found_s or 8.0)


@pytest.mark.parametrize(("death_s", "lines"), [(500.0, 0), (700.0, 1)])
def test_a_restart_that_is_too_long_to_be_measured_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, death_s: float, lines: int
) -> None:
    """It may have been a slow one. Nobody would know that the objective was missed."""
    region, first = Region(monkeypatch), opening(50, 3)
    region.of._launch = Launch(began_s=1000.0 - death_s)
    region.update(first, 3, now_s=1000.0, end=1050, read=0)
    region.update(first, 3, now_s=1002.0, end=1100, read=550)
    region.update(first, 4, now_s=1004.0, end=1200, read=1050)
    region.update(first, 5, now_s=1010.0, end=1300, read=1300)
    assert region.known.restart_s == (None if lines else 502.0)
    assert ["702 s by the clock" in record.getMessage() for record in caplog.records] == [True] * lines


def test_each_start_of_a_region_chooses_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known, started = {"counts": Measurements(restart_s=1.0)}, list[tuple[float, int]]()
    monkeypatch.setattr(host, "LiveRegion", lambda region, context, **given: SimpleNamespace(region=region, retain=0))
    monkeypatch.setattr(host, "batches_of", lambda *arguments: SimpleNamespace(regions={}))
    monkeypatch.setattr(SupervisedRegion, "before_start", lambda self: True)
    for name in ("Executors", "Losses", "ForeignWatch", "judges_of", "Clocks"):
        monkeypatch.setattr(host, name, lambda *arguments: None)
    regions = (region_under("counts", Lazy(recover_within="20 seconds")), region_under("plain", Lazy("7 seconds")))
    plan: Any = SimpleNamespace(
        regions=regions, batches=(), clocks=(), retained_of=lambda region, history: round(1000 / region.interval_s)
    )
    store = SimpleNamespace(measurements=lambda name: known.get(name, Measurements()))
    context: Any = SimpleNamespace(session=None, home=SimpleNamespace(path=Path(), store=store))
    made = Host(plan, context, launch=Launch(keeps_standby=False))
    for name, unit in made._regions.items():
        assert made._before_start(name)
        started.append((unit.live.region.interval_s, unit.live.retain))
    assert GUESSES.replay_per_s / GUESSES.input_per_s == 5.0
    assert started == [(60.0, 17), (7.0, 0)], "19 s × 5 − 20 s − 1 s are more than a minute"
    known["counts"] = Measurements(restart_s=14.0)
    made._before_start("counts")
    assert made._regions["counts"].live.region.interval_s == 9.0, "6 s × 5 − 20 s − 1 s"
    warm = Host(plan, context, launch=Launch(keeps_standby=True))
    warm._before_start("counts")
    choice = warm._regions["counts"].live.region.choice
    assert choice is not None
    assert (choice.standby, choice.measured) == (True, frozenset())
