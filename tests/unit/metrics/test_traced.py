"""Recorded spans: an epoch that fails and is retried, a release, a recovery, a checkpoint, and nothing if it is off."""

import random
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from falkirk.errors import DefinitionError, SparkError
from falkirk.plan.batch import BatchInput
from falkirk.platform import traced
from falkirk.platform.local_data import LocalData
from falkirk.platform.traced import KEPT_MAX, OFF, STEPS_MAX, Recorder, add_attributes, condition_of, step
from falkirk.recovery.decision_store import Store
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.epochs.run import Run
from falkirk.runtime.spark.sinks.release import EpochReleaser
from falkirk.runtime.supervision.recorded import RecordedRecovery, checkpoint_span, recorded
from tests.clock import MovedClock
from tests.simulation.memory import MemoryStore
from tests.simulation.world import World
from tests.support import on_disk, wait_until
from tests.unit.epochs.test_backpressure import Sink, session
from tests.unit.epochs.test_restore import Region, runner_of


def named(spans: list[dict[str, Any]]) -> list[str]:
    return [span["name"] for span in spans]


def test_steps_belong_to_the_span_of_their_thread() -> None:
    recorder = Recorder()
    seen: list[object] = []
    with recorder.span("outer", a=1) as outer, recorder.span("inner"), step("part", b="x" * 1000):
        add_attributes(c=2)
        other = threading.Thread(target=lambda: seen.append(step("of another thread").__enter__()))
        other.start()
        other.join()
    (found,) = recorder.recent()
    assert (found["number"], found["name"], found["attributes"]) == (1, "outer", {"a": 1})
    (inner,) = found["steps"]
    (part,) = inner["steps"]
    assert (inner["name"], part["name"]) == ("inner", "part")
    assert part["attributes"] == {"b": "x" * 200, "c": 2}
    assert outer.took_s >= part["took_s"] >= 0
    assert seen == [traced._NOTHING]


def test_a_recorder_that_is_off_records_nothing() -> None:
    with OFF.span("epoch") as span, step("compute") as part:
        span.note(a=1)
        part.note(b=1)
        add_attributes(c=1)
    assert OFF.recent() == []
    assert not traced._NOTHING.attributes


def test_a_host_keeps_a_limited_number_for_a_limited_time() -> None:
    clock = MovedClock()
    recorder = Recorder(clock=clock)
    for _ in range(KEPT_MAX + 5):
        with recorder.span("epoch"):
            for _ in range(2 * STEPS_MAX if recorder._count == KEPT_MAX else 0):
                with step("part"):
                    pass
    found = recorder.recent()
    assert [span["number"] for span in found] == [*range(6, KEPT_MAX + 6)]
    assert max(len(span["steps"]) for span in found) == STEPS_MAX
    clock.advance(traced.KEPT_S - 1.0)
    with recorder.span("late"):
        pass
    assert len(recorder.recent()) == KEPT_MAX
    clock.advance(2.0)
    assert named(recorder.recent()) == ["late"]  # it was published for two seconds, the others for longer
    clock.advance(traced.KEPT_S)
    assert recorder.recent() == []
    with recorder.span("unpublished"):
        pass
    clock.advance(2 * traced.KEPT_S)  # the host could not publish for a while
    assert named(recorder.recent()) == ["unpublished"]


def test_an_error_is_recorded_by_its_name_alone() -> None:
    spark = AnalysisException(errorClass="UNRESOLVED_COLUMN", messageParameters={}, message="secret")
    for error, expected in {
        SparkError("FUNCTION_FAILED", "on {'n': 'secret'}"): "FUNCTION_FAILED",
        ValueError("secret"): "ValueError",
        spark: "UNRESOLVED_COLUMN",
    }.items():
        recorder = Recorder()
        with pytest.raises(type(error)), recorder.span("epoch"), step("compute"):
            raise error
        (span,) = recorder.recent()
        assert (span["error"], span["steps"][0]["error"]) == (expected, expected)
        assert "secret" not in str(span)
        assert condition_of(error) == expected


def batch_region(epochs: EpochLog, recorder: Recorder) -> Any:
    """Return the part of a batch that a run uses. It reads a topic."""
    region = Region(epochs)
    given = SimpleNamespace(log="t", topic="t", folder=None, view=False)
    vars(region.batch).update(inputs=(cast(BatchInput, given),), where="shop.py:3", log=epochs.name, deterministic=True)
    return vars(region).update(
        recorder=recorder, all_logs={epochs.name: epochs}, ends=lambda first: {}, first_of_next=lambda epochs: {},
        refuse_expired=lambda epoch: None, unreadable=lambda *_: {},
    ) or region  # fmt: skip


