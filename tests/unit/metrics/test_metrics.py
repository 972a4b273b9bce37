"""A status becomes metrics: exact values, counters over hosts, and texts that others have chosen."""

from importlib.metadata import version
from typing import Any

import pytest

from falkirk.runtime.spark.status import EPOCH_BOUNDS_S, LATENCY_BOUNDS_S, RegionStatus
from falkirk.runtime.supervision.metrics import FAMILIES, STATES, Metrics
from tests.unit.metrics.statuses import Clock, batch, full, histogram, live, metrics_of, samples, status, value

#: All samples of the full status, without buckets and states.
EXPECTED: dict[tuple[str, tuple[str, ...]], float] = {
    ("falkirk_info", ("shop", version("falkirk"))): 1,
    ("falkirk_coordinator_start_time_seconds", ()): 1000,
    ("falkirk_host_start_time_seconds", ()): 1000,
    ("falkirk_host_restarts_total", ()): 0,
    ("falkirk_host_status_age_seconds", ()): 0,
    ("falkirk_processor_incarnation", ("sales",)): 3,
    ("falkirk_processor_incarnation", ("rank",)): 0,
    ("falkirk_processor_restarts_total", ("sales",)): 1,
    ("falkirk_processor_restarts_total", ("rank",)): 0,
    ("falkirk_checkpoint_number", ("sales",)): 41,
    ("falkirk_checkpoint_number", ("rank",)): 5,
    ("falkirk_checkpoint_age_seconds", ("sales",)): 1.5,
    ("falkirk_checkpoint_age_seconds", ("rank",)): 20,
    ("falkirk_suppressed_results_total", ("sales",)): 17,
    ("falkirk_suppressed_results_total", ("rank",)): 0,
    ("falkirk_dead_letters_total", ("sales",)): 2,
    ("falkirk_dead_letters_total", ("rank",)): 0,
    ("falkirk_source_records_total", ("sales", "orders")): 70,
    ("falkirk_source_records_total", ("rank", "links")): 9,
    ("falkirk_source_lag_records", ("sales", "orders")): 2,
    ("falkirk_sink_records_total", ("sales", "sales")): 4,
    ("falkirk_sink_records_total", ("rank", "ranks")): 12,
    ("falkirk_sink_latency_seconds_count", ("sales", "sales")): 4,
    ("falkirk_sink_latency_seconds_sum", ("sales", "sales")): 0.021,
    ("falkirk_held_results", ("sales", "sales")): 0,
    ("falkirk_held_results", ("rank", "ranks")): 5,
    ("falkirk_held_oldest_age_seconds", ("sales", "sales")): 0,
    ("falkirk_held_oldest_age_seconds", ("rank", "ranks")): 7.5,
    ("falkirk_epoch_duration_seconds_count", ("rank",)): 3,
    ("falkirk_epoch_duration_seconds_sum", ("rank",)): 4000.5,
    ("falkirk_checkpoint_pause_seconds_count", ("sales",)): 2,
    ("falkirk_checkpoint_pause_seconds_sum", ("sales",)): 0.7,
    ("falkirk_epochs_waiting", ("rank",)): 2,
    ("falkirk_loop_rounds_total", ("rank",)): 31,
    ("falkirk_state_rows", ("sales",)): 44,
    ("falkirk_state_memory_bytes", ("sales",)): 5000,
    ("falkirk_state_saved_bytes", ("rank",)): 640,
    ("falkirk_foreign_records", ("sales",)): 6,
}


def test_a_status_becomes_these_samples_and_no_others() -> None:
    found = {
        (name, tuple(label for _, label in labels)): number
        for (name, labels), number in samples(metrics_of(full())).items()
        if not name.endswith("_bucket") and name != "falkirk_processor_state"
    }
    assert found == EXPECTED


def test_each_metric_has_a_sample() -> None:
    """So the full status of these tests is full."""
    found = {name for name, _ in samples(metrics_of(full()))}
    for name, (kind, _, _) in FAMILIES.items():
        assert {"counter": f"{name}_total", "histogram": f"{name}_bucket"}.get(kind, name) in found


