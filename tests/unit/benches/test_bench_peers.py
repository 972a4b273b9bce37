"""The pure parts of the bench of peers: order of runs, summary, table, manifest, and figures of a run."""

from pathlib import Path

from benchmarks.client import Measured
from benchmarks.peers.bench import figures_of
from benchmarks.peers.jars import differing, manifest
from benchmarks.peers.order import Case, alternating, latency_cases, markdown, newest_checkpoint, summary

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
    assert table[3].count("–") == 7
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
