"""Arithmetic of the benches: percentiles, pauses, and figures with stable names."""

import json
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.client import Measured
from benchmarks.jobs import count_records, page_records, timed_records
from benchmarks.latency import LatencySettings, figure_name
from benchmarks.report import POINTS, Report, percentile
from demo.pages import Page


@given(st.lists(st.floats(0, 10), min_size=1), st.sampled_from(POINTS))
def test_a_percentile_is_a_value_with_enough_values_not_above_it(values: list[float], point: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, point)
    assert found in ordered
    assert sum(v <= found for v in ordered) >= len(ordered) * point / 100 - 1e-9
    assert sum(v < found for v in ordered) < len(ordered) * point / 100 + 1e-9


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def measured(*points: tuple[float, float]) -> Measured:
    return Measured(latencies_s=[p[1] for p in points], sent_at_s=[p[0] for p in points], missing=0, repeated=0)


def test_the_pause_is_the_longest_latency_of_each_full_interval() -> None:
    found = measured((100.0, 0.1), (101.0, 0.4), (103.0, 0.2), (104.9, 0.3), (106.0, 0.1))
    assert found.longest_per(2.0) == [0.4, 0.2, 0.3]
    assert found.longest_per(5.0) == [0.4]
    assert measured().longest_per(5.0) == []


def test_figures_have_stable_names_with_units(tmp_path: Path) -> None:
    report = Report(bench="latency", settings={"rate": 1})
    one, other = figure_name("keyed_count", "exactly-once", 10.0), figure_name("keyed_count", "none", 10.0)
    report.add_latencies(other, [0.001, 0.002])
    report.add_latencies(one, [0.002, 0.004])
    report.add_difference(f"{one}_minus_none", one, other)
    report.write(tmp_path / "figures.json")
    content = json.loads((tmp_path / "figures.json").read_text())
    assert set(content) == {"bench", "figures", "settings", "versions"}
    assert content["figures"]["keyed_count_exactly_once_10s_p99_9_ms"] == 4.0
    assert content["figures"]["keyed_count_exactly_once_10s_minus_none_p50_ms"] == 1.0
    assert all(isinstance(value, int | float) for value in content["figures"].values())


def test_records_are_the_same_each_time_and_say_what_they_cause() -> None:
    assert count_records(50) == count_records(50)
    pages = [Page(name="a", text="one two one"), Page(name="b", text="three")]
    records = page_records(pages, 3)
    assert [causes for _, _, _, causes in records] == [2, 1, 2]
    assert len({identity for identity, _, _, _ in records}) == 3


def test_of_two_sources_the_later_record_of_a_pair_causes_the_result() -> None:
    records = timed_records(8, 100.0, 2)
    assert [causes for *_, causes in records] == [0, 1] * 4
    values = [json.loads(value) for _, _, value, _ in records]
    pairs = list(zip(values[::2], values[1::2], strict=True))
    assert all((left["word"], left["at"]) == (right["word"], right["at"]) for left, right in pairs)
    assert len({left["word"] for left, _ in pairs}) == len(pairs)
    times = [datetime.fromisoformat(left["at"]) for left, _ in pairs]
    assert [(later - times[0]).total_seconds() for later in times] == [0.0, 0.02, 0.04, 0.06]
    assert [causes for *_, causes in timed_records(3, 100.0, 1)] == [1, 1, 1]


def test_a_window_holds_two_checkpoints() -> None:
    settings = LatencySettings(window_s=50.0)
    assert [settings.window_of(interval_s) for interval_s in (10.0, 30.0, 60.0)] == [50.0, 60.0, 120.0]