@pytest.mark.parametrize("is_on", [True, False])
def test_an_epoch_that_fails_and_is_retried(store: Store, tmp_path: Path, *, is_on: bool) -> None:
    recorder = Recorder(is_on=is_on)
    region = batch_region(EpochLog("epochs of b", "b", LocalData(tmp_path), store), recorder)
    runner = runner_of(region, -1)
    runner.restore()
    run = Run(runner)
    region.reads.refuse = lambda found: None
    for n in range(3):
        region.epochs.decide({"t": {0: n}}, {"t": {0: n + 1}}, {}, 0.0)
        run._execute(region.epochs.epochs()[-1])
    region.epochs.decide({"t": {0: 3}}, {"t": {0: 9}}, {}, 0.0)
    region.broken = 1
    epoch = region.epochs.epochs()[-1]
    for _ in range(2):
        future = run._pool.submit(run._execute, epoch)
        wait_until(future.done, 30, "the epoch")
        run._finish(epoch.number, future)
    assert region.epochs.epochs()[-1].is_complete
    found = recorder.recent()
    if not is_on:
        assert found == []
        return
    assert named(found) == ["epoch"] * 5
    failed, complete = found[-2:]
    assert failed["error"] == "AnalysisException"
    assert failed["attributes"].items() >= {"processor": "b", "epoch": 3, "try": 1, "outcome": "failed"}.items()
    assert [(s["name"], s["error"]) for s in failed["steps"]] == [("compute", "AnalysisException")]
    assert complete["error"] == ""
    expected = {"epoch": 3, "try": 2, "outcome": "complete", "records": 6, "results": 1, "dead_letters": 0}
    assert complete["attributes"].items() >= expected.items()
    assert named(complete["steps"]) == ["compute", "write", "save", "record"]
    assert "can't be read" not in str(found)


def test_a_release_is_a_span_with_its_sinks(store: Store, tmp_path: Path) -> None:
    epochs, sink, recorder = EpochLog("epochs of b", "b", LocalData(tmp_path), store), Sink(fails=True), Recorder()
    epochs.decide({"t": {0: 0}}, {"t": {0: 1}}, {}, 0.0)
    on_disk(epochs.path("0")).mkdir()
    epochs.record(0, folder="0", rows=1, dead=0, state=None, saved=True)
    releaser = EpochReleaser(epochs, cast(Any, {"out": sink}), None, StructType(), recorder)
    releaser.release(session(), 0, 1)  # type: ignore[arg-type]
    wait_until(lambda: releaser.detail, 10, "the failure")
    sink.open.set()
    wait_until(lambda: releaser.release(session(), 0, 1) == 1, 30, "the release")  # type: ignore[arg-type]
    found = recorder.recent()
    assert [(s["name"], s["error"]) for s in found] == [("release", "RELEASE_FAILED"), ("release", "")]
    assert found[1]["attributes"] == {"processor": "b", "epoch": 0}
    assert [(s["name"], s["attributes"]) for s in found[1]["steps"]] == [("deliver", {"sink": "out"})]


def test_a_recovery_is_a_span_with_its_decision_and_the_slow_calls_of_each_region() -> None:
    stages = {
        "first": Stage(name="first", inputs=("in",), output="hop"),
        "second": Stage(name="second", inputs=("hop",), output="out"),
        "other": Stage(name="other", inputs=("in",), output="aside"),
    }
    layout = Layout(stages=stages, partitions=dict.fromkeys(("in", "hop", "out", "aside"), 1), held={})
    world, recorder, refused = World(layout, random.Random(7)), Recorder(), set[str]()
    world.store = MemoryStore()

    def before_start(name: str) -> bool:
        if name in refused:
            raise DefinitionError("NOT_CO_PARTITIONED", "the key 'secret' came from two partitions")
        return True

    recovery = RecordedRecovery(
        layout, recorded(cast(Any, world.regions)), world, world.store, world.clock, recorder=recorder,
        before_start=before_start,
    )  # fmt: skip
    with recorder.span("start"):
        recovery.open()
    world.regions["second"].die()
    recovery.turn()
    refused.add("other")
    world.regions["other"].die()
    recovery.turn()
    start, again, last = recorder.recent()
    assert named(start["steps"]) == ["recovery"]
    assert start["steps"][0]["attributes"]["reason"] == "start"
    assert (again["name"], again["attributes"]["reason"]) == ("recovery", "second is dead")
    assert again["attributes"]["failed"] == again["attributes"]["processors"] == "second"
    assert again["attributes"]["checkpoints"] == "second -1"
    steps = [(s["name"], s["attributes"].get("processor")) for s in again["steps"]]
    # The second decision takes in what the region has written before its fence.
    assert steps == [
        ("decision", None), ("fence", "second"), ("decision", None), ("fence", "second"), ("rewind", "second"),
        ("processor.start", "second"),
    ]  # fmt: skip
    assert last["attributes"]["down"] == "other NOT_CO_PARTITIONED"
    assert "secret" not in str(last)


def test_a_checkpoint_is_a_span_of_sparks_batch() -> None:
    progress = {
        "timestamp": "2026-11-28T01:00:00.000Z", "batchId": 7, "numInputRows": 12,
        "durationMs": {"triggerExecution": 2500, "addBatch": 2000},
    }  # fmt: skip
    span = checkpoint_span("sales", progress)
    assert span is not None
    assert (span.name, span.began_s, span.took_s) == ("checkpoint", 1795827600.0, 2.5)
    assert span.attributes == {
        "processor": "sales", "checkpoint": 7, "records": 12, "addBatch_ms": 2000, "triggerExecution_ms": 2500
    }  # fmt: skip
    assert checkpoint_span("sales", {"batchId": 7}) is None


def test_a_start_without_a_collector_imports_nothing_of_opentelemetry() -> None:
    program = (
        "import sys, falkirk.cli, falkirk.user_tools.commands.run\n"
        "import falkirk.runtime.supervision.process, falkirk.runtime.supervision.query\n"
        "assert not falkirk.runtime.supervision.process.is_recorded()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})
