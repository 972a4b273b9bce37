"""A Spark session is stopped once none of its tasks runs."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError

from falkirk.platform import deadline
from falkirk.runtime.spark.application.batches import Batches
from falkirk.runtime.spark.epochs.region import BatchRegion
from falkirk.runtime.spark.sinks import release
from falkirk.runtime.spark.sinks.release import EpochReleaser
from falkirk.runtime.supervision.failures import Failures
from falkirk.runtime.supervision.host import Host
from falkirk.runtime.supervision.supervised import Supervision
from falkirk.runtime.supervision.supervised_batch import SupervisedBatch
from falkirk.spark_setup.stopping import stop_session
from tests.clock import MovedClock


class Values:
    """An iterator of Scala."""

    def __init__(self, *values: int) -> None:
        self._values = list(values)

    def hasNext(self) -> bool:
        return bool(self._values)

    def next(self) -> int:
        return self._values.pop(0)


class Session:
    """A session. Attributes: tasks: the numbers on two executors. is_dead: its JVM is. stopped: with these tasks."""

    def __init__(self, *tasks: int) -> None:
        self.tasks, self.is_dead, self.stopped = tasks, False, list[tuple[int, ...]]()
        scheduler = SimpleNamespace(runningTasksByExecutors=self._running)
        java = SimpleNamespace(sc=lambda: SimpleNamespace(taskScheduler=lambda: scheduler))
        self.sparkContext = SimpleNamespace(_jsc=java)

    def _running(self) -> Any:
        if self.is_dead:
            raise Py4JNetworkError("it is dead")
        return SimpleNamespace(valuesIterator=lambda: Values(*self.tasks))

    def stop(self) -> None:
        self.stopped.append(self.tasks)


def stopped(session: Session, clock: MovedClock) -> list[tuple[int, ...]]:
    of_spark: Any = session
    stop_session(of_spark, clock=clock)
    return session.stopped


def test_it_is_stopped_when_the_last_task_has_ended() -> None:
    session, clock = Session(1, 1), MovedClock()
    left = [(0, 1), (0, 1), (0, 0)]

    def end_one() -> None:
        session.tasks = left.pop(0)

    clock.meanwhile = end_one
    assert stopped(session, clock) == [(0, 0)]
    assert len(clock.waits) == 3


def test_a_task_that_hangs_delays_it_for_some_seconds_only() -> None:
    clock = MovedClock()
    assert stopped(Session(1), clock) == [(1,)]
    assert 5 <= sum(clock.waits) < 6


def test_a_stop_that_has_taken_long_waits_no_longer() -> None:
    """The coordinator kills a host that takes too long."""
    clock, of_spark = MovedClock(), Session(1)
    stop_session(cast(Any, of_spark), until_s=clock.monotonic() + 1, clock=clock)
    assert 1 <= sum(clock.waits) < 2
    clock.waits.clear()
    stop_session(cast(Any, of_spark), until_s=clock.monotonic() - 1, clock=clock)
    assert (clock.waits, of_spark.stopped) == ([], [(1,), (1,)])


def test_a_dead_jvm_delays_nothing() -> None:
    session, clock = Session(1), MovedClock()
    session.is_dead = True
    assert stopped(session, clock) == [(1,)]
    assert clock.waits == []


class Hanging:
    """A run of a batch, and the thread of a release, that end only when nobody waits any more."""

    error, ident = None, 1

    def __init__(self, clock: MovedClock) -> None:
        self._clock = clock

    def wait(self, timeout_s: float) -> bool:
        self._clock.advance(timeout_s)
        return False

    drain = save_last = stop = join = wait

    def is_alive(self) -> bool:
        return True

    def leave_off(self) -> None:
        pass


def hanging_batch(clock: MovedClock) -> SupervisedBatch:
    batch: Any = BatchRegion.__new__(BatchRegion)
    batch.letters, batch._run = None, Hanging(clock)
    batch.batch = SimpleNamespace(
        name="a", where=None, is_direct=True, program=True, deterministic=True, is_saved_by_clock=True
    )
    batch.epochs = SimpleNamespace(epochs=tuple)
    batch._context = SimpleNamespace(clock=clock)
    return SupervisedBatch(batch, Supervision(context=cast(Any, None), failures=Failures(), say=lambda line: None))


def hanging_releaser(clock: MovedClock) -> EpochReleaser:
    releaser: Any = EpochReleaser.__new__(EpochReleaser)
    releaser._stopping, releaser._thread, releaser._session = threading.Event(), Hanging(clock), object()
    releaser._group, releaser._comparing, releaser._targets = "releases", None, {}
    return cast(EpochReleaser, releaser)


def test_all_waits_of_a_stop_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several batches, the waits one after the other would last longer than the coordinator allows."""
    clock, cancelled = MovedClock(), list[str]()
    monkeypatch.setattr(deadline, "time", clock)
    monkeypatch.setattr(release, "cancel_jobs", lambda session, group: cancelled.append(group))
    idle = SimpleNamespace(stop=lambda *_: None, record=lambda **_: None)
    host: Any = Host.__new__(Host)
    host._foreign = host._clocks = host._views = host._executors = idle
    releasers = tuple(hanging_releaser(clock) for _ in range(2))
    host._batches = Batches(regions={}, logs=cast(Any, None), files=(), releasers=releasers)
    host._units = {str(n): hanging_batch(clock) for n in range(3)}
    began_s = clock.monotonic()
    host.stop(began_s + 40)
    assert clock.monotonic() == began_s + 40
    assert cancelled == ["releases"] * 2
    host.stop(began_s + 20)
    assert clock.monotonic() == began_s + 40, "no time is left to wait"
    assert cancelled == ["releases"] * 4, "what hangs is cancelled all the same"


@pytest.mark.parametrize("failing", ["foreign", "leave_off a", "batches", "stop a", "views", ""])
def test_a_part_that_can_not_be_stopped_leaves_no_other_one_running(failing: str) -> None:
    """The caller gives the home up. Queries that run on would write results that nobody watches."""
    stopped, recorded = list[str](), list[bool]()

    def part(name: str) -> Any:
        def stop(*_: object) -> None:
            stopped.append(name)
            if name == failing:
                raise RuntimeError("it can't be stopped")

        return stop

    host: Any = Host.__new__(Host)
    host._foreign, host._clocks, host._batches, host._views = (
        SimpleNamespace(stop=part(name)) for name in ("foreign", "clocks", "batches", "views")
    )
    host._executors = SimpleNamespace(record=lambda *, complete: recorded.append(complete))
    host._units = {
        name: SimpleNamespace(leave_off=part(f"leave_off {name}"), stop=part(f"stop {name}")) for name in ("a", "b")
    }
    if failing:
        with pytest.raises(RuntimeError):
            host.stop()
    else:
        host.stop()
    assert stopped == ["foreign", "clocks", "leave_off a", "leave_off b", "batches", "stop a", "stop b", "views"]
    assert recorded == ([] if failing else [True]), "a query may still run on the executors"