def test_buckets_are_cumulative() -> None:
    metrics = metrics_of(full())

    def buckets(name: str, bounds: tuple[float, ...], **labels: str) -> list[float | None]:
        return [value(metrics, f"{name}_bucket", le=le, **labels) for le in (*map(str, bounds), "+Inf")]

    latency = buckets("falkirk_sink_latency_seconds", LATENCY_BOUNDS_S, processor="sales", sink="sales")
    assert latency == [0, 3, 3, 3, *[4] * 13]
    assert buckets("falkirk_checkpoint_pause_seconds", LATENCY_BOUNDS_S, processor="sales") == [*[0] * 8, *[2] * 9]
    assert buckets("falkirk_epoch_duration_seconds", EPOCH_BOUNDS_S, processor="rank") == [0, 0, 0, *[2] * 10, 3]


@pytest.mark.parametrize("state", STATES)
def test_a_state_is_one_of_several(state: str) -> None:
    metrics = metrics_of(status(RegionStatus(name="sales", state=state)))
    found = {s: value(metrics, "falkirk_processor_state", processor="sales", state=s) for s in STATES}
    assert found == {s: float(s == state) for s in STATES}


def test_no_counter_falls_when_a_new_host_begins_anew() -> None:
    first, second = full(pid=1), full(pid=2)
    # The new host reports before it has counted anything, and again.
    nothing = status(RegionStatus(name="sales"), RegionStatus(name="rank"), pid=2, figures=[])
    metrics = metrics_of(first)
    before = samples(metrics)
    counters = {s for s in before if s[0].endswith(("_total", "_bucket", "_count", "_sum"))}
    metrics = metrics_of(first, nothing)
    assert {s: n for s, n in samples(metrics).items() if s in counters} == {
        s: before[s] + (s[0] == "falkirk_host_restarts_total") for s in counters
    }
    metrics = metrics_of(first, nothing, second)
    after = samples(metrics)
    positions = ("falkirk_dead_letters_total", "falkirk_source_records_total")
    assert {s: after[s] for s in counters} == {
        s: 1.0 if s[0] == "falkirk_host_restarts_total" else n if s[0] in positions else pytest.approx(2 * n)
        for s, n in before.items()
        if s in counters
    }


def test_an_unknown_number_of_dead_letters_is_not_shown_and_does_not_replace_a_known_one() -> None:
    """A counter that begins at 0 and climbs over old letters would look like new ones."""
    unknown = full(pid=2)
    unknown["regions"][0]["dead_letters"] = None
    names = {name for name, labels in samples(metrics_of(unknown)) if ("processor", "sales") in labels}
    assert "falkirk_suppressed_results_total" in names
    assert "falkirk_dead_letters_total" not in names
    assert value(metrics_of(full(), unknown), "falkirk_dead_letters_total", processor="sales") == 2


def test_a_host_with_the_number_of_the_last_one_is_another_one_if_its_counts_fall() -> None:
    """Process ids are used again."""
    late = status(figures=[live(sink={"records": 3})])
    assert value(metrics_of(full(), late), "falkirk_sink_records_total", processor="sales", sink="sales") == 7


def test_a_processor_that_is_gone_keeps_its_counters_and_has_no_gauges() -> None:
    metrics = metrics_of(full(), status(RegionStatus(name="rank", state="running"), pid=2))
    assert value(metrics, "falkirk_sink_records_total", processor="sales", sink="sales") == 4
    assert value(metrics, "falkirk_processor_state", processor="sales", state="running") is None


def test_ages_grow_while_the_host_is_silent() -> None:
    clock = Clock()
    metrics = metrics_of(full(), clock=clock)
    clock.now_s += 25
    assert value(metrics, "falkirk_checkpoint_age_seconds", processor="sales") == 26.5
    assert value(metrics, "falkirk_host_status_age_seconds") == 25


def test_what_is_not_known_has_no_sample() -> None:
    """On a cluster nobody counts what lanes publish, and a batch has no checkpoint at first."""
    unknown = {"name": "sales", "sources": {"orders": {"records": 1, "lag": None}}, "sinks": {"sales": {}}}
    metrics = metrics_of(status(RegionStatus(name="sales"), figures=[unknown]))
    found = {name for name, _ in samples(metrics)}
    assert not found & {
        "falkirk_sink_records_total", "falkirk_sink_latency_seconds_bucket", "falkirk_source_lag_records",
        "falkirk_checkpoint_age_seconds", "falkirk_held_results",
    }  # fmt: skip


