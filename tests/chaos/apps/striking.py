"""Places in a loop's work at which its process is killed, with -9, when a file says so; and rounds that fail while one
does."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql.classic.dataframe import DataFrame

from falkirk.coordinator import home
from falkirk.differential import alone, jobs
from falkirk.differential.jobs import Jobs
from falkirk.differential.task import Task
from falkirk.epochs.log import EpochLog
from tests.dying import dying, opening_notes

#: Half way through a file that a worker writes in a round behind the first; when at least two rounds are done, and
#: there is something for another; behind the task that does a whole epoch, and then there are no such rounds; half way
#: through the note of a state; when an epoch has just been recorded.
PLACES = ("in-a-round", "between-rounds", "done-by-one-task", "state-half-written", "recorded")
#: While there is a file of this name, no epoch gets beyond its first round; how often is in the other one.
FAILING, FAILURES = "rounds-fail", "failures"


def strike_anywhere(folder: Path) -> None:
    """From now on, while a file named like one of the PLACES is in a folder, the next one who gets there takes it away
    and kills the application's process."""

    def strike(place: str) -> None:
        if (folder / place).exists():
            (folder / place).unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    _strike_in_rounds(folder)
    _strike_between_rounds(folder, strike)
    _strike_behind(Jobs, "_go_alone", lambda: strike("done-by-one-task"))
    _strike_behind(EpochLog, "record", lambda: strike("recorded"))
    home.open = opening_notes(lambda: strike("state-half-written"))  # type: ignore[attr-defined]
    prepare = alone.prepare

    def prepared(*given: Any) -> frozenset[Any]:
        """For what one task does alone there are no jobs of rounds."""
        by_jobs = any((folder / place).exists() for place in ("in-a-round", "between-rounds", FAILING))
        return frozenset() if by_jobs else prepare(*given)

    jobs.prepare = prepared  # type: ignore[attr-defined, assignment]


def _strike_behind(owner: type, name: str, strike: Callable[[], None]) -> None:
    real: Callable[..., Any] = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        strike()
        return result

    setattr(owner, name, call)


def _strike_in_rounds(folder: Path) -> None:
    mark, real = folder / "in-a-round", DataFrame.mapInArrow

    def mapped(rows: DataFrame, task: Any, *arguments: Any, **options: Any) -> Any:
        is_of_round = isinstance(task, Task) and any(task.now)
        work = dying(task, mark, "heard0", with_it=os.getpid()) if is_of_round and mark.exists() else task
        return real(rows, work, *arguments, **options)

    DataFrame.mapInArrow = mapped  # type: ignore[method-assign, assignment]


def _strike_between_rounds(folder: Path, strike: Callable[[str], None]) -> None:
    flush = Jobs.flush

    def flushed(jobs: Jobs) -> None:
        if jobs.count and (folder / FAILING).exists():
            with open(folder / FAILURES, "a") as failures:
                failures.write("again\n")
            raise RuntimeError(FAILING)
        flush(jobs)
        if jobs.count > 1 and any(any(time) for _, _, time in jobs.pending):
            strike("between-rounds")

    Jobs.flush = flushed  # type: ignore[method-assign, assignment]
