"""Tasks of a job that was cancelled run on, and a stop of the session waits for them."""

import threading

from pyspark.sql import SparkSession

from falkirk.environment.spark import cancel_jobs
from falkirk.environment.stopping import running_tasks
from tests.support import wait_until


def test_a_task_is_counted_until_it_has_ended_although_its_job_has_failed(spark: SparkSession) -> None:
    group, failed = "test-running-tasks", list[Exception]()

    def work() -> None:
        spark.sparkContext.setJobGroup(group, "sleeps", interruptOnCancel=False)
        try:
            spark.range(1).selectExpr("java_method('java.lang.Thread', 'sleep', 2000L)").collect()
        except Exception as error:
            failed.append(error)

    before, thread = running_tasks(spark), threading.Thread(target=work)
    thread.start()
    wait_until(lambda: running_tasks(spark) == before + 1, 60, "the task runs")
    cancel_jobs(spark, group)
    thread.join(60)
    assert failed, "the job was cancelled"
    assert running_tasks(spark) == before + 1, "its task sleeps on"
    wait_until(lambda: running_tasks(spark) == before, 60, "the task ends")
