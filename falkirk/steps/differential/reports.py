"""Reports: how the tasks of a job tell the driver which files they have written.

The names are not known before, since each attempt of a task chooses its own, and an object store may list them late. A
task sends its report through an accumulator of Spark, which counts only tasks that have succeeded. Spark may run a task
twice, if an executor is lost: then the first report counts, since both attempts have the same rows.

Spark only logs that it could not deliver a report. So the driver knows which tasks a job has, and refuses the job if
one of them has reported nothing.
"""

import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from pyspark import SparkContext
from pyspark.accumulators import AccumulatorParam

from falkirk.errors.conditions.spark import REPORT_LOST
from falkirk.steps.differential.files import Measured

WrittenFiles = dict[str, Measured]
"""The files that a task has written, by name."""
TaskId = tuple[str, int]
"""A task of a job: the name of its operator, and the number of the partition."""
_Report = tuple[str, TaskId, WrittenFiles]


class _Received:
    """The reports of all open jobs of a driver."""

    def __init__(self) -> None:
        self.jobs: WeakValueDictionary[str, JobReports] = WeakValueDictionary()

    def add(self, reports: list[_Report]) -> None:
        """Add reports; those of jobs that nobody waits for are dropped."""
        for job, task, written in reports:
            if (found := self.jobs.get(job)) is not None:
                found.tasks.setdefault(task, written)


class _Reports(AccumulatorParam[Any]):
    """Collects reports in a list on the side of a task, and gives them to their jobs on the driver's side."""

    def zero(self, value: Any) -> Any:
        """See AccumulatorParam."""
        return []

    def addInPlace(self, value1: Any, value2: Any) -> Any:
        """See AccumulatorParam."""
        if not isinstance(value1, _Received):
            return [*value1, *value2]
        value1.add(value2)
        return value1


@dataclass(frozen=True)
class Reporter:
    """The task's side. Args: to: the accumulator. job: the name of the job."""

    to: Any
    job: str

    def __call__(self, task: TaskId, written: WrittenFiles) -> None:
        """Report a task. Spark delivers the report if the task succeeds."""
        self.to.add([(self.job, task, written)])


class JobReports:
    """The driver's side of one job. Attributes: tasks: the files of each task. reporter: for the tasks."""

    def __init__(self, context: SparkContext) -> None:
        self.tasks = dict[TaskId, WrittenFiles]()
        job = uuid.uuid4().hex
        accumulator, received = _of(context)
        received.jobs[job] = self
        self.reporter = Reporter(accumulator, job)

    def of(self, tasks: Iterable[TaskId]) -> list[WrittenFiles]:
        """Return the reports of tasks that have ended, in this order. Raises: SparkError: `REPORT_LOST`."""
        wanted = list(tasks)
        if missing := [task for task in wanted if task not in self.tasks]:
            raise REPORT_LOST.error(task=f"{missing[0][0]}, partition {missing[0][1]}")
        return [self.tasks[task] for task in wanted]


_known: "WeakKeyDictionary[SparkContext, tuple[Any, _Received]]" = WeakKeyDictionary()
_lock = threading.Lock()


def _of(context: SparkContext) -> tuple[Any, _Received]:
    """Return the one accumulator of a context: pyspark never forgets any."""
    with _lock:
        if context not in _known:
            received = _Received()
            _known[context] = context.accumulator(received, _Reports()), received
        return _known[context]
