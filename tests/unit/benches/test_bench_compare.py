"""Comparing benches: answers by key and number, ratios of each round, bytes of deleted files, and commands that check
their options."""

import json
import os
from collections import deque
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import bench
from benchmarks.charts import draw_overhead, draw_pressure, draw_regimes
from benchmarks.durable import Durable
from benchmarks.overhead import OverheadRun, overhead_table
from benchmarks.pairs import PAIRS
from benchmarks.pressure import PressureRun, Sample
from benchmarks.probe import Probe
from benchmarks.regimes import REGIMES, Regime, regimes_table
from benchmarks.report import Report
from falkirk.declare.policy import Eager, Ephemeral, FullHistory, Lazy, LogSends
from falkirk.errors import SparkError
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.epochs.log import EpochLog
from tests.support import wait_until


def probe() -> Probe:
    """Return a probe that has sent nothing, and whose broker does not exist."""
    return Probe("127.0.0.1:1", "source", "sink", each=False)


def test_a_result_answers_all_records_of_its_key_up_to_its_number() -> None:
    probed = probe()
    probed._waiting = {"ash": deque([(0, 1.0), (3, 2.0), (5, 3.0)]), "birch": deque([(1, 1.5)])}
    assert probed._answer(json.dumps({"word": "ash", "n": "3"}).encode()) == [1.0, 2.0]
    assert probed._answer(json.dumps({"word": "ash", "n": 3}).encode()) == [], "a repeated result answers nothing"
    assert probed._left() == 2
    probed.close()


def test_records_are_numbered_on_over_all_rounds() -> None:
    probed = probe()
    records = [json.loads(probed._record()[1]) for _ in range(100)]
    assert [r["n"] for r in records] == list(range(100)) == list(range(probed.sent))
    assert probed._left() == 100
    probed.close()


@pytest.fixture
def run() -> OverheadRun:
    """A run with two rounds of one pair."""
    values = {
        ("live", "plain", "p50_ms"): [2.0, 4.0],
        ("live", "falkirk", "p50_ms"): [2.2, 4.0],
        ("live", "plain", "records_per_s"): [100.0, 200.0],
        ("live", "falkirk", "records_per_s"): [90.0, 190.0],
    }
    return OverheadRun(report=Report(bench="overhead", settings={}), values=values)


def test_a_ratio_is_of_one_round_and_the_target_is_met_when_each_meets_it(run: OverheadRun) -> None:
    assert run.ratios("live", "p50_ms") == pytest.approx([1.1, 1.0])
    assert run.ratios("live", "records_per_s") == pytest.approx([0.9, 0.95])
    assert run.ratios("batch", "p50_ms") == []
    table = overhead_table(run, PAIRS)
    assert list(table.columns[-1].cells) == ["unclear", "no"], "one round within 5 %, none within 2 %"


def test_what_was_written_counts_though_it_is_gone_again(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"x" * 10)
    with Durable(tmp_path) as durable:
        (tmp_path / "old").write_bytes(b"x" * 15)
        (tmp_path / "passing").write_bytes(b"x" * 100)
        wait_until(lambda: str(tmp_path / "passing") in durable._largest, 30, "a look")
        os.remove(tmp_path / "passing")
    assert durable.bytes_made == 105


def regime(name: str, home: Path) -> Regime:
    """Return a regime that does not run."""
    return Regime(name=name, bootstrap="b:1", source="s", sink="t", home=home, interval_s=5.0, every_s=2.0)


def test_each_regime_is_what_it_is_called(tmp_path: Path) -> None:
    kinds = {"ephemeral": Ephemeral, "lazy": Lazy, "eager": Eager, "log_sends": LogSends, "full_history": FullHistory}
    assert tuple(kinds) == REGIMES
    for name, kind in kinds.items():
        (processor,) = regime(name, tmp_path).application().processors.values()
        assert isinstance(processor.policy, kind)
        assert (processor.cut is None) == regime(name, tmp_path).each


def test_what_a_kill_cut_off_is_what_was_cut_and_not_completed(tmp_path: Path) -> None:
    killed = regime("eager", tmp_path / "home")
    app = killed.application()
    (batch,) = app.processors
    home = open_home(killed.home, app.name)
    log = EpochLog(f"epochs of {batch}", batch, home.data_of(batch), home.store)
    for n in range(3):
        log.decide({"s": {0: 10 * n}}, {"s": {0: 10 * n + 10}}, {}, 0.0)
    log.record(0, folder="f", rows=1, dead=0, state=None, saved=True)
    home.close()
    assert killed.cut_off() == 20
    assert regime("lazy", tmp_path / "home").cut_off() == 0, "its checkpoints are Spark's"


def test_tables_and_charts_need_nothing_that_was_not_measured(run: OverheadRun, tmp_path: Path) -> None:
    report = Report(bench="regimes", settings={})
    measures = (
        "p50_ms", "p99_ms", "records_per_s", "durable_bytes_per_record", "recovery_s", "kill_longest_latency_s",
        "redone_count",
    )  # fmt: skip
    report.figures |= {f"eager_{measure}": 2.0 for measure in measures}
    assert regimes_table(report).row_count == 1
    pressure = PressureRun(report=Report(bench="backpressure", settings={}), closed_s=5.0)
    pressure.samples += [
        Sample(at_s=at, sent=n, read=n, kept=0, epochs=1, host_bytes=1, jvm_bytes=2)
        for n, at in enumerate((-1.0, 1.0, 6.0))
    ]
    drawn = [draw_regimes(report, tmp_path), draw_overhead(run, PAIRS, tmp_path), draw_pressure(pressure, tmp_path)]
    assert all(file.stat().st_size > 1_000 for file in drawn)


@pytest.mark.parametrize("arguments", [["overhead", "--pair", "none"], ["regimes", "--regime", "none"]])
def test_what_can_not_be_measured_is_a_wrong_command_line(arguments: list[str]) -> None:
    assert CliRunner().invoke(bench, [*arguments]).exit_code == 2


def test_a_child_that_fails_says_why() -> None:
    from benchmarks.child import Child
    from tests.unit.children import breaks

    child = Child(breaks, "a reason", "the child")
    with pytest.raises(SparkError) as broken:
        child.await_running()
    assert broken.value.condition == "BENCH_INCOMPLETE"
    assert "a reason" in broken.value.message
    assert not child.processes()
