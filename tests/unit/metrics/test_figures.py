"""The counts and measurements of the host: histograms, ages of held results, and the epochs of a batch."""

import contextlib
import json
from bisect import bisect_left
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.errors.conditions.platform import DATA_AWAY
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.runtime.spark.epochs.states import States
from falkirk.runtime.spark.figures import HeldAge, Histogram, note_timestamps
from falkirk.runtime.spark.status import EPOCH_BOUNDS_S, LATENCY_BOUNDS_S
from falkirk.runtime.supervision.figures import BatchFigures, LiveFigures
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.ids import CheckpointNumber, LogId, Offset
from tests.unit.house.test_layers import ROOT
from tests.unit.metrics.statuses import Clock

ORDERS, HELD, LOG = LogId("orders"), LogId("held"), LogId.of_epochs("rank")


@pytest.mark.parametrize(("plugins", "notes"), [(None, False), ("org.falkirk.ClusterPlugin", True)])
def test_executors_that_can_not_report_note_no_timestamps(plugins: str | None, *, notes: bool) -> None:
    conf, asked = {} if plugins is None else {"spark.plugins": plugins}, list[str]()
    spark = SimpleNamespace(master="spark://there:7077", getConf=lambda: conf)

    class Session:
        sparkContext = spark

        @property
        def _jvm(self) -> object:
            asked.append("it builds the call")
            raise RuntimeError

    raw, context = object(), SimpleNamespace(session=Session())
    with contextlib.suppress(RuntimeError):
        assert note_timestamps(raw, context, "sales", 0, crosses=True) is raw  # type: ignore[arg-type]
    assert bool(asked) is notes


def test_a_value_counts_in_the_first_bucket_whose_bound_is_not_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 9.0):
        histogram.observe(value)
    assert histogram.describe() == {"counts": [2, 2, 1], "sum": 13.5}


def test_java_has_the_same_bounds() -> None:
    text = (ROOT / "java/src/org/falkirk/Figures.java").read_text()
    bounds = text.partition("BOUNDS_MS = {")[2].partition("}")[0].replace("_", "")
    assert tuple(int(bound) / 1000 for bound in bounds.split(",")) == LATENCY_BOUNDS_S


def test_the_age_of_held_results() -> None:
    clock = Clock()
    held = HeldAge(clock)

    def at(now_s: float, ends: dict[int, int], released: dict[int, int]) -> float:
        clock.now_s = 1000 + now_s
        return held.age_s({p: Offset(o) for p, o in ends.items()}, released)

    assert at(0, {0: 5, 1: 5}, {0: 5, 1: 5}) == 0
    assert at(1, {0: 6, 1: 5}, {0: 5, 1: 5}) == 0  # a poll sees the new one first
    assert at(3, {0: 6, 1: 5}, {0: 5, 1: 5}) == 2
    assert at(4, {0: 6, 1: 8}, {0: 5, 1: 5}) == 3
    assert at(5, {0: 6, 1: 8}, {0: 6, 1: 5}) == 1  # the oldest one is released
    assert at(6, {0: 6, 1: 8}, {0: 6, 1: 8}) == 0
    assert at(90, {0: 6, 1: 8}, {0: 6, 1: 8}) == 0
    assert at(91, {0: 7, 1: 8}, {0: 6, 1: 8}) == 0
    assert at(95, {0: 7, 1: 8}, {0: 6, 1: 8}) == 4


def test_a_long_wait_costs_no_memory() -> None:
    clock = Clock()
    held = HeldAge(clock, kept=10)
    for n in range(1000):
        clock.now_s = 1000.0 + n
        assert held.age_s({0: Offset(n + 1)}, {0: 0}) == n
    assert len(held._seen) <= 10
    clock.now_s += 1
    assert held.age_s({0: Offset(1000)}, {0: 990}) <= 1000


def region(released_to: str | None = None) -> Any:
    source = SimpleNamespace(topic=SimpleNamespace(topic="orders", log=ORDERS))
    output = SimpleNamespace(topic="held", log=HELD)
    sink = None if released_to is None else SimpleNamespace(topic=released_to)
    return SimpleNamespace(name="sales", source=source, output=output, released_to=sink, interval_s=2.0)


def live(released_to: str | None = None) -> Any:
    read = OffsetFrontier.before({ORDERS: {0: Offset(15), 1: Offset(7)}})
    return SimpleNamespace(
        region=region(released_to), starts={ORDERS: {0: Offset(10), 1: Offset(0)}},
        ends={HELD: {0: Offset(9), 1: Offset(4)}},
        checkpoints=lambda: (Checkpoint(number=CheckpointNumber(3), read=read, sent=EMPTY),),
    )  # fmt: skip


def progress(average: str) -> dict[str, Any]:
    return {"sources": [{"metrics": {"avgOffsetsBehindLatest": average}}]}


