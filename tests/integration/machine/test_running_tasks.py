"""Tasks of a job that was cancelled run on, and a stop of the session waits for them."""

import threading
from typing import Any

from pyspark.sql import SparkSession

from falkirk.spark_setup.spark import cancel_jobs
from falkirk.spark_setup.stopping import running_tasks
from tests.support import wait_until

#: Longer than the test. The test wakes the task.
_SLEEP_MS = 600_000


def _sleeping(spark: SparkSession) -> list[Any]:
    """Return the threads of Java whose task sleeps in `java_method`."""
    jvm: Any = spark._jvm
    traces = jvm.java.lang.Thread.getAllStackTraces()
    workers = [thread for thread in traces if thread.getName().startswith("Executor task launch worker")]
    found = []
    for thread in workers:
        frames = [str(frame) for frame in traces[thread]]
        if any("CallMethodViaReflection" in each for each in frames) and any(".sleep" in each for each in frames):
            found.append(thread)
    return found


def _stages(spark: SparkSession) -> dict[str, int]:
    """Return the names of the stages that run, and the number of their tasks."""
    tracker = spark.sparkContext.statusTracker()
    found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return {stage.name: stage.numActiveTasks for stage in found if stage is not None}


def test_a_task_is_counted_until_it_has_ended_although_its_job_has_failed(spark: SparkSession) -> None:
    group, failed = "test-running-tasks", list[Exception]()

    def work() -> None:
        spark.sparkContext.setJobGroup(group, "sleeps", interruptOnCancel=False)
        try:
            spark.range(1).selectExpr(f"java_method('java.lang.Thread', 'sleep', {_SLEEP_MS}L)").collect()
        except Exception as error:
            failed.append(error)

    wait_until(lambda: running_tasks(spark) == 0, 60, lambda: f"the end of the tasks of other tests: {_stages(spark)}")
    thread = threading.Thread(target=work)
    thread.start()
    sleeping = list[Any]()
    try:
        wait_until(lambda: len(_sleeping(spark)) == 1, 60, "the task sleeps")
        sleeping = _sleeping(spark)
        cancel_jobs(spark, group)
        thread.join(60)
        assert failed, "the job was cancelled"
        assert running_tasks(spark) == 1, _stages(spark)
    finally:
        for each in sleeping:
            each.interrupt()
    wait_until(lambda: running_tasks(spark) == 0, 60, "the task ends")
