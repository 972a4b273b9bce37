"""A user's sink that does not answer, or fails for good, in a running release: the status says so, and nothing else
waits for it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.sinks import asking as asking_stores
from falkirk.runtime.spark.sinks import own
from falkirk.runtime.spark.sinks.asking import ANSWER_S
from falkirk.runtime.spark.sinks.release import EpochReleaser
from tests.clock import MovedClock
from tests.support import wait_until
from tests.unit.declare.test_own_sinks import Rows, target
from tests.unit.declare.test_own_sinks import Store as Kept
from tests.unit.epochs.test_backpressure import session


class Stubborn(Kept):
    """A sink that does not answer until it is released, and that fails at some calls of `deliver`."""

    def __init__(self) -> None:
        super().__init__()
        self.released, self.answered = threading.Event(), list[float]()
        self.fails = False
        self.tried_s = list[float]()

    def delivered(self) -> Any:
        assert self.released.wait(60)
        return super().delivered()

    def deliver(self, epoch: int, rows: Any) -> None:
        self.tried_s.append(time.monotonic())
        if self.fails:
            raise PermissionError("403 Forbidden")
        super().deliver(epoch, rows)


@pytest.fixture
def sink() -> Iterator[Stubborn]:
    """A sink that is released at the end of the test."""
    made = Stubborn()
    yield made
    made.released.set()


@pytest.fixture
def epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EpochLog]:
    """A log with one complete epoch."""
    store = Store(tmp_path / "decisions.db")
    log = EpochLog("epochs of b", "b", LocalData(tmp_path), store)
    log.decide({"t": {0: 0}}, {"t": {0: 1}}, {}, 0.0)
    log.record(0, folder="0", rows=1, dead=0, state=None, saved=True)
    monkeypatch.setattr(own, "sorted_by_place", lambda rows, few: Rows())
    yield log
    store.close()


@pytest.fixture
def releaser(sink: Stubborn, epochs: EpochLog) -> EpochReleaser:
    """A release of the epoch into the sink."""
    return EpochReleaser(epochs, {"out": target(sink)}, None, StructType())


def test_a_sink_that_does_not_answer_in_time_delays_nobody_else(sink: Stubborn, releaser: EpochReleaser) -> None:
    """With the users' limit. The release answers questions about its progress meanwhile: all complete epochs count as
    seen. Then the sink answers, and has its epoch once."""
    spark, began_s = session(), time.monotonic()
    assert releaser.release(spark, 0, 1) == 0
    assert releaser.visible() == 1
    assert time.monotonic() < began_s + ANSWER_S, "the caller has waited for the sink"
    wait_until(lambda: releaser.detail, 30, "the failure in the status")
    assert time.monotonic() >= began_s + ANSWER_S
    assert "'out' (a store) does not accept results: it has not answered delivered() within 5 s" in releaser.detail
    assert (releaser.visible(), releaser.backlog()) == (1, 1)
    sink.released.set()
    wait_until(lambda: releaser.release(spark, 0, 1) == 1, 30, "the release")
    assert (sink.epochs, releaser.detail) == ([0], "")


def test_without_the_limit_everybody_waits(
    sink: Stubborn, releaser: EpochReleaser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with the mechanism off: the thread that looks after all regions waits as long as the sink likes."""
    monkeypatch.setattr(asking_stores, "ANSWER_S", None)
    asking = threading.Thread(target=releaser.visible)
    asking.start()
    asking.join(ANSWER_S / 5)
    assert asking.is_alive()
    sink.released.set()
    asking.join(30)


def test_a_sink_that_fails_for_good_is_named_and_asked_less_and_less_often(
    sink: Stubborn, epochs: EpochLog, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be corrected at any time, so there is no last try. Its batch cuts no further epochs meanwhile, and all
    that does not read it runs on (`test_backpressure.py`)."""
    sink.released.set()
    sink.fails = True
    pauses = list[float]()
    clock = MovedClock()
    releaser = EpochReleaser(epochs, {"out": target(sink)}, None, StructType(), clock=clock)
    for tries in range(1, 8):
        releaser.release(session(), 0, 1)
        wait_until(lambda: not releaser._is_at_work(), 30, "the try")
        assert len(sink.tried_s) == tries
        assert releaser.release(session(), 0, 1) == 0
        assert not releaser._is_at_work(), "it is tried again without a pause"
        pauses.append(releaser._not_before_s - clock.now_s)
        clock.now_s = releaser._not_before_s
    assert pauses == [1.0, 2.0, 5.0, 10.0, 10.0, 10.0, 10.0]
    assert releaser.detail == (
        "sink 'out' (a store) does not accept results: deliver(0, …) raised PermissionError: 403 Forbidden."
    )
    assert len([r for r in caplog.records if "403" in r.getMessage()]) <= 2, "the log repeats it"
    sink.fails = False
    releaser.release(session(), 0, 1)
    wait_until(lambda: releaser.released() == 1, 30, "the release")
    assert (sink.epochs, releaser.detail) == ([0], "")