@pytest.mark.parametrize(
    ("told", "lag"), [(progress("1.5"), 3), (None, None), ({"sources": []}, None), (progress("x"), None)]
)
def test_a_live_region(told: dict[str, Any] | None, lag: int | None) -> None:
    figures = LiveFigures(live())
    figures.update(told)
    published = {"sales": {"held": {"records": 13, "counts": [13], "sum": 1.0}, "held.dead-letters": {"records": 2}}}
    assert figures.describe(published, EMPTY) == {
        "name": "sales",
        "sources": {"orders": {"records": 12, "lag": lag}},
        "sinks": {"held": {"records": 13, "counts": [13], "sum": 1.0}},
        "state": {},
        "pauses": {"counts": [0] * (len(LATENCY_BOUNDS_S) + 1), "sum": 0.0},
    }


def test_what_a_live_region_has_not_read_by_now_is_newer_than_sparks_report() -> None:
    figures = LiveFigures(live())
    figures.update(progress("1.5"), {ORDERS: 400})
    assert figures.describe({}, EMPTY)["sources"] == {"orders": {"records": 12, "lag": 400}}


def test_the_pause_at_a_checkpoint_is_the_time_of_a_batch_beyond_its_interval() -> None:
    """The first batch of a query counts for nothing, and each batch counts once, though several polls see it."""
    figures = LiveFigures(live())
    seen = [
        ("a", 4, 9000),
        ("a", 4, 9000),
        ("a", 5, 2300),
        ("a", 5, 2300),
        None,
        ("a", 6, 1999),
        ("b", 6, 5000),
        ("b", 7, 2040),
    ]
    for batch in seen:
        run, number, took_ms = batch or ("", 0, 0)
        progress = {"runId": run, "batchId": number, "durationMs": {"triggerExecution": took_ms}}
        figures.update(progress if batch else None)
    pauses = figures.describe({}, EMPTY)["pauses"]
    places = [bisect_left(LATENCY_BOUNDS_S, pause_s) for pause_s in (0.3, 0.0, 0.04)]
    assert pauses["counts"] == [places.count(place) for place in range(len(LATENCY_BOUNDS_S) + 1)]
    assert pauses["sum"] == pytest.approx(0.34)


def test_the_state_of_a_live_region() -> None:
    figures = LiveFigures(live())
    figures.update({"stateOperators": [{"numRowsTotal": 7, "memoryUsedBytes": 100, "x": 1}] * 2})
    assert figures.describe({}, EMPTY)["state"] == {"rows": 14, "bytes": 200}
    figures.update({"stateOperators": [{"numRowsTotal": None}]})
    assert figures.describe({}, EMPTY)["state"] == {}


def test_a_live_region_whose_results_are_held() -> None:
    figures = LiveFigures(live("sales"))
    figures.update(None)
    latency = {"counts": [8], "sum": 20.0}  # of the copies
    published = {"sales": {"held": {"records": 13}}, "release:sales": {"sales": {"records": 8, **latency}}}
    outputs = figures.describe(published, OffsetFrontier.before({HELD: {0: Offset(6), 1: Offset(4)}}))["sinks"]
    assert outputs == {
        "held": {"records": 13},
        "sales": {"records": 8, **latency, "held": 3, "held_age_s": pytest.approx(0, abs=9)},
    }
    assert figures.describe({}, EMPTY)["sinks"]["sales"]["records"] is None


def epoch(number: int, *, made_at_s: float | None = 1001.0, rows: int = 10) -> Any:
    return SimpleNamespace(
        number=number, is_complete=made_at_s is not None, made_at_s=made_at_s, decided_at_s=1000.0, rows=rows, dead=0,
        marks={"rounds": 4}, then={ORDERS: {0: Offset(100 * number + 100)}}, folder=f"{number}", state=None,
    )  # fmt: skip


