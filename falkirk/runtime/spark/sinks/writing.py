"""Writing: jobs that write results to a topic, in lanes (lanes.py). Copies from held logs and epochs of batches do.

The tasks of a job are the writers. A failed job may leave one behind: it was cancelled but still runs, or its executor
can't be reached. So before Falkirk looks for the results in a topic, it opens a new incarnation of the topic's writers:

  - in this JVM, tasks of older incarnations get no lane, and Falkirk waits for those that have one;
  - if the topic is transactional, the broker refuses all others. A job has one task per partition at most, so the
    number of transactional ids is known.

If the topic is not transactional, nothing stops a task on an executor that can't be reached. So on a cluster, a failed
job ends the Spark application, and the next one waits until its executors have ended (recovery/ownership/executors.py).

Jobs without an error share an incarnation. It is only a number in this process: nothing depends on it later.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TypeVar

from pyspark.sql import DataFrame

from falkirk.errors.conditions.spark import SESSION_LOST_RELEASE
from falkirk.runtime.spark import fence, lanes
from falkirk.runtime.spark.context import Context, Storage, Writers
from falkirk.runtime.spark.settling import settled_ends
from falkirk.spark_setup.lists import with_options
from falkirk.spark_setup.spark import writes_elsewhere
from falkirk.theory.ids import Incarnation, LogId, Offsets

Result = TypeVar("Result")
_INCARNATIONS = count(1)


def settle(context: Context, topic: str) -> Offsets:
    """Return the ends of a topic, once no record of an earlier job can still arrive there.

    Blocks while the broker is unreachable. Raises: SparkError: `WRITER_STILL_RUNNING`, `SESSION_LOST`: a job failed,
    and its tasks may still write. LogError: as `settled_ends`, and `ACCESS_REFUSED`, `BROKER_AWAY`, `KAFKA_REFUSED`.
    """
    context.writers[topic] = None  # an error leaves none
    context.writers[topic] = _open(context, topic)
    return _ends(context, topic)


def settle_at_rest(place: Storage, topic: str) -> Offsets:
    """Return the ends of a topic whose application does not run. Raises: LogError: as `settle`."""
    lanes.fence(place, lanes.of_jobs(topic))
    return _ends(place, topic)


def readable_ends(place: Storage, topic: str) -> Offsets:
    """Return where a topic ends for its readers now, while jobs may write to it."""
    is_transactional = lanes.has_lanes(place, lanes.of_jobs(topic))
    return place.topics.readable_positions(topic) if is_transactional else place.topics.end_positions(topic)


def _ends(place: Storage, topic: str) -> Offsets:
    name = LogId(topic)
    return settled_ends(place, (name,), topic, transactional=lanes.has_lanes(place, lanes.of_jobs(topic)))[name]


def _open(context: Context, topic: str) -> Writers:
    if topic in context.failed_writers and not context.transactional and writes_elsewhere(context.session):
        raise SESSION_LOST_RELEASE.error(topic=topic)
    region, incarnation = lanes.of_jobs(topic), Incarnation(next(_INCARNATIONS))
    lanes.refuse_before(context, region, incarnation)
    fence.await_end(lambda: lanes.are_used(context, region))
    lanes.close_lanes(context, region)
    tasks, token = context.topics.facts(topic).partitions, None
    if context.transactional:
        token = lanes.fence_for(context, region, tasks)
        lanes.record(context, region, Incarnation(tasks), tasks)  # again only if the number changes
    else:
        lanes.fence(context, region)
    context.failed_writers.discard(topic)
    return Writers(incarnation=incarnation, lanes=tasks, token=token)


def write(context: Context, topic: str, rows: DataFrame, limit_bytes: int) -> None:
    """Append rows to a topic: (topic STRING, partition INT, key BINARY, value BINARY, header BINARY), and perhaps a
    TIMESTAMP from which the latency of a row counts.

    If it fails, some of the rows may be there, in order within each task. The next job then opens a new incarnation.

    Args: limit_bytes: the largest batch that the topic accepts.
    """

    def save(options: dict[str, str]) -> None:
        with_options(rows.write.format(lanes.JOB), options).mode("append").save()

    run_job(context, topic, limit_bytes, save)


def run_job(context: Context, topic: str, limit_bytes: int, run: Callable[[dict[str, str]], Result]) -> Result:
    """Run a job that appends rows to a topic, and return its result.

    Args: limit_bytes: as of `write`. run: gets the options of the format `lanes.JOB`.
    """
    opened = context.writers.get(topic) or _open(context, topic)
    context.writers[topic] = None
    context.failed_writers.add(topic)
    opened.jobs += 1
    region = lanes.of_jobs(topic)
    producer = fence.producer_options(context, f"release-{topic}", fence.RELEASE, limit_bytes, limit_bytes)
    options = lanes.job_options(context, region, opened.incarnation, opened.lanes, producer, opened.token)
    found = run({**options, "job": str(opened.jobs)})
    context.writers[topic] = opened
    context.failed_writers.discard(topic)
    return found


def flush(context: Context) -> None:
    """Send the records in this JVM's lanes, and close them; no job runs. Raises: SparkError: `WRITER_STILL_RUNNING`."""
    for region in map(lanes.of_jobs, sorted(context.writers)):
        fence.await_end(partial(lanes.are_used, context, region))
        lanes.close_lanes(context, region)
