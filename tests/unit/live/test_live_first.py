"""After a start, batches compute no epoch before the queries of live regions have started, or a time has passed."""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.runtime.spark.epochs.run import LIVE_FIRST, Run
from falkirk.runtime.spark.epochs.runner import EpochRunner
from falkirk.runtime.spark.epochs.term import Term
from falkirk.runtime.supervision.live_first import LIMIT_S, LiveFirst
from falkirk.theory.ids import EpochNumber
from tests.support import wait_until


def test_batches_wait_for_the_live_regions_of_a_start() -> None:
    now_s = 100.0
    first = LiveFirst(lambda: now_s)
    assert first.batches_may_work(), "nothing starts"
    first.begin()
    assert not first.batches_may_work()
    first.look([False, True])
    assert not first.batches_may_work(), "one of two has not started"
    first.look([False, False])
    assert first.batches_may_work()
    first.begin()
    now_s += LIMIT_S
    assert first.batches_may_work(), "a live region may not start at all"


def test_a_run_computes_nothing_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = [True]
    batch = SimpleNamespace(name="seen", iteration=None, is_stateful=False, is_direct=False, inputs=(), cut=None)
    jobs: Any = SimpleNamespace(
        batch=batch, began_s=lambda: 0.0, detail="", waits_for="", may_work=lambda: not waits[0],
        epochs=SimpleNamespace(files=lambda: "epochs"), reads=SimpleNamespace(report=lambda: ""),
    )  # fmt: skip
    runner = EpochRunner(jobs, EpochNumber(-1), Term(), time)
    runner.is_restored = True
    run, turns = Run(runner), list[str]()
    monkeypatch.setattr(run, "_turn", lambda: turns.append(jobs.detail))
    run.begin()
    try:
        wait_until(lambda: jobs.detail == LIVE_FIRST, 10, "a reason to wait")
        assert not turns
        waits[0] = False
        wait_until(lambda: jobs.detail == "" and turns, 10, "a turn")
    finally:
        cast(Any, run).leave_off()
        assert run.stop(10)
