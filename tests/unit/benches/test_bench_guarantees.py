"""Bench of mechanisms: each subject has its mechanism's policy, and a missing signature is reported."""

from dataclasses import MISSING, fields
from pathlib import Path

import pytest
from click.testing import CliRunner

import falkirk as fk
from benchmarks.__main__ import bench
from benchmarks.charts import draw_guarantees
from benchmarks.guarantees import all_seen, guarantees_table, signature
from benchmarks.mechanisms import JOBS, MECHANISMS, Subject, is_expected
from benchmarks.report import Report
from falkirk.checker import Guarantee, Verdict
from falkirk.checker.verdict import Counts

POLICIES = {
    "determinism": fk.Lazy, "snapshots": fk.Snapshots, "strong_productions": fk.LogSends,
    "acknowledgements": fk.Acknowledged, "micro_batches": fk.Eager, "log_sends": fk.LogSends,
}  # fmt: skip


def subject(name: str, job: str, home: Path) -> Subject:
    """Return a subject that does not run."""
    return Subject(
        mechanism=name, job=job, bootstrap="b:1", source="s", sink="t", home=home, interval_s=4.0, every_s=2.0
    )


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_each_mechanism_is_its_policy(name: str, job: str, tmp_path: Path) -> None:
    app = subject(name, job, tmp_path).application()
    declared = next(p for p in app.processors.values() if not isinstance(p.policy, fk.Ephemeral))
    assert isinstance(declared.policy, POLICIES[name])
    assert (declared.cut is not None) == (name == "log_sends")
    at_least_once = name == "acknowledgements"
    assert (app.sinks["result"].delivery is fk.Delivery.AT_LEAST_ONCE) == at_least_once
    counts = app.processors["result"].policy
    assert isinstance(counts, fk.Lazy) or not (at_least_once and job == "count"), "its state is saved"


def verdict(*held: Guarantee) -> Verdict:
    """Return a verdict of which only the guarantees matter."""
    counts = Counts(**dict.fromkeys((f.name for f in fields(Counts) if f.default is MISSING), 0))
    return Verdict(
        guarantee=held[0], holds={g: g in held for g in Guarantee}, counts=counts, anomalies=(), undecided=()
    )


def test_acknowledgements_repeat_and_the_others_do_not() -> None:
    """Without a state that counts a record twice, repeated results are exact."""
    exactly_once = verdict(Guarantee.EXACTLY_ONCE, Guarantee.REPEATED_DELIVERY, Guarantee.AT_LEAST_ONCE)
    repeated = verdict(Guarantee.REPEATED_DELIVERY, Guarantee.AT_LEAST_ONCE)
    twice, lost = verdict(Guarantee.AT_LEAST_ONCE), verdict(Guarantee.AT_MOST_ONCE)
    for name in MECHANISMS:
        may_repeat = name == "acknowledgements"
        assert is_expected(name, exactly_once) is not may_repeat
        assert is_expected(name, repeated) is is_expected(name, twice) is may_repeat
        assert not is_expected(name, lost)


_LITTLE = {"p50_ms": 3.0, "durable_bytes_per_record": 80.0, "processed_bytes_per_record": 550.0}


@pytest.mark.parametrize(
    ("name", "shows", "does_not"),
    [
        ("determinism", _LITTLE, {**_LITTLE, "p50_ms": 2_000.0}),
        ("determinism", _LITTLE, {**_LITTLE, "durable_bytes_per_record": 900.0}),
        ("snapshots", {"p50_ms": 2_600.0}, {"p50_ms": 3.0}),
        ("snapshots", {"p50_ms": 2_600.0}, {"p50_ms": 9_000.0}),
        (
            "strong_productions",
            {"durable_bytes_per_record": 600.0, "processed_bytes_per_record": 550.0},
            {"durable_bytes_per_record": 80.0, "processed_bytes_per_record": 550.0},
        ),
        ("acknowledgements", {"repeated_count": 5, "lost_count": 0}, {"repeated_count": 0, "lost_count": 0}),
        ("acknowledgements", {"repeated_count": 5, "lost_count": 0}, {"repeated_count": 5, "lost_count": 1}),
        ("micro_batches", {"p50_ms": 900.0}, {"p50_ms": 3.0}),
        ("log_sends", {"p50_ms": 1_500.0}, {"p50_ms": 300.0}),
    ],
)
def test_a_signature_shows_or_not(name: str, shows: dict[str, float], does_not: dict[str, float]) -> None:
    assert signature(name, {"p50_ms": 1.0, **shows}, interval_s=4.0, every_s=2.0)[1]
    assert not signature(name, {"p50_ms": 1.0, **does_not}, interval_s=4.0, every_s=2.0)[1]


def test_what_is_not_seen_is_told(tmp_path: Path) -> None:
    report = Report(bench="guarantees", settings={"job": "count"})
    measures = ("p50_ms", "p99_ms", "records_per_s", "durable_bytes_per_record", "recovery_s", "repeated_count")
    report.figures |= {f"snapshots_{measure}": 2.0 for measure in measures} | {"snapshots_signature_seen": 1}
    report.findings |= {"snapshots_verdict": "exactly-once", "snapshots_signature": "half: seen"}
    assert all_seen(report)
    report.figures["determinism_signature_seen"] = 0
    assert not all_seen(report)
    assert guarantees_table(report).row_count == 1
    assert report.to_json()["findings"] == report.findings
    assert draw_guarantees(report, tmp_path).stat().st_size > 1_000


def test_what_can_not_be_measured_is_a_wrong_command_line() -> None:
    assert CliRunner().invoke(bench, ["guarantees", "--mechanism", "none"]).exit_code == 2
    assert CliRunner().invoke(bench, ["guarantees", "--job", "none"]).exit_code == 2
