"""A query of a standby is stopped while a job of it runs: between two jobs, a stop makes Spark log errors."""

from types import SimpleNamespace
from typing import Any, cast

from falkirk.runtime.spark.live.warming import AGAIN, BATCHES, Warming, WarmQuery


class Spark:
    """The queries and jobs of Spark. Attributes: batch: the last complete one. active: the running jobs.

    stops: the running jobs of the query at each stop.
    """

    def __init__(self) -> None:
        self.batch, self.active, self.begun, self.stops = 0, set[int](), 0, list[set[int]]()

    def begin(self) -> Any:
        self.begun += 1
        return SimpleNamespace(
            isActive=True, lastProgress={"batchId": self.batch}, runId=f"run-{self.begun}", exception=lambda: None,
            stop=lambda: self.stops.append(set(self.active)),
        )  # fmt: skip

    def getJobIdsForGroup(self, group: str) -> list[int]:
        return {"run-1": [1, 2, 3], "run-2": [4, 5]}[group]

    def getActiveJobsIds(self) -> list[int]:
        return sorted(self.active)


def warm(spark: Spark) -> WarmQuery:
    jobs: Any = spark
    return WarmQuery(spark.begin, jobs)


def test_it_is_stopped_and_done_only_while_a_job_of_it_runs() -> None:
    spark = Spark()
    spark.batch = BATCHES - 1
    query = warm(spark)
    assert not query.is_done()
    assert spark.stops == [], "it plans its next batch"
    spark.active = {4}
    assert not query.is_done()
    assert spark.stops == [], "the job is that of another query"
    spark.active, spark.batch = {3}, BATCHES - 1 + AGAIN
    assert not query.is_done()
    assert (spark.stops, spark.begun) == ([{3}], 2), "it was started again"
    assert not query.is_done()
    spark.active = {5}
    assert query.is_done()
    assert spark.stops == [{3}, {5}], "it was stopped while its job ran"
    spark.active = set()
    assert query.is_done(), "it needs no job any more"
    query.stop()
    assert len(spark.stops) == 2, "it is stopped once"


def test_one_that_has_not_run_long_enough_is_not_stopped() -> None:
    spark = Spark()
    spark.active = {1}
    query = warm(spark)
    assert not query.is_done()
    assert spark.stops == []


def test_queries_whose_jobs_never_run_at_the_same_time_are_all_done_and_each_is_stopped_in_its_job() -> None:
    both = Spark(), Spark()
    warming = Warming.__new__(Warming)
    warming._queries = queries = [warm(spark) for spark in both]
    done = []
    for turn in range(8):
        for number, (spark, query) in enumerate(zip(both, queries, strict=True)):
            spark.batch += BATCHES
            cast(Any, query._query).lastProgress = {"batchId": spark.batch}
            spark.active = {1, 2, 3, 4, 5} if turn % 2 == number else set()
        done.append(warming.is_done())
    assert done[-1]
    warming.stop()
    assert all(len(spark.stops) == 2 and all(spark.stops) for spark in both), "none is stopped between two jobs"