def test_a_batch() -> None:
    sinks = [SimpleNamespace(name="ranks", to=object())]
    inputs = [
        SimpleNamespace(name="orders_", log=ORDERS, topic=SimpleNamespace(topic="orders"), view=False),
        SimpleNamespace(name="weights", log=LogId.of_epochs("weights"), topic=None, view=True),
    ]
    batch = SimpleNamespace(name="rank", log=LOG, sinks=sinks, inputs=inputs)
    jobs = SimpleNamespace(first_of_next=lambda epochs: {ORDERS: {0: Offset(50)}}, seen_ends={})
    of: Any = SimpleNamespace(batch=batch, jobs=jobs, releaser=SimpleNamespace(backlog=lambda: 1))
    figures = BatchFigures(of, 900.0)
    former = [epoch(0, made_at_s=800.0), epoch(1, made_at_s=850.0)]
    figures.update(former)
    found = figures.describe(OffsetFrontier.before({LOG: {0: Offset(2)}}))
    assert found["epochs"]["duration"] == {"counts": [0] * (len(EPOCH_BOUNDS_S) + 1), "sum": 0.0}
    assert found["sinks"] == {"ranks": {"records": 0, "held": 0, "held_age_s": 0.0}}
    assert found["sources"] == {"orders": {"records": 150, "lag": None}}

    jobs.seen_ends = {ORDERS: {0: Offset(330)}}
    for _ in range(2):  # each counts once
        figures.update([*former, epoch(2), epoch(3, made_at_s=None), epoch(4)])
    found = figures.describe(OffsetFrontier.before({LOG: {0: Offset(2)}}))
    assert (found["epochs"]["rounds"], found["epochs"]["duration"]["sum"], found["epochs"]["backlog"]) == (4, 1.0, 1)
    assert found["sinks"]["ranks"]["held"] == 10
    assert found["sinks"]["ranks"]["held_age_s"] > 1e6
    assert found["sources"] == {"orders": {"records": 250, "lag": 30}}

    figures.update([*former, epoch(2), epoch(3, made_at_s=1500.0), epoch(4)])
    found = figures.describe(OffsetFrontier.before({LOG: {0: Offset(4)}}))
    assert (found["epochs"]["rounds"], sum(found["epochs"]["duration"]["counts"])) == (12, 3)
    assert found["sinks"]["ranks"]["records"] == 20


def test_the_size_of_the_newest_saved_state_of_a_batch_is_measured_once() -> None:
    asked, sizes, answers = list[str](), {"1-state": 700, "3-state": 900}, Event()

    def size_bytes(of: Any) -> int | None:
        answers.wait(5.0)
        asked.append(of.state)
        if len(asked) == 1:
            raise DATA_AWAY.error(where="s3a://there", reason="no answer")
        return sizes.get(of.state)

    batch = SimpleNamespace(name="rank", log=LOG, sinks=[], inputs=[])
    jobs = SimpleNamespace(first_of_next=lambda epochs: {}, states=SimpleNamespace(size_bytes=size_bytes))
    of: Any = SimpleNamespace(batch=batch, jobs=jobs, releaser=None)
    figures, made = BatchFigures(of, 0.0), [epoch(n) for n in range(4)]

    def state() -> dict[str, int]:
        """Return the size that a turn finds, and let the look end that it has begun."""
        figures.update(made)
        found = dict(figures.describe(EMPTY)["state"])
        if answers.is_set() and (look := figures._measured._look) is not None:
            assert look.wait(30.0)
        return found

    assert state() == {}
    made[1].state = "1-state"
    assert [state(), asked] == [{}, []], "the host does not wait for the object store"
    answers.set()
    assert figures._measured._look is not None
    assert figures._measured._look.wait(30.0)  # it is away
    assert [state() for _ in range(3)] == [{}, {"saved_bytes": 700}, {"saved_bytes": 700}]
    made[3].state = "3-state"
    assert [state() for _ in range(3)] == [{"saved_bytes": 700}, {"saved_bytes": 900}, {"saved_bytes": 900}]
    assert asked == ["1-state", "1-state", "3-state"]
    made[3].state, made[1].state = None, "deleted"
    assert [state(), state()] == [{"saved_bytes": 900}, {}]


@pytest.mark.parametrize("is_result", [True, False])
def test_the_size_of_a_saved_state(*, is_result: bool) -> None:
    notes = {"loop": {"files": {"a": [30, 1], "b": [4, 1]}}}
    rows = {"part-0.parquet": [500, 1], "_dead0/part-0.parquet": [9000, 1]}
    kept = {"count/part-0.parquet": [60, 1], "loop.json": [7, 1]}
    of: Any = SimpleNamespace(
        state="2" if is_result else "2-state", folder="2", files=rows, state_files={} if is_result else kept
    )
    log = Folders({} if is_result else {"2-state/loop.json": json.dumps(notes["loop"])})
    states = States(None, SimpleNamespace(notes=("loop",)), log, None)  # type: ignore[arg-type]
    assert states.size_bytes(of) == (500 if is_result else 60 + 7 + 30 + 4)
    for damaged in ("", '{"files": {"a": [3', "[]", '{"files": []}', '{"files": {"a": 3}}'):
        log.texts["2-state/loop.json"] = damaged
        assert states.size_bytes(of) == (500 if is_result else None), "a metric ends no host"
    log.texts.clear()
    assert states.size_bytes(of) == (500 if is_result else None)  # deleted meanwhile


class Folders:
    """The part of a log of epochs that reads notes."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts

    def path(self, folder: str) -> Any:
        def text_of(name: str) -> Any:
            def read_text() -> str:
                if f"{folder}/{name}" not in self.texts:
                    raise FileNotFoundError
                return self.texts[f"{folder}/{name}"]

            return SimpleNamespace(read_text=read_text)

        class Path:
            def __truediv__(self, name: str) -> Any:
                return text_of(name)

        return Path()
