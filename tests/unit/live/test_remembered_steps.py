"""The recorded steps of a live region: changes to steps that decide several results are refused, others reported."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.errors import HomeError
from falkirk.plan.fingerprint import DECIDED_BY, STEPS
from falkirk.plan.region import Region
from falkirk.recovery.decision_store import RegionRecord, Store
from falkirk.runtime.spark.record import compare, completed, report_steps
from falkirk.runtime.supervision.starting import host_environment
from tests.stores import Place


@pytest.fixture
def store(tmp_path: Path, tag: str) -> Iterator[Store]:
    opened = Place(where=str(tmp_path / "decisions.db"), identity=tag).open()
    yield opened
    opened.close()


def region(**parts: str) -> Any:
    named = {DECIDED_BY: parts.get("decided", "sum(n)"), STEPS: parts.get("steps", "where(n > 5)")}
    return SimpleNamespace(name="counts", where=None, fingerprint={"reads": "events", **named}, may_change_steps=False)


def record_of(like: Any, *without: str) -> RegionRecord:
    kept = {name: text for name, text in like.fingerprint.items() if name not in without}
    return RegionRecord(fingerprint=kept, start_offsets={}, partitions={})


def test_changed_steps_are_reported_once_and_refused_only_where_they_decide_several_results(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    record, changed = record_of(region()), region(steps="where(n > 6)")
    for now, is_reported in ((region(), False), (changed, True), (changed, False), (region(), True)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="falkirk"):
            compare(now, completed(now, record, store), {})
            assert report_steps(now, record, store) is is_reported
        assert bool(caplog.records) is is_reported
    with pytest.raises(HomeError) as refused:
        compare(region(decided="sum(n + 1)"), completed(region(), record, store), {})
    assert refused.value.condition == "APPLICATION_CHANGED"
    assert refused.value.parameters["changed"] == {DECIDED_BY: ("sum(n)", "sum(n + 1)")}


def test_steps_before_records_that_wait_can_not_change_although_results_are_repeated() -> None:
    """Its state has rows that the former steps made."""
    for is_refused in (False, True):
        now = region(decided="sum(n + 1)")
        now.repeats, now.undetermined, now.reorders = True, None, is_refused
        now.may_change_steps = vars(Region)["may_change_steps"].fget(now)
        if is_refused:
            with pytest.raises(HomeError):
                compare(now, record_of(region()), {})
        else:
            compare(now, record_of(region()), {})


def test_a_home_that_has_not_recorded_steps_compares_them_from_its_next_start(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    record = record_of(region(), DECIDED_BY, STEPS)
    for is_reported in (True, False):
        caplog.clear()
        compare(region(), completed(region(), record, store), {})
        assert not report_steps(region(), record, store)
        assert bool(caplog.records) is is_reported
    changed = region(decided="sum(n + 1)")
    known = completed(changed, record, store)
    with pytest.raises(HomeError) as refused:
        compare(changed, known, {})
    assert refused.value.condition == "APPLICATION_CHANGED"


def test_each_host_hashes_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for seed in ("1", "2", "random"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        printed = subprocess.run(
            [sys.executable, "-c", "print(hash('abc'), {'a', 'b', 'c', 'd'})"],
            env=host_environment(), check=True, capture_output=True, text=True,
        )  # fmt: skip
        found.add(printed.stdout)
    assert len(found) == 1
