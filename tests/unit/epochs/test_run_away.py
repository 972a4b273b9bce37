"""An epoch that fails while the object store is away: the run waits, says so, and repeats the epoch after a pause."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.errors import HomeError, StoreError
from falkirk.errors.conditions.platform import DATA_AWAY, DATA_UNUSABLE
from falkirk.platform.durable import damaged
from falkirk.runtime.spark.epochs import run as run_module
from falkirk.runtime.spark.epochs.run import Run
from falkirk.runtime.spark.epochs.runner import EpochRunner
from falkirk.runtime.spark.epochs.term import Term
from falkirk.runtime.spark.retry import FAILURES_MAX
from falkirk.theory.ids import EpochNumber

EPOCH = EpochNumber(7)
AWAY = DATA_AWAY.error(where="s3a://shop/regions/seen", reason="503")
UNUSABLE = DATA_UNUSABLE.error(where="s3a://shop/regions/seen", reason="403")
DAMAGED = damaged("a file is missing.", "s3a://shop/regions/seen/part-0.parquet")


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def time(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def run(clock: Hand) -> Run:
    epoch = SimpleNamespace(number=EPOCH, is_complete=False, saved=False)
    batch = SimpleNamespace(
        name="seen", where="shop.py:3", is_stateful=False, is_direct=False, cut=None, iteration=None, inputs=()
    )
    epochs = SimpleNamespace(files=lambda: "epochs", epochs=lambda: (epoch,))
    jobs = SimpleNamespace(
        batch=batch, began_s=lambda: 0.0, epochs=epochs, all_logs={}, waits_for="", first_of_next=lambda epochs: {},
        ends=lambda first: {}, refuse_expired=lambda epoch: None,
    )  # fmt: skip
    runner = EpochRunner(cast(Any, jobs), EpochNumber(-1), Term(), cast(Any, clock))
    runner.is_restored = True
    runner.cut_if_due = lambda epochs: False  # type: ignore[method-assign]
    return Run(runner)


def finish(run: Run, monkeypatch: pytest.MonkeyPatch, found: Exception | None) -> None:
    """Let the epoch fail, and its inputs and state be looked at: the look fails with `found`."""

    def look(*_: object) -> None:
        if found is not None:
            raise found

    monkeypatch.setattr(run_module, "refuse_damaged", look)
    future: Future[None] = Future()
    future.set_exception(RuntimeError("Job aborted"))
    run._finish(EPOCH, future)


def test_it_waits_and_says_why(run: Run, clock: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the look raised, the next turn would repeat the epoch at once, and the status would name no reason."""
    started = list[EpochNumber]()
    monkeypatch.setattr(run, "_execute", lambda epoch: started.append(epoch.number))
    for times in range(20):  # without a limit
        finish(run, monkeypatch, AWAY)
        assert run._failing[EPOCH].startswith("epoch 7 failed, waiting: the object store")
        if times:
            run._turn()
            assert started == [], "a store that refuses at once would be asked without a pause"
            clock.now_s += 1
    run._turn()
    run._pool.shutdown()
    assert started == [EPOCH]


@pytest.mark.parametrize("found", [UNUSABLE, DAMAGED])
def test_a_refusal_or_a_loss_ends_it(run: Run, monkeypatch: pytest.MonkeyPatch, found: Exception) -> None:
    with pytest.raises((StoreError, HomeError)) as ended:
        finish(run, monkeypatch, found)
    assert ended.value is found


def test_another_failure_counts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(FAILURES_MAX - 1):
        finish(run, monkeypatch, None)
    with pytest.raises(RuntimeError, match="Job aborted"):
        finish(run, monkeypatch, None)
