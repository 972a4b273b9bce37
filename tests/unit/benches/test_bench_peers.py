"""The pure parts of the bench of peers: order of runs, summary, table, manifest, and figures of a run."""

from dataclasses import asdict
from pathlib import Path

from benchmarks.client import Measured
from benchmarks.peers.backlog import Sample, speed
from benchmarks.peers.bench import PeersSettings, cases_of, figures_of
from benchmarks.peers.check import true_counts, wrong_results
from benchmarks.peers.jars import differing, manifest
from benchmarks.peers.order import Case, alternating, latency_cases, markdown, newest_checkpoint, read_peers, summary
from benchmarks.report import Report

FLINK = Case(kind="latency", system="flink", guarantee="exactly-once", interval_s=1.0, rate=100.0)
STREAMS = Case(kind="latency", system="streams", guarantee="exactly-once", interval_s=1.0, rate=100.0)


def test_repetitions_alternate_their_order() -> None:
    assert alternating([FLINK, STREAMS], 3) == [FLINK, STREAMS, STREAMS, FLINK, FLINK, STREAMS]


def test_a_case_without_checkpoints_is_not_repeated_for_each_interval() -> None:
    cases = latency_cases(("flink", "spark-batch"), (1.0, 10.0), (100.0,))
    assert [(c.system, c.guarantee) for c in cases if c.interval_s == 10.0] == [
        ("flink", "at-least-once"),
        ("flink", "exactly-once"),
    ]


def test_a_summary_has_the_median_and_the_spread() -> None:
    figures = summary({"x": [{"p50_ms": 3.0}, {"p50_ms": 1.0}, {"p50_ms": 9.0}]})
    assert figures == {"x_p50_ms": 3.0, "x_p50_ms_least": 1.0, "x_p50_ms_most": 9.0}


def test_the_table_shows_the_spread_and_what_was_not_measured() -> None:
    table = markdown(summary({FLINK.name: [{"p50_ms": 2.0}, {"p50_ms": 4.0}]}), [FLINK, STREAMS]).splitlines()
    assert "| flink | exactly-once | 1 s | 100 | 3 (2–4) | – |" in table[2]
    assert table[3].count("–") == 10
    assert len({line.count("|") for line in table}) == 1


def test_the_newest_checkpoint_is_chosen_by_number() -> None:
    assert newest_checkpoint([("chk-9", 9), ("chk-10", 10)]) == "chk-10"
    assert newest_checkpoint([]) == ""


def test_a_jar_that_is_altered_missing_or_unknown_is_reported(tmp_path: Path) -> None:
    for name in ("altered.jar", "unknown.jar"):
        (tmp_path / name).write_text("x")
    assert differing(tmp_path, {"altered.jar": "0", "missing.jar": "0"}) == (
        "altered.jar",
        "missing.jar",
        "unknown.jar",
    )


def test_the_manifest_has_flink_and_kafka_streams() -> None:
    assert "flink-runtime-2.3.0.jar" in manifest("flink")
    assert "kafka-streams-4.1.2.jar" in manifest("streams")
    assert manifest("flink", "aa  flink/one.jar\nbb  streams/two.jar\n") == {"one.jar": "aa"}


def test_recovery_ends_with_a_record_that_was_sent_after_the_kill() -> None:
    measured = Measured(latencies_s=[4.0, 2.5], sent_at_s=[9.0, 11.0], missing=0, repeated=1)
    assert figures_of(measured, 10.0) == {"missing": 0, "repeated": 1, "recovery_s": 3.5}


def test_lost_and_doubled_records_give_wrong_counts() -> None:
    counts = true_counts([("0", "a", "", 1), ("1", "b", "", 1), ("2", "a", "", 1)])
    assert counts == {"0": 1, "1": 1, "2": 2}
    assert wrong_results([("0", 1), ("1", 1), ("2", 2), ("2", 2)], counts) == 0
    assert wrong_results([("0", 1), ("1", 2), ("2", 1), ("9", 1)], counts) == 3


def test_the_speed_is_that_of_the_second_half() -> None:
    samples = [
        Sample(at_s=0.0, results=0, processor_s=9.0),
        Sample(at_s=10.0, results=60, processor_s=20.0),
        Sample(at_s=11.0, results=100, processor_s=22.0),
    ]
    assert speed(samples) == {"records_per_s": 40, "records_per_core_s": 20}
    assert speed(samples[-1:]) == {}


def test_kafka_streams_is_measured_with_its_default_interval_too() -> None:
    cases = latency_cases(("streams",), (1.0,), (100.0,))
    assert [(c.guarantee, c.interval_s) for c in cases] == [
        ("at-least-once", 1.0),
        ("exactly-once", 0.1),
        ("exactly-once", 1.0),
    ]


def test_cases_and_figures_are_read_from_the_json(tmp_path: Path) -> None:
    cases = cases_of(PeersSettings.quick())
    assert len({case.name for case in cases}) == len(cases)
    report = Report(bench="peers", settings={"cases": [asdict(c) for c in cases]}, figures={"x": 1.0})
    report.write(tmp_path / "peers.json")
    assert read_peers((tmp_path / "peers.json").read_text()) == ({"x": 1.0}, cases)
