"""Places in a loop's work at which its process is killed with -9, or at which rounds fail, as files request."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql.classic.dataframe import DataFrame

from falkirk.platform import durable
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.steps.differential import jobs
from falkirk.steps.differential import single_task as alone
from falkirk.steps.differential.jobs import Jobs
from falkirk.steps.differential.task import Task
from tests.dying import dying, opening_notes

#: The places, in order: (1) in the middle of a file that a worker writes in a round after the first; (2) after at least
#: two rounds, before another; (3) after a task that does a whole epoch, without such rounds; (4) in the middle of the
#: note of a state; (5) right after an epoch was recorded.
PLACES = ("in-a-round", "between-rounds", "done-by-one-task", "state-half-written", "recorded")
#: While a file with the first name exists, no epoch gets beyond its first round; the second file counts the failures.
FAILING, FAILURES = "rounds-fail", "failures"


def strike_anywhere(folder: Path) -> None:
    """Install the strikes: while a file named after one of the PLACES exists in the folder, a process dies there.

    The first process that reaches the place removes the file and kills the application's process.
    """

    def strike(place: str) -> None:
        if (folder / place).exists():
            (folder / place).unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    _strike_in_rounds(folder)
    _strike_between_rounds(folder, strike)
    _strike_behind(Jobs, "_go_alone", lambda: strike("done-by-one-task"))
    _strike_behind(EpochLog, "record", lambda: strike("recorded"))
    durable.open = opening_notes(lambda: strike("state-half-written"))  # type: ignore[attr-defined]
    prepare = alone.prepare

    def prepared(*given: Any) -> frozenset[Any]:
        """Prepare no jobs of rounds if one task does all the work."""
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
        work = dying(task, mark, "input0", with_it=os.getpid()) if is_of_round and mark.exists() else task
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
