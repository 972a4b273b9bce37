"""Direct: sends the results of epochs straight to their topic, without a copy in a log. The topic is their log.

This is correct if another computation of an epoch gives the same rows (`falkirk/plan/direct.py` says for which batches
that is certain). A retry leaves out the rows that an interrupted attempt has already sent. A row's content decides its
place, because Spark computes rows in another order each time.

Three cases could break this:
  - The function changes between two attempts of one epoch. So a decision records the program that sends epochs, and
    another program does not continue a partly published epoch.
  - An epoch of the same batch still waits in its log for its sink. Then the next epoch is not decided as direct.
  - A job of a former attempt still sends. Falkirk waits for it or restarts the Spark application
    (`BatchRegion.fence`), and ends all writers before it reads the topic's end (sinks/writing.py).
"""

from dataclasses import fields
from functools import partial
from importlib.metadata import version
from typing import Any

from pyspark.sql import SparkSession

from falkirk.errors.conditions.spark import EPOCH_OUT_IN_PART
from falkirk.plan.batch import Batch
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.computed import Computed
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.epochs.ports import ReleaserPort
from falkirk.runtime.spark.epochs.results import Results, Written
from falkirk.steps.static_analysis.structure import digest
from falkirk.theory.ids import EpochNumber

_PROGRAM = "program"
#: Up to this many records are processed and their results sent by one task, without a shuffle.
FEW_RECORDS = 10_000


class Direct:
    """Sends the epochs of one batch. Args: releaser: of its results; None: nothing is released."""

    def __init__(
        self, batch: Batch, epochs: EpochLog, store: Store, results: Results, releaser: ReleaserPort | None
    ) -> None:  # fmt: skip
        self._batch, self._epochs, self._store, self._results, self._releaser = batch, epochs, store, results, releaser
        #: The program that sent the last epochs, and the number of that decision; None: not yet read from the store.
        self._program: str | None = None
        self._decided, self._about = -1, f"epochs of {batch.name}"
        self._around = ""
        #: The program that sent the last small epoch; empty if the last epoch had dead letters or was not sent.
        self.repeatable = ""

    def may_be_next(self) -> bool:
        """Return whether the next epoch's results may go straight to their topic, because no older results wait."""
        last = self._epochs.epochs()[-1:]
        return self._batch.is_direct and (all(e.direct for e in last) or self._is_all_released())

    def _is_all_released(self) -> bool:
        known = [r for r in self._store.releases(self._batch.released_to) if r.topic == self._batch.log]
        return any(r.released_exclusive >= self._epochs.next_number() for r in known)

    def takes(self, epoch: Epoch) -> bool:
        """Return whether an epoch's results go straight to their topic. Raises: HomeError: `EPOCH_OUT_IN_PART`."""
        if epoch.may_be_out and not self._batch.is_direct:
            self._refuse_what_is_out(epoch)
        return epoch.may_be_out and self._batch.is_direct

    def is_small(self, epoch: Epoch) -> bool:
        """Return whether one task should compute the whole epoch, because its input is small.

        A direct epoch runs no Python, only Spark's own operators with deterministic results. An epoch that reads files
        or ranges of other batches' epochs is never small, because these may have any size. Views are not counted.
        """
        if not epoch.may_be_out or any(i.topic is None and not i.view for i in self._batch.inputs):
            return False
        read = sum(o - epoch.first.get(log, {}).get(p, 0) for log, ps in epoch.last.items() for p, o in ps.items())
        return read <= FEW_RECORDS

    def send(self, epoch: Epoch, folder: str, computed: Computed) -> Written:
        """Send the results of an epoch. Args: folder: for the dead letters."""
        assert self._releaser is not None, "it has a sink"
        program, few = self.program(computed.structure, computed.result.sparkSession), self.is_small(epoch)
        before, self.repeatable = self.repeatable, ""
        self.agree(epoch, program)
        written = self._results.send(folder, computed, partial(self._releaser.send, epoch.number, few=few))
        if not written.dead:
            self.repeatable = program if few else before
        return written

    def program(self, structure: list[Any], session: SparkSession) -> str:
        """Return the program that sends results. Args: structure: of their plan."""
        self._around = self._around or _around(self._batch, session)
        return digest([structure, self._around])

    def agree(self, epoch: Epoch, program: str) -> None:
        """Ensure that the program that continues to send an epoch is the one that began it."""
        if self._program is None:
            newest = self._store.newest_decision(_PROGRAM, self._about)
            self._decided, self._program = (-1, "") if newest is None else (newest.number, newest.content["is"])
        if program == self._program:
            return
        self._refuse_what_is_out(epoch)
        self._decided += 1
        self._store.record_decision(_PROGRAM, self._about, self._decided, {"is": program})
        self._store.forget_epochs(_PROGRAM, self._about, EpochNumber(self._decided))
        self._program = program

    def _refuse_what_is_out(self, epoch: Epoch) -> None:
        """Raises: HomeError: `EPOCH_OUT_IN_PART`. LogError, SparkError: the topic can't be asked."""
        if self._releaser is None or self._releaser.found() <= epoch.number:
            return
        raise EPOCH_OUT_IN_PART.error(where=self._batch.where, processor=self._batch.name, epoch=epoch.number)


def _around(batch: Batch, session: SparkSession) -> str:
    """Return everything except the plan on which a row's record in a topic depends."""
    (sink,) = batch.sinks
    written = {f.name: getattr(sink.to, f.name) for f in fields(sink.to) if f.name != "where"}
    zone = session.conf.get("spark.sql.session.timeZone")
    read = [(given.name, given.log, given.view) for given in batch.inputs]
    return "\n".join(map(str, (read, written, zone, session.version, version("falkirk"))))
