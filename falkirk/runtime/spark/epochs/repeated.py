"""Repeated: sends small direct epochs with one job that is planned once, as Spark's micro-batches keep their plan.

Spark's plan of an epoch, with the calls from Python, takes longer than the epoch's records. So after some ordinary
epochs, the function is called on DataFrames that belong to no epoch, and Spark plans their job (`repeated_job.py`).
Later epochs run it with their own offsets. Nothing else changes:

  - The function is called for each epoch. If it returns another result, the epoch gets a separate plan.
  - The decision with the offsets is recorded before, and so is the program that sends the epoch (`direct.py`).
  - If an attempt may have left results of the epoch in the topic, the epoch gets a separate plan. It asks the topic,
    and leaves out the rows that are there.
  - An epoch with dead letters runs again with a separate plan, which finds all its results in the topic, and writes
    the dead letters.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.plan.batch import Batch, by_parameter
from falkirk.plan.batch_planning import returned
from falkirk.platform.data import DataPath
from falkirk.platform.traced import step
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs.direct import Direct
from falkirk.runtime.spark.epochs.inputs import FitColumns
from falkirk.runtime.spark.epochs.log import Epoch
from falkirk.runtime.spark.epochs.ports import ReleaserPort
from falkirk.runtime.spark.epochs.repeated_job import UNFIT, RepeatedJob, ranges_of
from falkirk.runtime.spark.epochs.results import Written
from falkirk.steps.batch.call import EpochContext
from falkirk.steps.batch.in_epoch import InEpoch
from falkirk.steps.sources.topics import Parsing, parse_records
from falkirk.steps.static_analysis.structure import KnownLeaves, structure_of
from falkirk.theory.ids import LogId, topic_name

log = logging.getLogger("falkirk")

#: The observation of the number of results, and the beginning of those of each input's records.
ROWS, READ = "falkirk-rows", "falkirk-read-"
#: How many more ordinary epochs follow the first one: a run of few epochs needs no job that it can repeat.
ORDINARY_MIN = 1
#: How often a job is planned that no epoch uses, before the batch plans no more of them.
UNUSED_MAX = 3


@dataclass(frozen=True, kw_only=True)
class _Given:
    """The inputs, for any epoch. Args: partitions: of each topic. options: of the clients that read them."""

    frames: Mapping[str, DataFrame]
    partitions: Mapping[LogId, frozenset[int]]
    options: Sequence[Mapping[str, str]]


class RepeatedEpochs:
    """The epochs of one direct batch that one job sends.

    Args: columns: those of the results. called_for: returns the context with which the function is called.
    """

    def __init__(
        self, session: SparkSession, context: Context, batch: Batch, parsings: Mapping[LogId, Parsing], fit: FitColumns,
        columns: Sequence[Column], direct: Direct, releaser: ReleaserPort | None,
        called_for: Callable[[Epoch], EpochContext],
    ) -> None:  # fmt: skip
        self._session, self._context, self._batch, self._parsings, self._fit = session, context, batch, parsings, fit
        self._columns, self._direct, self._releaser, self._called_for = columns, direct, releaser, called_for
        self._given: _Given | None = None
        self._job: RepeatedJob | None = None
        #: The program that the job sends.
        self._program = ""
        self._ordinary = self._unused = 0
        self._is_off = not batch.is_direct or releaser is None or any(given.topic is None for given in batch.inputs)
        logs = {given.log for given in batch.inputs}
        if len({topic_name(log) for log in logs}) < len(logs):
            self._is_off = True  # the property of a job names the topics without their clusters

    def written(self, epoch: Epoch, begin: Callable[[], None]) -> Written | None:
        """Send an epoch; return None if it needs a separate plan.

        Args: begin: assigns the Spark jobs of this thread to the epoch.
        Raises: as `Direct.send`.
        """
        if self._is_off or not self._direct.takes(epoch) or not self._direct.is_small(epoch):
            return None
        if not self._direct.repeatable:  # the last epoch had dead letters, or it failed
            return None
        if self._ordinary < ORDINARY_MIN:
            self._ordinary += 1
            return None
        begin()
        if (result := self._result(epoch)) is None or not self._has_job(result):
            return None
        return self._sent(epoch)

    def _sent(self, epoch: Epoch) -> Written | None:
        assert self._releaser is not None, "it has a sink"
        assert self._job is not None, "it was planned"
        self._direct.agree(epoch, self._program)
        program, self._direct.repeatable = self._direct.repeatable, ""
        with step("deliver"):
            found = self._releaser.repeat(epoch.number, ranges_of(epoch), self._job)
        if found is None:
            self._job = None  # its topic may have changed
            return None
        self._unused = 0
        if found[UNFIT]["unfit"] or any(counts["bad"] for name, counts in found.items() if name.startswith(READ)):
            return None
        self._direct.repeatable = program
        return Written(rows=int(found[ROWS]["rows"]), dead=0)

    def _result(self, epoch: Epoch) -> DataFrame | None:
        """Call the function for an epoch; return its result, or None if that needs the records themselves."""
        given = self._inputs(epoch)
        call = InEpoch(self._called_for(epoch), self._session, {}, _no_folder)
        batch = self._batch
        try:
            frames = by_parameter(batch.inputs, given.frames)
            result, _ = returned(batch.name, batch.body, batch.parameters, frames, None, batch.where, call)
        except Exception as error:  # an epoch's own plan shows whether the function is the cause
            self._turn_off(f"its function reads records: {first_line(error)}")
            call.clean()
            return None
        if call.is_plain:
            return result
        call.clean()
        self._turn_off("its operators keep something")
        return None

    def _inputs(self, epoch: Epoch) -> _Given:
        partitions = {log: frozenset(ends) for log, ends in epoch.last.items()}
        options = [self._context.kafka_options(log) for log in epoch.last]
        if (given := self._given) is None or given.partitions != partitions or given.options != options:
            frames = {}
            for each in self._batch.inputs:
                assert each.topic is not None, "it reads topics"
                records = self._context.records_of_jobs(
                    self._session, each.log, epoch.last[each.log], reader=self._batch.name,
                    headers=each.topic.reads_headers,
                )  # fmt: skip
                frame = parse_records(records.coalesce(1), self._parsings[each.log])
                counted = frame.data.observe(READ + each.name, *self._fit.counts)
                frames[each.name] = self._fit.good(each, counted, frame.columns, F.lit(0))
            self._given, self._job = _Given(frames=frames, partitions=partitions, options=options), None
        assert self._given is not None, "it was made"
        return self._given

    def _has_job(self, result: DataFrame) -> bool:
        """Return whether there is a job for this result. If there is none, plan one, unless that was in vain before."""
        assert self._releaser is not None, "it has a sink"
        assert self._given is not None, "the result was computed from it"
        if self._job is not None and self._job.computes(result):
            return True
        self._job, self._unused = None, self._unused + 1
        if self._unused > UNUSED_MAX:
            self._turn_off("its function returns another result each time, or its program is another one")
            return False
        rows = result.select(*self._columns)
        leaves = KnownLeaves.of(by_parameter(self._batch.inputs, self._given.frames))
        self._program = self._direct.program(structure_of(rows, leaves), self._session)
        if self._program != self._direct.repeatable:
            return False
        counted = rows.observe(ROWS, F.count("*").alias("rows"))
        observed = [ROWS, *(READ + each.name for each in self._batch.inputs)]
        try:
            self._job = self._releaser.job(result, counted, observed)
        except SPARK_ERRORS as error:
            self._turn_off(f"Spark can't plan it: {first_line(error)}")
            return False
        if self._job is None:
            self._turn_off("it needs more than one stage, or an operator that can't run again")
        return self._job is not None

    def _turn_off(self, reason: str) -> None:
        self._is_off, self._given, self._job = True, None, None
        log.debug("%s: each epoch gets a separate plan: %s", self._batch.name, reason)


def _no_folder() -> DataPath:
    raise AssertionError("rows of no epoch are not computed")