def test_before_any_status_there_is_the_coordinator() -> None:
    assert {name for name, _ in samples(metrics_of())} == {
        "falkirk_info", "falkirk_coordinator_start_time_seconds", "falkirk_host_restarts_total",
        "falkirk_host_status_age_seconds",
    }  # fmt: skip


HOSTILE = [
    'a"} 7\nfalkirk_info{application="b', "line\nbreak", "carriage\rreturn", "quote\"back\\slash", "nul\0bell\a\x1b[2J",
    "\u2028separator\x85", "lone \ud800", "right to left \u202e", "", "x" * 5000, "{a='b'}", "# HELP falkirk_info no",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_stays_a_label(text: str) -> None:
    unit = RegionStatus(name=text, state="running", detail=text, condition=text)
    figures = [live(text, sources={text: {"records": 5}}, sinks={text: {"records": 6, "held": 1, "held_age_s": 1.0}})]
    foreign = [{"topic": text, "count": 2}]
    found = samples(metrics_of(status(unit, figures=figures, foreign=foreign)))
    (name,) = {dict(labels)["processor"] for (metric, labels) in found if metric == "falkirk_checkpoint_number"}
    assert "\n" not in name.replace("\\n", "")
    assert len(name) <= 200
    assert found["falkirk_sink_records_total", (("processor", name), ("sink", name))] == 6
    assert found["falkirk_source_records_total", (("processor", name), ("source", name))] == 5
    assert found["falkirk_foreign_records", (("topic", name),)] == 2
    assert len([s for s in found if s[0] == "falkirk_info"]) == 1


def test_names_that_become_the_same_label_are_one_sample() -> None:
    """Prometheus refuses an answer with the same sample twice."""
    units = [RegionStatus(name=name, state="running", last_commit=n) for n, name in enumerate(("a", "a\0", "a\x1b"))]
    assert value(metrics_of(status(*units)), "falkirk_checkpoint_number", processor="a") == 2


@pytest.mark.parametrize(
    "wrong", [None, 5, "text", [], {}, {"a": None}, [None], [[1]], float("nan"), -1, True, 10**400]
)
def test_a_status_of_another_form_is_left_out(wrong: Any) -> None:
    metrics = metrics_of(full())
    before = {s: n for s, n in samples(metrics).items() if s[0].endswith("_total")}
    for changed in (
        {"pid": 1, "regions": wrong, "figures": wrong, "foreign": wrong, "at_s": wrong},
        {"pid": 1, "regions": [{"name": wrong, "state": wrong, "restarts": wrong, "checkpoint_age_s": wrong}]},
        {"pid": 1, "figures": [{"name": "sales", "sources": wrong, "sinks": wrong, "state": wrong, "epochs": wrong}]},
        {
            "pid": 1,
            "figures": [live(sinks={"sales": {"records": wrong, "counts": wrong, "sum": wrong, "held": wrong}})],
        },
        {"pid": 1, "figures": [batch(epochs={"rounds": wrong, "duration": wrong, "backlog": wrong})]},
        {"pid": 1, "figures": [live(sink={"counts": [wrong] * 17, "sum": wrong})]},
    ):
        metrics.update(changed)
        after = samples(metrics)
        assert all(after[s] >= n for s, n in before.items())
        metrics.ready()


def test_metrics_are_described_without_a_status() -> None:
    """So a registry can check their names."""
    assert [family.name for family in Metrics("shop", metrics_of()._pulse).collect()] == [*FAMILIES]


def test_a_histogram_with_other_buckets_is_left_out() -> None:
    """A host of another version."""
    old = live(sink={**histogram((1.0, 2.0), {0: 5}, 3.0)})
    metrics = metrics_of(status(figures=[old]))
    assert value(metrics, "falkirk_sink_latency_seconds_count", processor="sales", sink="sales") is None
    assert value(metrics, "falkirk_sink_records_total", processor="sales", sink="sales") == 4
