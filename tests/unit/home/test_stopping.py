"""A Spark session is stopped once none of its tasks runs."""

from types import SimpleNamespace
from typing import Any, cast

from py4j.protocol import Py4JNetworkError

from falkirk.environment.stopping import stop_session
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
